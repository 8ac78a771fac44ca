"""What the disappearance of files means, as plain data."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from dagster_tidemark.sources.feed import Feed, OnRemoval, Partition
from dagster_tidemark.sources.removals import RemovedFiles, alarm, decide, follows
from tests.toys.feeds import CUSTOMERS, ORDERS

NOON = datetime(2026, 10, 2, 12, tzinfo=UTC)
HOURS: list[Partition] = [f"2026-10-{1 + n // 24:02}-{n % 24:02}:00" for n in range(100)]
HOUR = "2026-10-01-07:00"
TWO_DAYS = dataclasses.replace(ORDERS, follow_for=timedelta(days=2))
KEEP = dataclasses.replace(ORDERS, removals=OnRemoval.KEEP)


@pytest.mark.parametrize(
    ("feed", "partition", "now", "expected"),
    [
        (TWO_DAYS, HOUR, datetime(2026, 10, 3, 8, tzinfo=UTC), True),  # the window ends at eight
        (TWO_DAYS, HOUR, datetime(2026, 10, 3, 8, 0, 1, tzinfo=UTC), False),
        (TWO_DAYS, HOUR, datetime(2026, 10, 1, 7, 30, tzinfo=UTC), True),  # not even ended
        (KEEP, HOUR, datetime(2026, 10, 1, 7, 30, tzinfo=UTC), False),
        (CUSTOMERS, None, datetime(2030, 1, 1, tzinfo=UTC), True),  # a window that never ends
    ],
)
def test_partition_follows_removals_for_the_declared_time_after_its_window(
    feed: Feed, partition: Partition, now: datetime, expected: bool
) -> None:
    assert follows(feed, partition, now) is expected


def said(feed: Feed, holding: list[Partition], vanished: list[Partition], ago: timedelta = timedelta()) -> str | None:
    return alarm(feed, holding=holding, vanished=dict.fromkeys(vanished, NOON - ago), now=NOON)


@pytest.mark.parametrize(
    ("holding", "vanished", "alarmed"),
    [
        (50, 0, False),
        (50, 1, False),
        (1, 9, False),  # fewer than ten
        (40, 10, True),  # ten of fifty are 20 %
        (41, 10, False),
        (2, 10, True),
        (0, 1, True),  # a whole feed, be it small
        (0, 10, True),
        (0, 0, False),
    ],
)
def test_removal_alarm_is_raised_for_a_whole_feed_or_many_partitions(
    holding: int, vanished: int, alarmed: bool
) -> None:
    assert bool(said(ORDERS, HOURS[:holding], HOURS[holding : holding + vanished])) is alarmed


def test_removal_alarm_lists_missing_partitions_and_the_remedy() -> None:
    some, all_of_it = said(ORDERS, HOURS[:20], HOURS[20:40]), said(ORDERS, [], HOURS[:3])
    assert some and all_of_it
    assert "20 of 40 partitions below orders/ vanished within 24 hours: wrong bucket?" in some
    assert "no file is left below orders/, which had 3 partitions: wrong bucket?" in all_of_it
    assert all("tidemark reconcile --accept-removals" in words for words in (some, all_of_it))


def test_removal_alarm_ignores_old_and_expired_partitions() -> None:
    assert said(ORDERS, HOURS[:20], HOURS[20:40], ago=timedelta(hours=24))
    assert not said(ORDERS, HOURS[:20], HOURS[20:40], ago=timedelta(hours=24, seconds=1))
    assert not said(KEEP, [], HOURS[:40])
    old = dataclasses.replace(ORDERS, follow_for=timedelta(0))
    assert not said(old, HOURS[36:], HOURS[:36]), "all their windows have ended"


def test_removal_share_ignores_partitions_that_no_longer_follow_removals() -> None:
    feed = dataclasses.replace(ORDERS, follow_for=timedelta(hours=24))
    ended = [f"2026-08-{d:02}-{h:02}:00" for d in range(1, 31) for h in range(24)]
    assert said(feed, [*ended, *HOURS[20:36]], HOURS[12:24])


def test_missing_file_is_removed_held_or_expired() -> None:
    known = {HOUR: ["a", "b"], "2026-10-01-08:00": ["c"], "2026-10-01-09:00": ["d"]}
    listed = {HOUR: ["a", "new"], "2026-10-01-09:00": ["d"]}
    gone = decide(ORDERS, known, listed, now=NOON, alarmed=None)
    assert gone == {HOUR: RemovedFiles(gone=frozenset("b")), "2026-10-01-08:00": RemovedFiles(gone=frozenset("c"))}
    held = decide(ORDERS, known, listed, now=NOON, alarmed="wrong bucket?")
    assert held == {HOUR: RemovedFiles(gone=frozenset("b")), "2026-10-01-08:00": RemovedFiles(held=frozenset("c"))}
    accepted = decide(ORDERS, known, listed, now=NOON, alarmed="wrong bucket?", accepted=["2026-10-01-08:00"])
    assert accepted == gone
    for feed in (KEEP, dataclasses.replace(ORDERS, follow_for=timedelta(hours=1))):
        kept = decide(feed, known, listed, now=NOON, alarmed="wrong bucket?", accepted=[HOUR, "2026-10-01-08:00"])
        assert kept == {
            HOUR: RemovedFiles(expired=frozenset("b")),
            "2026-10-01-08:00": RemovedFiles(expired=frozenset("c")),
        }


def test_removal_of_the_only_unpartitioned_file_is_held() -> None:
    words = said(CUSTOMERS, [], [None])
    fates = decide(CUSTOMERS, {None: [CUSTOMERS.prefix]}, {}, now=NOON, alarmed=words)
    assert fates == {None: RemovedFiles(held=frozenset([CUSTOMERS.prefix]))}


@pytest.mark.parametrize("wrong", [{"quarantine_share": 1.5}, {"follow_for": timedelta(days=-1)}])
def test_feed_with_an_invalid_removal_or_quarantine_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="feed orders"):
        dataclasses.replace(ORDERS, **wrong)  # type: ignore[arg-type]


def test_first_and_last_possible_hours_raise_no_error() -> None:
    now = datetime(2026, 10, 1, tzinfo=UTC)
    assert [follows(ORDERS, hour, now) for hour in ("9999-12-31-23:00", "9999-10-01-00:00")] == [True, True]
    assert not follows(ORDERS, "0001-01-01-00:00", now)
