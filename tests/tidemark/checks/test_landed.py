"""What a load says to the checks of its asset."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg
import pytest

from dagster_tidemark.execution.load_check import accounting_result, quarantine_result, removals_result
from dagster_tidemark.lakehouse.content import Content
from dagster_tidemark.lakehouse.loading.accounting import Account
from dagster_tidemark.lakehouse.loading.load import Loaded
from dagster_tidemark.lakehouse.loading.load_plan import Where
from dagster_tidemark.lakehouse.loading.quarantine_counts import QuarantineCount
from dagster_tidemark.sources.removals import RemovedFiles
from tests.toys.feeds import ORDERS

KEY = dg.AssetKey(["core", "orders"])
HOUR, OTHER = "2026-10-01-07:00", "2026-10-01-08:00"
CLEAN = Loaded(1, {HOUR: Content("v", 100)})


def turned_away(where: Where, reason: str, count: int, *, is_waived: bool = False) -> QuarantineCount:
    return QuarantineCount(where, reason, is_waived, count, 1, 1, (f"orders/{reason}.csv",))


@pytest.mark.parametrize(
    ("backlog", "share", "passed", "severity", "words"),
    [
        ([], 0.0, True, dg.AssetCheckSeverity.WARN, "nothing was rejected"),
        (
            [turned_away(Where.REJECTED_ROWS, "bad_type", 1)],
            0.0099,
            False,
            dg.AssetCheckSeverity.WARN,
            "1 rows rejected (bad_type 1), up to 0.99% of a partition: within the limit",
        ),
        (
            [turned_away(Where.REJECTED_ROWS, "bad_type", 2), turned_away(Where.REJECTED_ROWS, "null_value", 1)],
            0.0291,
            False,
            dg.AssetCheckSeverity.ERROR,
            "3 rows rejected (bad_type 2, null_value 1), up to 2.91% of a partition: above the feed's limit of 1.00%",
        ),
        (
            [turned_away(Where.WHOLE_FILE, "unreadable", 1)],
            0.0,
            False,
            dg.AssetCheckSeverity.ERROR,
            "1 files rejected: orders/unreadable.csv (unreadable)",
        ),
        (
            [turned_away(Where.WHOLE_FILE, "unreadable", 30)],
            0.0,
            False,
            dg.AssetCheckSeverity.ERROR,
            "30 files rejected: orders/unreadable.csv (unreadable) and 29 more",
        ),
        (
            [turned_away(Where.WHOLE_FILE, "unreadable", 1, is_waived=True)],
            0.0,
            True,
            dg.AssetCheckSeverity.WARN,
            "1 waived",
        ),
    ],
)
def test_quarantine_check_warns_on_few_rejected_rows_and_fails_on_many(
    backlog: list[QuarantineCount], share: float, passed: bool, severity: dg.AssetCheckSeverity, words: str
) -> None:
    result = quarantine_result(ORDERS, KEY, dataclasses.replace(CLEAN, backlog=backlog, largest_share=share))
    assert (result.passed, result.severity, result.description) == (passed, severity, words)


def test_quarantine_check_counts_pending_entries_by_reason_and_age() -> None:
    old = QuarantineCount(Where.REJECTED_ROWS, "null_value", False, 9, 2, 5, ("orders/a.csv",))
    waived = turned_away(Where.WHOLE_FILE, "unreadable", 7, is_waived=True)
    backlog = [turned_away(Where.REJECTED_ROWS, "bad_type", 1), old, waived]
    metadata = said(quarantine_result(ORDERS, KEY, dataclasses.replace(CLEAN, backlog=backlog)))
    assert {name: count for name, count in metadata.items() if name.startswith(("turned", "arrived"))} == {
        "turned away: bad_type": 1,
        "turned away: null_value": 9,
        "arrived within a day": 3,
        "arrived within a week": 3,
        "arrived earlier": 4,
    }
    assert (metadata["rows"], metadata["waived"]) == (10, 7)


def test_accounting_check_fails_for_lost_rows_until_their_partition_is_read_again() -> None:
    fine = Account(HOUR, "orders/a.csv", landed=5, in_table=3, rejected=1, superseded=1)
    passed = accounting_result(KEY, dataclasses.replace(CLEAN, accounts=[fine]), {})
    assert (passed.passed, said(passed)["rows superseded"]) == (True, 1)
    lost = dataclasses.replace(fine, superseded=0)
    failed = accounting_result(KEY, dataclasses.replace(CLEAN, accounts=[lost]), {})
    assert not failed.passed
    assert "orders/a.csv: 5 rows landed, 3 are in the table" in (failed.description or "")
    later = accounting_result(KEY, dataclasses.replace(CLEAN, added_to=[HOUR], read_again=[OTHER]), said(failed))
    assert (later.passed, said(later)["rows unaccounted for"]) == (False, 1)
    assert accounting_result(KEY, dataclasses.replace(CLEAN, read_again=[HOUR]), said(later)).passed


def test_quarantine_check_passes_and_reports_a_new_column() -> None:
    result = quarantine_result(ORDERS, KEY, dataclasses.replace(CLEAN, new_columns={"channel": ["orders/a.csv"]}))
    assert (result.passed, result.description) == (True, "new columns, ignored: channel")


NOW = datetime(2026, 10, 2, tzinfo=UTC)


def removals(loaded: Loaded, before: Mapping[str, object] = {}, now: datetime = NOW) -> dg.AssetCheckResult:
    return removals_result(ORDERS, KEY, loaded, before, now)


def said(result: dg.AssetCheckResult) -> dict[str, object]:
    """What a later load reads of a result."""
    return {name: value.value for name, value in result.metadata.items()}


def test_removals_check_reports_expired_files_and_fails_on_held_files() -> None:
    expired = dataclasses.replace(
        CLEAN, fates={HOUR: RemovedFiles(expired=frozenset(["a", "b"]))}, kept_from={HOUR: {"1"}}
    )
    told = removals(expired)
    assert (told.passed, told.description) == (True, "2 files expired; the table keeps their rows of code version 1")
    held = removals(HELD)
    assert (held.passed, held.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert (
        held.description == f"wrong bucket?; 1 files of 1 partitions vanished, but the table keeps their rows: {HOUR}"
    )
    assert removals(CLEAN).passed


HELD = dataclasses.replace(CLEAN, fates={HOUR: RemovedFiles(held=frozenset("a"))}, alarm="wrong bucket?")


def test_removals_check_fails_until_the_partition_with_held_files_is_resolved() -> None:
    held = said(removals(HELD))
    elsewhere = dataclasses.replace(CLEAN, content={OTHER: Content("v", 99)})
    still = removals(elsewhere, held)
    assert (still.passed, HOUR in (still.description or "")) == (False, True), "a load of another hour decides nothing"
    assert removals(CLEAN, said(still)).passed, "its files are back, or a person has accepted"
    years_later = datetime(2028, 10, 2, tzinfo=UTC)
    assert removals(elsewhere, held, years_later).passed, "it follows its files no longer"
