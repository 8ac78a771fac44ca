"""Every boundary of a file's way, with the real daemon, Spark server, S3 and SQS: SIGKILL there, and a fresh daemon.

Nothing may be lost or doubled against a full load of the bucket, rows and quarantine alike. Then one defect of each
class of boundaries: its cell has to turn red, else the matrix proves nothing.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest

from pipelines.settings import Boundary, Settings
from tests.kill.cell import Cell, Outcome, play
from tests.kill.defects import Defect
from tests.proof.conftest import Report

_AT_ONCE = 2  # a daemon, its code server and a run each, on two cores
_IN_A_LOAD: tuple[Boundary, ...] = (
    "between_quarantine_and_table",
    "before_commit",
    "after_commit",
    "before_recorded",
)
CELLS = (
    *(Cell(boundary) for boundary in get_args(Boundary)),
    *(Cell(boundary, overwrites=True) for boundary in _IN_A_LOAD),
)
WRONG = (
    Cell("after_receive", defect=Defect.DELETE_BEFORE_OBSERVING),
    Cell("after_commit", defect=Defect.TABLE_BEFORE_QUARANTINE),
    Cell("after_commit", defect=Defect.APPEND_INSTEAD_OF_MERGE),
)


@pytest.fixture(scope="module")
def played(
    cloud: Settings, spark_server: Settings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Sequence[Outcome], Sequence[Outcome]]:
    folder: Path = tmp_path_factory.mktemp("kill")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        cells = [pool.submit(play, cell, cloud, number, folder) for number, cell in enumerate((*CELLS, *WRONG))]
        outcomes = [cell.result() for cell in cells]
    return outcomes[: len(CELLS)], outcomes[len(CELLS) :]


def test_nothing_is_lost_and_nothing_doubled_wherever_it_dies(
    played: tuple[Sequence[Outcome], Sequence[Outcome]], report: Report
) -> None:
    right, wrong = played
    report(
        "kill_matrix",
        {
            "cells": [outcome.as_figures() for outcome in right],
            "cells with a seeded defect": [outcome.as_figures() for outcome in wrong],
            "lost": sum(outcome.lost for outcome in right),
            "doubled": sum(outcome.doubled for outcome in right),
        },
    )
    assert [f"{outcome.cell}: {outcome.faults}" for outcome in right if outcome.faults] == []
    assert {(outcome.exit_signal, outcome.lost, outcome.doubled) for outcome in right} == {(9, 0, 0)}


def test_each_seeded_defect_turns_its_cell_red(played: tuple[Sequence[Outcome], Sequence[Outcome]]) -> None:
    _, wrong = played
    assert [outcome.cell for outcome in wrong if outcome.lost + outcome.doubled == 0] == []
    assert {outcome.exit_signal for outcome in wrong} == {9}, "red because nobody was killed is no proof"
