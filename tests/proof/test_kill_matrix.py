"""Every boundary of a file's way, with the real daemon, Spark server, S3 and SQS: SIGKILL there, and a fresh daemon.

Nothing may be lost or doubled against a full load of the bucket, rows and quarantine alike. Then one defect of each
class of boundaries: its cell has to turn red, else the matrix proves nothing.
"""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pytest

from dagster_tidemark.settings import Boundary, Settings
from tests.proof.conftest import Report
from tests.tidemark.kill.cell import Cell, Outcome, play
from tests.tidemark.kill.defects import Defect

Played = Callable[[str, Sequence[Cell]], list[Outcome]]

_numbers = itertools.count()
_AT_ONCE = 3  # a daemon, its code server and a run each, on two cores
_IN_A_LOAD: tuple[Boundary, ...] = (
    "between_quarantine_and_table",
    "before_commit",
    "after_commit",
    "before_recorded",
)
CELLS = (
    *(Cell(boundary) for boundary in (*_IN_A_LOAD, *get_args(Boundary)[: -len(_IN_A_LOAD)])),
    *(Cell(boundary, overwrites=True) for boundary in _IN_A_LOAD),
    *(Cell(boundary, overwrites=True, is_large=True) for boundary in _IN_A_LOAD),
)
WRONG = (
    Cell("after_receive", defect=Defect.DELETE_BEFORE_OBSERVING),
    Cell("after_commit", defect=Defect.TABLE_BEFORE_QUARANTINE),
    Cell("after_commit", defect=Defect.APPEND_INSTEAD_OF_MERGE),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kill")


@pytest.fixture
def played(cloud: Settings, spark_server: Settings, folder: Path, report: Report) -> Played:
    """Cells side by side; what is known is kept after each."""

    def _play(name: str, cells: Sequence[Cell]) -> list[Outcome]:
        done: list[Outcome] = []
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            under_way = [pool.submit(play, cell, cloud, next(_numbers), folder) for cell in cells]
            for cell in as_completed(under_way):
                done.append(cell.result())
                report(
                    name,
                    {
                        "cells": [asdict(outcome) for outcome in done],
                        "of": len(cells),
                        "lost": sum(outcome.lost for outcome in done),
                        "doubled": sum(outcome.doubled for outcome in done),
                    },
                )
        return done

    return _play


def test_kill_at_any_boundary_loses_and_doubles_nothing(played: Played) -> None:
    outcomes = played("kill_matrix", CELLS)
    assert [f"{outcome.cell}: {outcome.faults}" for outcome in outcomes if outcome.faults] == []
    assert {(outcome.exit_signal, outcome.lost, outcome.doubled) for outcome in outcomes} == {(9, 0, 0)}


def test_seeded_defect_fails_its_cell_of_the_kill_matrix(played: Played) -> None:
    outcomes = played("kill_matrix_with_defects", WRONG)
    assert [outcome.cell for outcome in outcomes if outcome.lost + outcome.doubled == 0] == []
    assert {outcome.exit_signal for outcome in outcomes} == {9}, "red because nobody was killed is no proof"
