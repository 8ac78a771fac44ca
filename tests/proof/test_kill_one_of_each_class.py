"""A process is killed between two steps of a file's way: nothing is lost or doubled. All cells: `make proof`."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dagster_tidemark.settings import Settings
from tests.tidemark.kill.cell import Cell, Outcome, play

CELLS = (
    Cell("before_delete"),
    Cell("between_quarantine_and_table"),
    Cell("after_commit"),
    Cell("before_commit", overwrites=True, is_large=True),
)


@pytest.fixture(scope="module")
def played(
    cloud: Settings, spark_server: Settings, tmp_path_factory: pytest.TempPathFactory
) -> dict[Cell, "Future[Outcome]"]:
    folder: Path = tmp_path_factory.mktemp("kill")
    with ThreadPoolExecutor(len(CELLS)) as pool:
        return {cell: pool.submit(play, cell, cloud, number, folder) for number, cell in enumerate(CELLS)}


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_killed_process_of_each_class_loses_and_doubles_nothing(
    played: dict[Cell, "Future[Outcome]"], cell: Cell
) -> None:
    outcome = played[cell].result()
    assert outcome.faults == []
    assert (outcome.exit_signal, outcome.lost, outcome.doubled) == (9, 0, 0)
