"""What a load does to a partition is decided as plain data, before anything is read."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dagster_tidemark.lakehouse.loading import load_plan
from dagster_tidemark.lakehouse.loading.load_plan import AGAIN, KnownFile, LoadStep, Where, steps
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.removals import RemovedFiles

HOUR = "2026-10-01-07:00"
A = SourceFile("a.csv", "v1", datetime(2026, 10, 1, tzinfo=UTC), HOUR)
B = SourceFile("b.csv", "v1", datetime(2026, 10, 1, tzinfo=UTC), HOUR)
KNOWN_A = KnownFile("a.csv", "v1", "1", Where.TABLE)
OLD_A = KNOWN_A._replace(version="v0")
KNOWN_B = KnownFile("b.csv", "v1", "1", Where.TABLE)
ENTERED_B = KNOWN_B._replace(where=Where.WHOLE_FILE)
ROWS_OF_A = KNOWN_A._replace(where=Where.REJECTED_ROWS)
ROWS_OF_B = KNOWN_B._replace(where=Where.REJECTED_ROWS)

ADD_B = LoadStep((B,), replaces=False)
A_AGAIN = LoadStep((A,), replaces=True)
BOTH_AGAIN = LoadStep((A, B), replaces=True)
C = SourceFile("c.csv", "v1", datetime(2026, 10, 1, tzinfo=UTC), HOUR)
KNOWN_C = KNOWN_A._replace(key="c.csv")
A_ALONE = frozenset(["a.csv"])
CORRECT_A = LoadStep((A,), replaces=False, outdated=frozenset([("a.csv", "v0")]), corrects=True)


@pytest.fixture(autouse=True)
def _three_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_plan, "FEW_FILES", 2)


def step(listed: list[SourceFile], known: list[KnownFile], fate: RemovedFiles = RemovedFiles()) -> LoadStep | None:  # noqa: B008
    return steps({HOUR: listed}, {HOUR: known}, {HOUR: fate}, "1").get(HOUR)


@pytest.mark.parametrize(
    ("listed", "known", "expected"),
    [
        ([], [], None),
        ([A], [KNOWN_A], None),
        ([A, B], [KNOWN_A, ENTERED_B], None),
        ([A], [KNOWN_A, ROWS_OF_A], None),  # some of its rows were turned away
        ([A, B], [], BOTH_AGAIN),  # nothing is there: to replace is cheaper than to merge
        ([A, B], [KNOWN_A], ADD_B),
        ([A], [OLD_A], A_AGAIN),
        ([A, B], [OLD_A], BOTH_AGAIN),
        ([A], [KNOWN_A._replace(loaded_by="0")], A_AGAIN),
        ([A, B], [KNOWN_A._replace(loaded_by="0"), KNOWN_B], BOTH_AGAIN),
        ([A, B], [OLD_A, KNOWN_B], BOTH_AGAIN),  # half of its files
        ([A, B, C], [OLD_A, KNOWN_B, KNOWN_C], CORRECT_A),
        ([A, B, C], [OLD_A, KNOWN_B._replace(loaded_by="0"), KNOWN_C], LoadStep((A, B, C), replaces=True)),
        ([A, B, C], [OLD_A._replace(where=Where.WHOLE_FILE), KNOWN_B, KNOWN_C], replace(CORRECT_A, forgotten=A_ALONE)),
        ([A, B, C], [OLD_A, ENTERED_B, KNOWN_C], replace(CORRECT_A, left=frozenset(["b.csv"]))),
        # The process died between quarantine and table: entries about rows alone make nothing known.
        ([A, B], [KNOWN_A, ROWS_OF_B], LoadStep((B,), replaces=False, forgotten=frozenset(["b.csv"]))),
        (
            [A, B],
            [ROWS_OF_A, ENTERED_B],
            LoadStep((A,), True, forgotten=frozenset(["a.csv"]), left=frozenset(["b.csv"])),
        ),
    ],
)
def test_load_plan_adds_new_files_and_rereads_partitions_with_changes(
    listed: list[SourceFile], known: list[KnownFile], expected: LoadStep | None
) -> None:
    assert step(listed, known) == expected


def test_load_plan_reads_a_complete_partition_again_if_a_person_asks_for_it_but_not_expired_files() -> None:
    def asked(listed: list[SourceFile], known: list[KnownFile], fate: RemovedFiles) -> LoadStep | None:
        return steps({HOUR: listed}, {HOUR: known}, {HOUR: fate}, "1", [HOUR]).get(HOUR)

    assert asked([A, B], [KNOWN_A, KNOWN_B], RemovedFiles()) == BOTH_AGAIN
    assert asked([], [], RemovedFiles()) is None
    assert asked([B], [KNOWN_A, KNOWN_B], RemovedFiles(expired=frozenset(["a.csv"]))) is None


def test_load_plan_keeps_rows_and_entries_of_withheld_files_only() -> None:
    withheld = RemovedFiles(withheld=frozenset(["a.csv"]))
    old = {"loaded_by": "0"}
    assert step([B], [KNOWN_A._replace(**old), KNOWN_B._replace(**old)], withheld) is None, "read with it, later"
    assert step([B], [KNOWN_A], withheld) == ADD_B
    entered_a = ROWS_OF_A._replace(where=Where.WHOLE_FILE)
    again = LoadStep((B,), replaces=True, left=frozenset(["a.csv"]))
    assert step([B], [entered_a, KNOWN_B._replace(version="v0")], withheld) == again
    gone = RemovedFiles(gone=frozenset(["b.csv"]), withheld=frozenset(["a.csv"]))
    assert step([], [KNOWN_A, KNOWN_B], gone) == LoadStep((), replaces=False, outdated=frozenset([("b.csv", "v1")]))


def test_load_plan_rereads_kept_rows_once_their_file_is_available() -> None:
    left = KNOWN_A._replace(loaded_by=AGAIN)
    assert step([A, B], [left, KNOWN_B]) == BOTH_AGAIN
    assert step([B], [left, KNOWN_B], RemovedFiles(withheld=frozenset(["a.csv"]))) is None
    old_c = KNOWN_A._replace(key="c.csv")
    kept = step([A, B], [left, KNOWN_B, old_c], RemovedFiles(expired=frozenset(["c.csv"])))
    assert kept == LoadStep((A, B), replaces=False, outdated=frozenset([("a.csv", "v1")]))


def test_load_plan_reads_all_files_beside_a_correction_if_one_is_gone_or_a_person_asks_for_it() -> None:
    known = {HOUR: [OLD_A, KNOWN_B, KNOWN_C]}
    all_again = LoadStep((A, B, C), replaces=True)
    assert steps({HOUR: [A, B, C]}, known, {}, "1", [HOUR])[HOUR] == all_again
    known[HOUR] += [KNOWN_A._replace(key="d.csv")]
    gone = RemovedFiles(gone=frozenset(["d.csv"]))
    assert steps({HOUR: [A, B, C]}, known, {HOUR: gone}, "1")[HOUR] == all_again


def test_load_plan_reads_all_of_few_files_again_if_one_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_plan, "FEW_FILES", 3)
    assert step([A, B, C], [OLD_A, KNOWN_B, KNOWN_C]) == LoadStep((A, B, C), replaces=True)


def test_load_plan_removes_rows_and_entries_of_deleted_files() -> None:
    gone = RemovedFiles(gone=frozenset(["b.csv"]))
    assert step([A], [KNOWN_A, KNOWN_B], gone) == A_AGAIN
    assert step([A], [KNOWN_A, ENTERED_B], gone) == LoadStep((A,), True, forgotten=frozenset(["b.csv"]))
    assert step([], [KNOWN_B], gone) == LoadStep((), replaces=True)


@pytest.mark.parametrize("fate", [RemovedFiles(expired=frozenset(["b.csv"])), RemovedFiles(held=frozenset(["b.csv"]))])
def test_load_plan_never_rereads_partitions_with_rows_of_lost_files(fate: RemovedFiles) -> None:
    by_other_code = [KNOWN_A._replace(loaded_by="0"), KNOWN_B._replace(loaded_by="0")]
    assert step([A], by_other_code, fate) is None
    assert step([A], [KNOWN_B], fate) == LoadStep((A,), replaces=False), "added files only"
    assert step([A], [KNOWN_A, ENTERED_B], fate) is None, "what was entered of a lost file stays"
    assert step([], [KNOWN_B], fate) is None


def test_load_plan_replaces_a_changed_file_beside_lost_files() -> None:
    c = SourceFile("c.csv", "v1", A.arrived_at, HOUR)
    known = [OLD_A, KNOWN_B, KNOWN_A._replace(key="c.csv")]
    changed = step([A, c], known, RemovedFiles(expired=frozenset(["b.csv"])))
    # c.csv as well: one of its rows may have lost to the old version of a.csv.
    assert changed == LoadStep((A, c), replaces=False, outdated=frozenset([("a.csv", "v0")]))
