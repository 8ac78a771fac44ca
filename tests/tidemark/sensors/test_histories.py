"""Whatever is sent, lost, doubled or reordered, and wherever a process dies: the table is that of a full load."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_tidemark.sensors import change_detection, landing
from dagster_tidemark.sources.listing import BucketUnavailable, ObjectUnavailable
from tests.tidemark.sensors.histories import HOURS, NAMES, Crash, World, copies

IN_A_TICK = ("after_receive", "after_listing", "after_observation", "before_delete", "after_delete")
IN_A_RUN = ("between_quarantine_and_table", "before_commit", "after_commit", "before_recorded")
BODIES = st.dictionaries(st.sampled_from("kl"), st.sampled_from(["1", "2", "bad"]), max_size=2)
AT = (st.sampled_from(HOURS), st.sampled_from(NAMES))


def events(told: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[Any, ...]]:
    """What can happen, and how often the queue is told of it."""
    return st.one_of(
        st.tuples(st.just("put"), *AT, BODIES, told),
        st.tuples(st.just("put"), *AT, BODIES, told),
        st.tuples(st.just("delete"), *AT, told),
        st.tuples(st.just("shuffle")),
        # The clock goes back too; a day lets what is spread over days count alone.
        st.tuples(st.just("wait"), st.sampled_from([0, 0.4, 1, 30, -1, -600, 90_000])),
        st.tuples(st.just("rename"), *AT, told),
        st.tuples(st.just("archive"), *AT),
        st.tuples(st.just("outage"), st.integers(1, 4)),
        st.tuples(st.just("tick"), st.sampled_from([None, *IN_A_TICK])),
        st.tuples(st.just("run"), st.sampled_from([None, *IN_A_RUN])),
        st.tuples(st.just("reconcile"), st.sampled_from([None, "after_observation"])),
    )


HISTORIES = st.one_of(
    st.lists(events(st.sampled_from([1, 1, 2])), max_size=25),  # nothing but the notifications may be needed
    st.lists(events(st.sampled_from([0, 1, 2])), max_size=25),
)


ARCHIVED = [
    ("put", HOURS[0], NAMES[0], {"k": "1"}, 1),
    ("put", HOURS[0], NAMES[1], {"l": "1"}, 1),
    ("tick", None),
    ("run", None),
    ("archive", HOURS[0], NAMES[0]),
    ("put", HOURS[0], NAMES[1], {"l": "2"}, 1),
    ("tick", None),
    ("run", None),
]
"""A file beside an archived one is written again."""


def play(history: list[tuple[Any, ...]]) -> World:
    world = World()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(landing, "reached", world.reached)
        patched.setattr(change_detection, "reached", world.reached)
        for name, *arguments in history:
            if name in ("tick", "run", "reconcile"):
                world.crash_at, arguments = arguments[0], []
            with contextlib.suppress(Crash, BucketUnavailable, ObjectUnavailable):
                getattr(world, name)(*arguments)
            world.crash_at = None
        world.settle()
    return world


def judge(history: list[tuple[Any, ...]]) -> None:
    world = play(history)
    assert world.table.said() == world.full_load().said()


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(HISTORIES)
def test_table_after_any_event_history_equals_a_full_load(history: list[tuple[Any, ...]]) -> None:
    judge(history)


def test_rows_of_an_archived_file_stay_in_the_table() -> None:
    judge(ARCHIVED)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.just("put"), *AT, BODIES, st.just(1)), max_size=15), st.randoms(use_true_random=False))
def test_duplicated_and_reordered_messages_result_in_the_same_table(history: list[Any], order: Any) -> None:
    once, thrice = World(), World()
    for world in (once, thrice):
        for _, *arguments in history:
            world.put(*arguments)
            world.bucket.now = world.bucket.now.replace(microsecond=world.bucket.now.microsecond + 1)
    thrice.queue.waiting = copies(thrice.queue.waiting, 3)
    order.shuffle(thrice.queue.waiting)
    once.settle(), thrice.settle()
    assert thrice.table == once.table
