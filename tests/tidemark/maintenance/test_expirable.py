"""Snapshots that a reader may need never expire; all others do."""

import pytest

from dagster_tidemark.lakehouse.maintenance.expirable import (
    Pins,
    SnapshotFacts,
    TableHistory,
    expirable,
    held_bytes,
    unwritten_preview,
)
from tests.sampling import sample
from tests.tidemark.maintenance.histories import RandomHistory


@pytest.mark.parametrize("seed", sample(range(200), *range(10)))
def test_exactly_the_snapshots_without_any_reason_expire(seed: int) -> None:
    made = RandomHistory(seed)
    since = made.random.randrange(made.now + 2)
    pins = {id for id in made.parent if made.random.random() < 0.03}
    gone = expirable(made.as_read(), Pins(since, frozenset(pins)))
    assert set(gone) == made.parent.keys() - made.must_stay(since, pins)
    assert gone == sorted(gone, key=made.at.__getitem__)


def chain(count: int) -> list[SnapshotFacts]:
    return [SnapshotFacts(n, n - 1 if n else None, n * 1000) for n in range(count)]


def log(*entries: tuple[int, int]) -> list[tuple[int, int]]:
    return [(second * 1000, id) for second, id in entries]


def test_snapshot_current_until_a_rollback_a_minute_ago_stays() -> None:
    """Snapshot 3 is old and no longer an ancestor, but a run that started two minutes ago may read it."""
    rolled_back = TableHistory(chain(4), log((0, 0), (1, 1), (2, 2), (3, 3), (10_000, 1)), head=1)
    assert expirable(rolled_back, Pins(since=9_940_000)) == [0, 2]
    assert expirable(rolled_back, Pins(since=10_000_001)) == [0, 2, 3]


def test_staged_snapshots_branches_and_tags_stay_at_any_age() -> None:
    snapshots = [*chain(4), SnapshotFacts(20, 0, 500, is_staged=True), SnapshotFacts(30, 0, 600)]
    made = TableHistory(snapshots, log((0, 0), (1, 1), (2, 2), (3, 3)), 3, {"audit": 30}, [2])
    assert expirable(made, Pins(since=1_000_000)) == [1], "0 is where the branch began"


def test_preview_holds_everything_since_its_beginning() -> None:
    snapshots = [*chain(5), SnapshotFacts(30, 2, 2500)]
    made = TableHistory(snapshots, log(*((n, n) for n in range(5))), 4, {"preview_a": 30})
    assert expirable(made, Pins(since=1_000_000)) == [0, 1]


def test_snapshot_without_an_entry_in_the_log_was_current_until_the_next_known_time() -> None:
    cut = TableHistory(chain(4), log((3, 3)), head=3)
    assert expirable(cut, Pins(since=2_500)) == [0, 1]


def test_held_bytes_are_those_that_the_children_removed() -> None:
    snapshots = [SnapshotFacts(0, None, 0), SnapshotFacts(1, 0, 1, removed_bytes=7), SnapshotFacts(2, 1, 2)]
    made = TableHistory(snapshots, [], 2)
    assert held_bytes(made, [0]) == 7 and held_bytes(made, [1]) == 0


def test_empty_table_has_nothing_to_expire() -> None:
    assert expirable(TableHistory([], [], None), Pins(since=0)) == []


def test_branch_of_a_preview_is_unwritten_until_its_head_leaves_the_table() -> None:
    snapshots, entries = [*chain(4), SnapshotFacts(30, 3, 9000)], log((0, 0), (1, 1), (2, 2), (3, 3))
    assert unwritten_preview(TableHistory(snapshots, entries, 3, {"preview_1": 3})) == "preview_1"
    assert unwritten_preview(TableHistory(snapshots, entries, 3, {"preview_1": 1})) == "preview_1"
    assert unwritten_preview(TableHistory(snapshots, entries, 3, {"preview_1": 30, "audit": 3})) == ""
