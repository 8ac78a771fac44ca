"""Pauses, skips and rebuilds: what the planner requests, what it leaves out, and what contracts say about it."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dagster_tidemark.planner.contract_status import standings
from dagster_tidemark.planner.contracts import FreshnessStatus, LagContract
from dagster_tidemark.planner.decisions import ContractStatus, State
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.overrides import Override, OverrideKind, Overrides, without
from tests.tidemark.planner.override_days import Play
from tests.tidemark.world import World, ordinal, same

H7, H8 = "2026-09-20-07:00", "2026-09-20-08:00"
CORE, MART = ("core/orders", H7), ("marts/hourly", H7)


def graph(**core: Any) -> Graph:
    nodes = (
        Node("raw/orders", partitioned=True, automated=False, source=True),
        Node("raw/prices", partitioned=True, automated=False, source=True),
        Node("core/orders", [Input("raw/orders", same, same)], ordinal, partitioned=True, asap=True, **core),
        Node(
            "marts/hourly",
            [Input("core/orders", same, same, joinable=True), Input("raw/prices", same, same, optional=True)],
            ordinal,
            partitioned=True,
            contract=LagContract(fail=3600.0, warn=None),
            asap=True,
        ),
        Node(
            "marts/margin",
            [Input("core/orders", same, same), Input("raw/prices", same, same)],
            ordinal,
            partitioned=True,
            asap=True,
        ),
    )
    return Graph({node.key: node for node in nodes})


@pytest.fixture
def world() -> World:
    return World(graph())


def override(world: World, kind: OverrideKind, *assets: str, **more: Any) -> Override:
    """Add an override by anna at the present time, as the commands do."""
    codes = {asset: world.graph.nodes[asset].code_version for asset in assets}
    number = len(world.history.overrides.records) + 1
    made = Override(f"o-{number}", kind, assets[0], assets, "anna", "migration", world.now, world.id)
    made = replace(made, codes=codes, **more)
    world.history.overrides = Overrides.of([*world.history.overrides.records, made])
    return made


def pause(world: World, *assets: str, **more: Any) -> Override:
    return override(world, OverrideKind.PAUSE, *assets, **more)


def skip(world: World, *assets: str, **more: Any) -> Override:
    return override(world, OverrideKind.SKIP, *assets, **more)


def rebuild(world: World, *assets: str, **more: Any) -> Override:
    return override(world, OverrideKind.REBUILD, *assets, **more)


def standing(world: World, asset: str) -> ContractStatus:
    return standings(world.graph, world.history, world.plan(), lambda _: {})[asset]


def test_paused_asset_is_not_requested_and_does_not_join_the_run_of_its_input(world: World) -> None:
    pause(world, "marts/hourly")
    world.arrive(H7, "v1")
    assert world.due() == {CORE}
    world.run_all()
    assert world.state(*MART) is State.PAUSED
    assert world.of(*MART).reason == "by anna until it is resumed: migration"


def test_what_was_missed_is_caught_up_after_the_end_of_a_pause_without_any_event(world: World) -> None:
    world.arrive(H7, "v1")
    pause(world, "core/orders", until=world.now + 100)
    assert world.due() == set()
    world.now += 99
    assert world.due() == set()
    world.now += 1
    assert world.due() == {CORE, MART}


def test_of_overlapping_pauses_the_last_to_end_wins(world: World) -> None:
    world.arrive(H7, "v1")
    pause(world, "core/orders", until=world.now + 100)
    pause(world, "core/orders", "marts/hourly", until=world.now + 200)
    world.now += 150
    assert world.state(*CORE) is State.PAUSED
    world.now += 50
    assert world.due() == {CORE, MART}


def test_pause_of_a_range_or_of_keys_concerns_only_these_partitions(world: World) -> None:
    pause(world, "core/orders", first=H8, last="2026-09-21-00:00")
    pause(world, "core/orders", keys=("2026-09-20-05:00",))
    for hour in ("05", "06", "07", "08", "23"):
        world.arrive(f"2026-09-20-{hour}:00", "v1")
    assert {partition for key, partition in world.due() if key == "core/orders"} == {"2026-09-20-06:00", H7}


def test_range_whose_end_is_no_longer_a_partition_pauses_everything_and_rebuilds_nothing() -> None:
    node = Node("core/orders", order=ordinal, problem=lambda p: "removed" if p == H8 else None, partitioned=True)
    made = Override("o-1", OverrideKind.PAUSE, "x", ("core/orders",), "anna", "", 0.0, first=H7, last=H8)
    assert made.covers(node, "2026-09-22-00:00") and made.covers(node, None)
    for kind in (OverrideKind.SKIP, OverrideKind.REBUILD):
        assert not replace(made, kind=kind).covers(node, H7)


def test_pause_overlaps_a_range_that_contains_one_of_its_partitions() -> None:
    node = Node("core/orders", order=ordinal, partitioned=True)
    whole = Override("o-1", OverrideKind.PAUSE, "x", ("core/orders",), "anna", "", 0.0)
    key, part = replace(whole, keys=("2026-09-20-05:00",)), replace(whole, first="2026-09-20-05:00", last=H7)
    for pause_, first, last, overlaps in (
        (whole, None, None, True),
        (key, "2026-09-20-01:00", H8, True),
        (key, H7, H8, False),
        (part, "2026-09-20-01:00", H8, True),
        (part, "2026-09-20-06:00", "2026-09-20-06:00", True),
        (part, H7, H8, True),
        (part, H8, "2026-09-20-09:00", False),
    ):
        assert pause_.overlaps(node, first, last) is overlaps, (pause_.partitions, first, last)
    shops = Node("core/shops", order=lambda p: tuple(map(ordinal_of, str(p).split("|"))), partitioned=True)
    one = replace(whole, keys=("2|b",))
    assert one.overlaps(shops, "1|b", "3|b") and not one.overlaps(shops, "1|a", "3|a")


def ordinal_of(part: str) -> int:
    return ord(part)


def test_assets_of_one_operation_are_paused_together() -> None:
    both = frozenset({"core/a", "core/b"})
    nodes = [
        Node("raw/x", automated=False),
        *(Node(k, [Input("raw/x", same, same)], asap=True, together=both) for k in sorted(both)),
    ]
    world = World(Graph({node.key: node for node in nodes}))
    pause(world, "core/b")
    world.arrive(None, "v1", key="raw/x")
    assert world.due() == set() and world.state("core/a", None) is State.PAUSED


def test_run_by_a_person_builds_a_paused_partition(world: World) -> None:
    pause(world, "core/orders")
    world.arrive(H7, "v1")
    world.made("core/orders", H7)
    assert world.state(*CORE) is None


def test_pause_of_an_asset_that_no_longer_exists_changes_nothing(world: World) -> None:
    world.arrive(H7, "v1")
    made = pause(world, "core/orders")
    world.history.overrides = Overrides.of([replace(made, assets=("core/former",))])
    assert world.due() == {CORE, MART}


def test_contract_below_a_pause_names_the_person_the_end_and_the_reason(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    world.arrive(H7, "v2")
    pause(world, "core/orders", until=world.now + 7200)
    told = "by anna until 2026-09-21 16:13:20 UTC: migration"
    found = standing(world, "marts/hourly")
    assert told in found.reason and found.verdict is not FreshnessStatus.BREACHED
    world.now += 3700
    found = standing(world, "marts/hourly")
    assert found.verdict is FreshnessStatus.BREACHED and f"paused {told}" in found.reason


def test_contract_of_a_paused_asset_is_at_risk_if_the_pause_ends_after_the_promise(world: World) -> None:
    world.arrive(H7, "v1")
    world.made("core/orders", H7)
    made = pause(world, "marts/hourly", until=world.now + 60)
    assert standing(world, "marts/hourly").verdict is FreshnessStatus.MET
    world.history.overrides = Overrides.of([replace(made, until=world.now + 7200)])
    assert standing(world, "marts/hourly").verdict is FreshnessStatus.AT_RISK


def test_met_contract_below_a_pause_names_it_although_no_data_is_pending(world: World) -> None:
    pause(world, "core/orders")
    found = standing(world, "marts/hourly")
    assert found.verdict is FreshnessStatus.MET
    assert "core/orders is paused by anna until it is resumed: migration" in found.reason
    assert found.overridden == ("core/orders is paused by anna until it is resumed: migration",)


def test_data_of_other_inputs_is_built_at_the_latest_start_although_an_input_is_paused(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    pause(world, "core/orders")
    world.arrive(H7, "v2")
    world.arrive(H7, "p1", key="raw/prices")
    assert MART not in world.due()
    world.now += 3590
    assert MART in world.due() and CORE not in world.due()


def test_reader_is_never_built_in_the_run_of_one_input_while_the_first_build_of_another_is_paused() -> None:
    one, two = (Node(f"core/{n}", [Input(f"raw/{n}", same, same)], asap=True) for n in (1, 2))
    both = Node("marts/both", [Input(f"core/{n}", same, same, joinable=True) for n in (1, 2)], asap=True)
    sources = (Node(f"raw/{n}", automated=False, source=True) for n in (1, 2))
    world = World(Graph({node.key: node for node in (*sources, one, two, both)}))
    pause(world, "core/1")
    for source in ("raw/1", "raw/2"):
        world.arrive(None, "v1", key=source)
    world.now += 10
    assert world.due() == {("core/2", None)}
    assert world.state("marts/both", None) is State.WAITING


def test_skip_leaves_out_what_is_pending_and_only_later_changes_are_built(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    world.arrive(H7, "v2")
    made = skip(world, "core/orders")
    assert world.due() == set() and world.plan().left == {made.id: 1}
    assert world.plan().skipped == {"core/orders": {H7: made}} and made.told() == "by anna: migration"
    world.now += 10
    world.arrive(H7, "v3")
    assert world.due() == {CORE, MART}
    assert world.of(*CORE).oldest_arrival == world.now, "what was skipped does not count as late"
    world.run_all()
    assert world.plan().skipped == {} and world.plan().left == {}


def test_reader_of_a_skipped_partition_that_was_never_built_waits_for_nothing(world: World) -> None:
    world.arrive(H7, "v1")
    skip(world, "core/orders")
    world.arrive(H7, "p1", key="raw/prices")
    assert world.due() == set() and world.state("marts/margin", H7) is None
    assert "1 partition skipped by anna: migration" in standing(world, "marts/hourly").reason
    world.arrive(H7, "v2")
    world.run_all()
    assert {("marts/margin", H7), MART, CORE} <= world.history.facts.builds().keys()


def test_arrival_of_a_first_build_after_a_skip_is_the_later_one(world: World) -> None:
    world.arrive(H7, "v1")
    skip(world, "core/orders")
    world.now += 5000
    world.arrive(H7, "v2")
    world.made("core/orders", H7)
    assert world.of(*MART).oldest_arrival == world.now


def test_skip_leaves_out_a_rebuild_by_new_code_but_not_the_next_code() -> None:
    world = World(graph(code_version="1"))
    world.arrive(H7, "v1")
    world.run_all()
    world.deploy(graph(code_version="2"))
    assert CORE in world.due()
    skip(world, "core/orders")
    assert world.due() == set()
    world.deploy(graph(code_version="3"))
    assert CORE in world.due()


def test_skip_of_a_range_leaves_the_other_partitions_pending(world: World) -> None:
    world.arrive(H7, "v1")
    world.arrive(H8, "v1")
    skip(world, "core/orders", first=H7, last=H7)
    assert {partition for key, partition in world.due() if key == "core/orders"} == {H8}


def test_end_of_a_skip_makes_what_it_left_out_pending_again(world: World) -> None:
    world.arrive(H7, "v1")
    made = skip(world, "core/orders")
    assert world.due() == set()
    records = without(world.history.overrides.records, [made.id], at=world.now, by="ben")
    world.history.overrides = Overrides.of(records)
    assert world.due() == {CORE, MART}


def ended(world: World, made: Override) -> None:
    records = without(world.history.overrides.records, [made.id], at=world.now, by="ben")
    world.history.overrides = Overrides.of(records)


def test_end_of_a_second_skip_leaves_out_what_the_first_left_out(world: World) -> None:
    world.arrive(H7, "v1")
    first = skip(world, "core/orders")
    world.arrive(H8, "v1")
    second = skip(world, "core/orders")
    assert world.due() == set()
    ended(world, second)
    assert world.due() == {("core/orders", H8), ("marts/hourly", H8)}
    ended(world, first)
    assert {CORE, MART} < world.due()


def test_rebuild_is_not_complete_while_a_later_skip_or_rebuild_covers_what_it_has_not_built(world: World) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    world.run_all()
    world.arrive("2026-09-20-09:00", "v1")
    skip(world, "core/orders", first="2026-09-20-09:00", last="2026-09-20-09:00")
    made = rebuild(world, "core/orders")
    assert world.plan().left[made.id] == 3
    world.made("core/orders", H7)
    held = [skip(world, "core/orders"), rebuild(world, "core/orders", first=H8, last=H8), skip(world, "core/orders")]
    assert not [target for target in world.due() if target[0] == "core/orders"]
    assert world.plan().left[made.id] == 2, "one was built before, the other was skipped and never built"
    assert world.plan().left[held[1].id] == 1
    for each in reversed(held):
        ended(world, each)
    assert {p for key, p in world.due() if key == "core/orders"} == {H8, "2026-09-20-09:00"}
    world.run_all()
    assert world.plan().left == {}


def test_rebuild_is_complete_although_a_later_skip_covers_what_it_has_built(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    made = rebuild(world, "core/orders")
    world.made("core/orders", H7)
    skip(world, "core/orders")
    assert made.id not in world.plan().left


def test_rebuild_builds_up_to_date_partitions_once_inputs_first_and_readers_after_them(world: World) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    world.run_all()
    runs: Counter[Any] = Counter()
    made = rebuild(world, "core/orders", "marts/hourly")
    order = []
    for n in range(9):
        for request in world.plan().requests:
            assert request.rebuild
            order += request.targets
            runs.update(request.targets)
            world.start(f"again {n}", *request.targets)
            for target in request.targets:
                world.build(f"again {n}", target, "same")
            world.end(f"again {n}")
    assert runs == dict.fromkeys([CORE, MART, ("core/orders", H8), ("marts/hourly", H8)], 1)
    assert order.index(CORE) < order.index(MART) and made.id not in world.plan().left


def test_rebuild_never_builds_what_was_never_built_and_later_skip_ends_it(world: World) -> None:
    rebuild(world, "core/orders")
    assert world.due() == set()
    world.arrive(H7, "v1")
    world.run_all()
    rebuild(world, "core/orders")
    assert CORE in world.due()
    skip(world, "core/orders")
    assert world.due() == set()


def test_rebuild_builds_what_was_skipped_before(world: World) -> None:
    world.arrive(H7, "v1")
    skip(world, "core/orders")
    rebuild(world, "core/orders")
    assert world.due() == {CORE, MART}


def test_rebuild_is_not_complete_before_all_partitions_are_built_that_were_skipped_and_never_built(
    world: World,
) -> None:
    for hour in (H7, H8):
        world.arrive(hour, "v1")
    skip(world, "core/orders")
    made = rebuild(world, "core/orders")
    assert world.plan().left == {made.id: 2}
    world.made("core/orders", H7)
    assert world.plan().left == {made.id: 1} and ("core/orders", H8) in world.due()
    world.run_all()
    assert world.plan().left == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_rebuild_is_not_complete_while_a_mapping_raises(restarted: bool) -> None:
    broken: list[str] = []

    def mapped(partition: str | None) -> list[str | None]:
        if broken:
            raise ValueError("no such region")
        return [partition]

    nodes = (
        Node("raw/orders", partitioned=True, automated=False, source=True),
        Node("core/orders", [Input("raw/orders", mapped, same)], ordinal, partitioned=True, asap=True),
    )
    world = World(Graph({node.key: node for node in nodes}))
    world.arrive(H7, "v1")
    world.run_all()
    broken.append("broken")
    made = rebuild(world, "core/orders")
    if restarted:
        world.deploy(world.graph)
    assert world.plan().left == {made.id: 1} and world.due() == set()
    broken.clear()
    world.now += 61
    assert world.due() == {CORE}


def test_paused_rebuild_waits_for_the_end_of_the_pause(world: World) -> None:
    world.arrive(H7, "v1")
    world.run_all()
    rebuild(world, "core/orders")
    pause(world, "core/orders", until=world.now + 50)
    assert world.due() == set()
    world.now += 50
    assert CORE in world.due()


def test_overrides_survive_a_history_that_is_read_again(world: World) -> None:
    pause(world, "core/orders")
    world.history.clear()
    world.arrive(H7, "v1")
    assert world.due() == set()


def test_random_graphs_under_random_overrides_keep_every_promise() -> None:
    done: Counter[str] = Counter()
    for seed in range(200):
        play = Play(seed)
        try:
            play.play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        done.update(play.counts)
    assert all(done[kind] > 100 for kind in ("pause", "resume", "skip", "rebuild", "end")), done
    assert done["complete"] > 50, done
