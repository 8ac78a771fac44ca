"""A first load of very many partitions: what one look decides on is bounded, and no verdict changes."""

from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.planner.contract_status import standings
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import Asked, State
from dagster_tidemark.planner.evaluate import Bound
from dagster_tidemark.planner.graph import Graph
from tests.tidemark.toy_graph import HOURS, START, asset, lag, source
from tests.tidemark.world import World

KEYS = [f"2026-10-0{day}-{hour:02}:00" for day in (1, 2, 3, 4) for hour in range(24)]
SMALL = Bound(many=10, most=4, longest=8, range=20)


def world(policy: dg.BackfillPolicy | None = None, **table: Any) -> World:
    """Four days of hours, all of which have arrived; a table and its reader have none of them."""
    more = {"backfill_policy": policy or dg.BackfillPolicy.single_run()}
    tables = [
        source("x", HOURS),
        asset("core", "raw/x", by=HOURS, **more, **table),
        asset("mart", "core", by=HOURS, freshness_policy=lag(hours=2), **more),
    ]
    graph = graph_of(dg.Definitions(tables).resolve_asset_graph())
    graph.moment.moves_to(START.timestamp())
    found = World(graph, now=START.timestamp())
    found.planner.bound = SMALL
    for key in KEYS:
        found.arrive(key, "1", key="raw/x")
    return found


def test_planner_decides_the_newest_partitions_and_counts_the_deferred_ones() -> None:
    plan = world().plan()
    assert len(plan.decisions) + sum(plan.deferred.values()) == 2 * len(KEYS)
    assert len(plan.decisions) < len(KEYS) and plan.deferred["core"] > 50
    (request,) = plan.requests
    assert request.assets == ("core", "mart"), "a range is longer than what was decided on at first"
    assert request.partitions == tuple(KEYS[-len(request.partitions) :]) and len(request.partitions) > SMALL.most


def test_all_deferred_partitions_are_built_eventually_also_one_per_run() -> None:
    for policy in (None, dg.BackfillPolicy.multi_run(1)):
        found = world(policy)
        found.run_all(limit=60)
        assert {p for key, p in found.history.facts.builds() if key == "mart"} == set(KEYS)
        assert not found.plan().decisions and not found.plan().deferred


def test_oldest_partition_is_breached_though_newer_partitions_are_requested_first() -> None:
    found = world()
    found.now += 3 * 3600
    found.graph.moment.moves_to(found.now)
    plan = found.plan()
    judged = standings(found.graph, found.history, plan, lambda _: {})["mart"]
    assert judged.verdict is FreshnessStatus.BREACHED
    throttled = plan.decisions[("core", KEYS[0])]
    assert throttled.state is State.THROTTLED and "older ones are pending" in throttled.reason


def test_failing_newer_partitions_do_not_block_older_partitions() -> None:
    found = world(dg.BackfillPolicy.multi_run(1))
    for key in KEYS[-30:]:
        found.fail("core", key)
        found.fail("core", key)
    requested = {partition for _, partition in found.due()}
    assert requested and requested.isdisjoint(KEYS[-30:])


def test_reader_waits_for_an_input_partition_without_a_decision() -> None:
    found = world()
    for key in KEYS[:-60]:
        found.made("core", key)
    old = KEYS[0]
    found.arrive(old, "2", key="raw/x")
    plan = found.planner.plan(found.now, Asked())
    assert ("core", old) not in plan.decisions or plan.decisions[("core", old)].state is not State.REQUESTED
    assert ("mart", old) not in {target for request in plan.requests for target in request.targets}


def test_rebuild_is_requested_behind_many_partitions_without_a_contract() -> None:
    def nodes(code: str) -> Graph:
        tables = [source("x", HOURS), asset("core", "raw/x", by=HOURS, code_version=code)]
        graph = graph_of(dg.Definitions(tables).resolve_asset_graph())
        graph.moment.moves_to(START.timestamp())
        return graph

    found = World(nodes("1"), now=START.timestamp())
    for key in KEYS:
        found.arrive(key, "1", key="raw/x")
    found.made("core", KEYS[3])
    found.deploy(nodes("2"))
    found.planner.bound = SMALL
    plan = found.plan()
    assert len(plan.decisions) < 20 and plan.deferred["core"] > 80
    assert [request.partitions for request in plan.requests] == [(KEYS[3],)]
