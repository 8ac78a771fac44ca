"""Which alert stands for which episode, case by case; `test_alert_histories` tries all of them together."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from dagster_tidemark.streams.alerts.identity import Alert, AlertChanges, Episode, new_id, reconcile

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Spans = Sequence[tuple[int, int]]


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def alert(name: str, minute: int, raised_in: int = 1) -> Alert:
    return Alert(name, at(minute), NOON, raised_in, {"place": name})


def change(standing: Sequence[Alert], before: Spans, after: Spans) -> AlertChanges:
    known, now = ([Episode(at(first), at(last)) for first, last in spans] for spans in (before, after))
    return reconcile("strong", "a", standing, before=known, after=now)


def stands(standing: Sequence[Alert], before: Spans, after: Spans) -> list[tuple[str, int]]:
    """Id (a new one is `new`) and minute of each alert that stands afterwards."""
    left = change(standing, before, after).applied(standing)
    known = {each.alert_id for each in standing}
    minutes = [(a.alert_id if a.alert_id in known else "new", round((a.started_at - NOON).seconds / 60)) for a in left]
    return sorted(minutes, key=lambda each: each[1])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([(10, 20)], [(10, 20)], [("x", 10)]),
        ([(10, 20)], [(10, 50)], [("x", 10)]),
        ([(10, 20)], [(5, 30)], [("x", 5)]),  # late data moves the start
        ([(10, 20)], [(15, 30)], [("x", 15)]),  # a correction moves it
        ([(10, 20)], [(20, 30)], [("x", 20)]),  # they share a moment
        ([(10, 20)], [(21, 31)], [("new", 21)]),
        ([(10, 20)], [], []),
        ([(10, 40)], [(10, 20), (25, 40)], [("x", 10), ("new", 25)]),  # a split: the first has it
        ([(10, 40)], [(12, 20), (25, 40)], [("x", 12), ("new", 25)]),
        ([], [(5, 30)], [("x", 5)]),  # of an alert without an episode the moment counts in which it started
        ([], [(11, 30)], [("new", 11)]),
        ([(8, 40)], [(11, 30)], [("new", 11)]),
    ],
)
def test_alert_is_matched_to_the_episode_that_overlaps_its_own(
    before: Spans, after: Spans, expected: list[tuple[str, int]]
) -> None:
    assert stands([alert("x", 10)], before, after) == expected


@pytest.mark.parametrize(
    ("first", "second", "stays"),
    [
        (alert("x", 10, 1), alert("y", 30, 2), "x"),
        (alert("x", 10, 2), alert("y", 30, 1), "y"),
        (alert("x", 10, 1), alert("y", 30, 1), "x"),  # raised together: the earlier episode's
        (alert("y", 10, 1), alert("x", 10, 1), "x"),  # which cannot be; the same one each time all the same
    ],
)
def test_earliest_raised_alert_is_kept_when_episodes_merge(first: Alert, second: Alert, stays: str) -> None:
    for standing in ([first, second], [second, first]):
        changes = change(standing, [(10, 20), (30, 40)], [(10, 40)])
        assert [a.alert_id for a in changes.applied(standing)] == [stays]
        assert len(changes.retracted) == 1 and not changes.raised


def test_one_of_two_alerts_within_one_episode_is_kept() -> None:
    assert stands([alert("x", 10, 2), alert("y", 15, 1)], [(10, 40)], [(10, 40)]) == [("y", 10)]


def test_alert_not_needed_by_an_earlier_episode_is_kept_for_a_later() -> None:
    standing = [alert("x", 10, 1), alert("y", 30, 2)]
    assert stands(standing, [(10, 25), (30, 60)], [(10, 15), (20, 60)]) == [("x", 10), ("y", 20)]
    # The first of two episodes has what was raised first; what is left overlaps nothing else.
    assert stands(standing, [(10, 25), (30, 60)], [(5, 30), (40, 60)]) == [("x", 5), ("y", 40)]


def test_repeated_alert_evaluation_changes_nothing() -> None:
    standing = [alert("x", 10), alert("y", 30)]
    for after in ([(5, 35)], [(10, 20), (30, 40), (50, 60)], []):
        changed = change(standing, [(10, 20), (30, 40)], after).applied(standing)
        assert not change(changed, after, after)


def test_moved_alert_has_the_new_start_and_its_original_facts() -> None:
    (moved,) = change([alert("x", 10)], [(10, 20)], [(5, 20)]).moved
    assert (moved.started_at, moved.raised_in, moved.facts) == (at(5), 1, {"place": "x"})


def test_alert_id_depends_only_on_rule_key_start_and_repetition() -> None:
    (first,), (second,) = (change([], [], [(10, 20)]).raised for _ in range(2))
    assert first.alert_id == second.alert_id == new_id("strong", "a", at(10))
    others = [new_id("weak", "a", at(10)), new_id("strong", "b", at(10)), new_id("strong", "a", at(11))]
    again = new_id("strong", "a", at(10), 1)
    assert len({first.alert_id, again, *others}) == 5
