"""The garbage collector has nothing to do in a look, and does not walk a long history."""

import gc

import dagster as dg
import pytest

from dagster_tidemark import garbage_collector
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.evaluate import EvaluationPass
from tests.tidemark.event_log.test_intake import H7, H8, RAW, follower, instance, look, observe
from tests.tidemark.planner.test_bound import world

__all__ = ["follower", "instance"]


def test_finished_planning_pass_is_freed_without_the_garbage_collector() -> None:
    made = world()
    gc.collect()
    with garbage_collector.paused():
        assert not gc.isenabled()
        assert made.plan().decisions
        assert not [one for one in gc.get_objects() if isinstance(one, EvaluationPass)]
    assert gc.isenabled()


def test_garbage_collector_is_enabled_again_after_a_failed_planning_pass() -> None:
    with pytest.raises(ValueError, match="a mapping"), garbage_collector.paused():
        raise ValueError("a mapping")
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("partitions", "before", "now"), [(49_999, 0, 0), (50_000, 0, 50_000), (160_000, 120_000, 120_000)]
)
def test_history_that_has_grown_is_frozen_for_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, partitions: int, before: int, now: int
) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    assert garbage_collector.frozen(partitions, before) == now
    assert bool(frozen) == (now != before)


def test_garbage_collector_is_unfrozen_after_an_engine_is_dropped() -> None:
    gc.freeze()
    garbage_collector.thaw()
    assert gc.get_freeze_count() == 0


def test_all_events_of_an_asset_share_one_key_string(instance: dg.DagsterInstance, follower: LogConsumer) -> None:
    for partition in (H7, H8):
        observe(instance, partition, version="1")
    look(follower, instance)
    assert len({id(asset) for asset, _ in follower.history.facts}) == 1
    assert all(asset is follower.history.graph.nodes[RAW].key for asset, _ in follower.history.facts)
