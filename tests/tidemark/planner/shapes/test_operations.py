"""Operations of several assets, runs that follow an asset's own policy, checks, conditions, and data from outside."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.engine.condition import derived
from dagster_tidemark.planner.contracts import LagContract
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.simulation.simulator import RunFate
from tests.tidemark.planner.shapes.playing import REGIONS, built, healthy, keeps_the_pair, play
from tests.tidemark.toy_graph import ASAP, DAYS, asset, lag, source
from tests.tidemark.world import World

DAY = "2026-10-05"
BASE, THEIRS = dg.AssetKey(["theirs", "base"]), dg.AssetKey(["theirs", "x"])
LATE_DAYS = [f"2026-10-0{n}" for n in range(1, 6)]


def both(*, can_subset: bool) -> Any:
    @dg.multi_asset(
        specs=[
            dg.AssetSpec(
                f"part{n}",
                deps=[dg.AssetKey(["core", "x"])],
                automation_condition=derived(),
                freshness_policy=lag(minutes=30 * n),
            )
            for n in (1, 2)
        ],
        partitions_def=DAYS,
        can_subset=can_subset,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def parts():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    return parts


@pytest.mark.parametrize("can_subset", [True, False])
def test_multi_asset_runs_whole_or_in_part_as_its_definition_allows(can_subset: bool) -> None:
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), both(can_subset=can_subset), *healthy()]
    )
    for day in LATE_DAYS[:-1]:
        simulation.arrive("raw/x", day, at=simulation.time(minutes=1))
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=2))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=4)
    for day in LATE_DAYS:
        assert simulation.tables.fresh(("part1", day)) and simulation.tables.fresh(("part2", day)), day
    if not can_subset:
        assert all({"part1", "part2"} <= set(run.assets) for run in simulation.runs_of("part1"))
        assert len(built(simulation, "part1")) == len(LATE_DAYS)
    keeps_the_pair(simulation)


def test_graph_asset_is_built_like_any_other_asset() -> None:
    @dg.op(ins={"x": dg.In(dg.Nothing)})
    def first() -> Any:
        raise NotImplementedError

    @dg.op
    def second(found: Any) -> Any:
        raise NotImplementedError

    @dg.graph_asset(
        name="table",
        ins={"x": dg.AssetIn(dg.AssetKey(["raw", "x"]), dagster_type=dg.Nothing)},
        partitions_def=DAYS,
        automation_condition=derived(),
        tags=ASAP["tags"],
    )
    def table(x: Any) -> Any:
        return second(first(x))

    simulation = play([source("x", DAYS), table])
    for n, day in enumerate(LATE_DAYS):
        simulation.arrive("raw/x", day, at=simulation.time(minutes=1 + n))
    simulation.run(hours=1)
    assert sorted(map(str, built(simulation, "table"))) == LATE_DAYS
    assert all(run.succeeded for run in simulation.runs)


@pytest.mark.parametrize(
    ("policy", "most"),
    [(None, 1), (dg.BackfillPolicy.multi_run(3), 3), (dg.BackfillPolicy.single_run(), 12)],
    ids=["none", "three a run", "a single run"],
)
def test_run_has_at_most_as_many_partitions_as_its_backfill_policy_allows(policy: Any, most: int) -> None:
    days = [f"2026-09-{n}" for n in range(28, 31)] + [f"2026-10-0{n}" for n in range(1, 6)]
    simulation = play([source("x", DAYS), asset("core/x", "raw/x", by=DAYS, backfill_policy=policy, **ASAP)])
    simulation.outage(at=simulation.time(minutes=1), until=simulation.time(minutes=3))
    for day in days:
        simulation.arrive("raw/x", day, at=simulation.time(minutes=2))
    simulation.run(hours=2)
    assert sorted(map(str, built(simulation, "core/x"))) == days
    assert all(run.succeeded for run in simulation.runs)
    assert max(len(run.partitions) for run in simulation.runs) <= most


@dg.asset_check(asset=dg.AssetKey(["core", "x"]), blocking=True)
def complete() -> dg.AssetCheckResult:
    """Whether all rows are there."""
    raise NotImplementedError


@pytest.mark.parametrize("ends", ["by the check alone", "by a rebuild"])
def test_readers_of_a_failed_blocking_check_wait_until_it_passes(ends: str) -> None:
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), asset("mart", "core/x", by=DAYS, **ASAP)],
        [complete],
    )
    simulation.fail_check("core/x", "complete")
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == [DAY]
    assert built(simulation, "mart") == []
    decision = simulation.plan().decisions[("mart", DAY)]
    assert "complete" in decision.reason and "core/x" in decision.reason
    if ends == "by the check alone":
        simulation.evaluate_check("core/x", "complete", passed=True, at=simulation.time(hours=1.1))
    else:
        simulation.arrive("raw/x", DAY, at=simulation.time(hours=1.1))
    simulation.run(hours=1)
    assert built(simulation, "mart") == [DAY]
    assert simulation.tables.fresh(("mart", DAY))


def test_check_that_passes_later_frees_partitions_of_several_runs() -> None:
    other = "2026-10-02"
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), asset("mart", "core/x", by=DAYS, **ASAP)],
        [complete],
    )
    for hour, day in ((0.1, DAY), (0.5, other)):
        simulation.at(simulation.time(hours=hour), lambda: simulation.fail_check("core/x", "complete"))
        simulation.arrive("raw/x", day, at=simulation.time(hours=hour))
    simulation.run(hours=1)
    assert built(simulation, "core/x") == [DAY, other] and built(simulation, "mart") == []
    simulation.evaluate_check("core/x", "complete", passed=True, at=simulation.time(hours=1.1))
    simulation.run(hours=1)
    assert built(simulation, "mart") == [DAY, other]


def test_blocking_check_that_fails_later_blocks_the_next_build_of_its_readers() -> None:
    simulation = play(
        [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP), asset("mart", "core/x", by=DAYS, **ASAP)],
        [complete],
    )
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert built(simulation, "mart") == [DAY]
    simulation.evaluate_check("core/x", "complete", passed=False, at=simulation.time(hours=1), by_run=False)
    simulation.fail("mart")  # whoever built it now would fail; nobody is to try
    simulation.run(hours=1)
    assert len(simulation.runs_of("mart")) == 1


def test_custom_automation_condition_also_applies_to_rebuilds() -> None:
    nightly = derived() & dg.AutomationCondition.cron_tick_passed("0 2 * * *")

    def graph(code: str) -> list[Any]:
        return [
            source("x", DAYS),
            asset("core/x", "raw/x", by=DAYS, code_version=code, automation_condition=nightly, **ASAP),
        ]

    simulation = play(graph("1"), own_every=300.0)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=30))
    simulation.run(hours=3)
    (first,) = simulation.runs
    assert simulation.time(hours=2) <= first.created_at <= simulation.time(hours=2.1)
    simulation.deploy(graph("2"), at=simulation.time(hours=4))
    simulation.run(hours=2)
    assert len(simulation.runs) == 1, "today it was rebuilt at once"
    simulation.run(hours=22)
    assert len(simulation.runs) == 2
    assert simulation.time(hours=26) <= simulation.runs[1].created_at <= simulation.time(hours=26.1)


def outside(**more: Any) -> list[Any]:
    return [
        dg.AssetSpec(BASE, partitions_def=DAYS),
        dg.AssetSpec(THEIRS, deps=[BASE], partitions_def=DAYS),
        asset("core/x", "theirs/x", by=DAYS, freshness_policy=more.pop("policy", lag(minutes=30)), **more),
        *healthy(),
    ]


@pytest.mark.parametrize("how", ["materialization", "observation", "observation without a version"])
def test_external_table_with_reported_events_is_treated_as_a_source(how: str) -> None:
    simulation = play(outside())
    for hour in (0.05, 1.5):
        simulation.report("theirs/base", DAY, at=simulation.time(hours=hour))
    for hour in (0.1, 2):
        if how == "materialization":
            simulation.report("theirs/x", DAY, at=simulation.time(hours=hour))
        else:
            version = f"as of {hour}" if how == "observation" else None
            simulation.tell("theirs/x", DAY, version, at=simulation.time(hours=hour))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    simulation.run(hours=4)
    assert built(simulation, "core/x") == [DAY, DAY]
    keeps_the_pair(simulation)


def silent(*reports: str) -> Any:
    """A table promised for nine o'clock; days of its source were reported so, and then no more."""
    nine = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))
    simulation = play(outside(policy=nine))
    simulation.standings()  # as the sensor `contracts` does from the first minute on
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=2))
    for n, how in enumerate(reports):
        day = f"2026-10-0{4 + n}"
        if how == "materialization":
            simulation.report("theirs/x", day, at=simulation.time(hours=1 + 24 * n))
        else:
            simulation.tell("theirs/x", day, "v1", at=simulation.time(hours=1 + 24 * n))
    simulation.run(days=len(reports) + 2, hours=10)
    return simulation


@pytest.mark.parametrize("how", ["materialization", "observation"])
def test_contract_is_breached_when_a_reported_source_becomes_silent(how: str) -> None:
    simulation = silent(how)
    standing = simulation.standings()["core/x"]
    assert standing.verdict == "breached", standing
    assert "theirs/x" in standing.reason


def test_contract_is_breached_and_names_a_source_that_never_had_data() -> None:
    simulation = silent()
    standing = simulation.standings()["core/x"]
    assert standing.verdict == "breached", standing
    assert "theirs/x" in standing.reason or "theirs/base" in standing.reason


def test_successful_run_without_output_is_not_retried_until_new_data_arrives() -> None:
    @dg.asset(
        key=["core", "x"],
        deps=[["raw", "x"]],
        partitions_def=REGIONS,
        output_required=False,
        automation_condition=derived(),
        tags=ASAP["tags"],
    )
    def x() -> Any:
        raise NotImplementedError

    simulation = play([source("x", REGIONS), x])
    simulation.fail("core/x", how=RunFate.YIELDS_NOTHING, times=1)
    simulation.arrive("raw/x", "eu", at=simulation.time(minutes=5))
    simulation.run(hours=3)
    assert len(simulation.runs) == 1, "a success is not tried again"
    simulation.arrive("raw/x", "eu", at=simulation.time(hours=4))
    simulation.run(hours=3)
    assert len(simulation.runs) == 2
    assert built(simulation, "core/x") == ["eu"]


@pytest.mark.parametrize("fixed", [False, True])
def test_multi_asset_does_not_wait_forever_for_its_own_check(fixed: bool) -> None:
    @dg.multi_asset(
        specs=[
            dg.AssetSpec("a", deps=[["raw", "x"]], automation_condition=derived(), freshness_policy=lag(minutes=30)),
            dg.AssetSpec(
                "b", deps=["a", ["raw", "y"]], automation_condition=derived(), freshness_policy=lag(minutes=30)
            ),
        ],
        check_specs=[dg.AssetCheckSpec("complete", asset="a", blocking=True)],
    )
    def parts():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    simulation = play([source("x"), source("y"), parts])
    simulation.fail_check("a", "complete")
    for minute, name in ((5, "x"), (6, "y")):
        simulation.arrive(f"raw/{name}", at=simulation.time(minutes=minute))
    simulation.run(hours=2)
    before = len(simulation.runs)
    simulation.arrive("raw/y", at=simulation.time(hours=2))
    if fixed:
        simulation.arrive("raw/x", at=simulation.time(hours=4))
    simulation.run(hours=6)
    assert len(simulation.runs) > before
    assert simulation.tables.fresh(("a", None)) and simulation.tables.fresh(("b", None))


def test_partition_that_a_run_found_empty_is_not_breached() -> None:
    @dg.asset(
        key=["core", "x"],
        deps=[["raw", "x"]],
        partitions_def=DAYS,
        output_required=False,
        automation_condition=derived(),
        freshness_policy=dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(hours=1)),
    )
    def x() -> Any:
        raise NotImplementedError

    simulation = play([source("x", DAYS), x])
    simulation.fail("core/x", how=RunFate.YIELDS_NOTHING, times=1)
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=20))
    simulation.run(hours=40)
    assert len(simulation.runs) == 1
    assert simulation.standings()["core/x"].verdict == "met", simulation.standings()["core/x"]


def test_observation_without_a_version_of_a_built_table_causes_no_run() -> None:
    simulation = play([asset("base"), asset("core/x", "base", **ASAP)])
    simulation.run(hours=1)
    before = len(simulation.runs)
    simulation.tell("base", at=simulation.time(hours=1))
    simulation.run(hours=1)
    assert len(simulation.runs) == before


@pytest.mark.parametrize(
    "condition",
    [
        dg.AutomationCondition.eager(),
        pytest.param(dg.AutomationCondition.on_cron("0 0 1 * *"), marks=pytest.mark.proof),
    ],
)
def test_freshness_policy_is_evaluated_for_assets_with_a_custom_condition(condition: Any) -> None:
    theirs = asset("theirs", "raw/x", automation_condition=condition, freshness_policy=lag(minutes=10))
    simulation = play([source("x"), theirs, asset("reader", "theirs", **ASAP)], own_every=30)
    simulation.fail("theirs", times=99)
    simulation.arrive("raw/x", at=simulation.time(minutes=5))
    simulation.run(minutes=30)
    standing = simulation.standings()["theirs"]
    assert standing.verdict == "breached" and "its own condition" in standing.reason, standing


def test_freshness_policy_of_an_external_asset_is_reported_as_not_judged() -> None:
    told = dg.AssetSpec(["raw", "ext"], freshness_policy=lag(hours=1))
    simulation = play([told, asset("core/x", "raw/ext", **ASAP)])
    simulation.run(hours=3)
    standing = simulation.standings()["raw/ext"]
    assert (standing.verdict, "this code location does not build it" in standing.reason) == ("not judged", True)


def test_freshness_policy_that_a_custom_condition_keeps_is_met() -> None:
    theirs = asset(
        "theirs", "raw/x", automation_condition=dg.AutomationCondition.eager(), freshness_policy=lag(minutes=10)
    )
    simulation = play([source("x"), theirs], own_every=30)
    for minute in (5, 20):
        simulation.arrive("raw/x", at=simulation.time(minutes=minute))
    simulation.run(minutes=45)
    assert len(built(simulation, "theirs")) == 2
    assert simulation.standings()["theirs"].verdict == "met"


def test_partition_range_is_one_run_even_if_a_reader_covers_only_part() -> None:
    simulation = play(
        [
            source("x", DAYS),
            source("y", DAYS),
            asset("core/x", "raw/x", by=DAYS, freshness_policy=lag(minutes=30)),
            asset("core/y", "raw/y", by=DAYS, **ASAP),
            asset("marts/both", "core/x", "core/y", by=DAYS, freshness_policy=lag(minutes=40)),
        ]
    )
    for day in LATE_DAYS[:2]:
        simulation.arrive("raw/y", day, at=simulation.time(minutes=1))
    for day in LATE_DAYS:
        simulation.tell("raw/x", day, None, at=simulation.time(minutes=10))
    simulation.outage(at=simulation.time(minutes=5), until=simulation.time(minutes=60))
    simulation.run(hours=2)
    assert [list(run.of["core/x"]) for run in simulation.runs_of("core/x")] == [LATE_DAYS]
    assert sorted(built(simulation, "marts/both")) == LATE_DAYS[:2]


def test_custom_condition_of_one_output_is_not_bypassed_through_another() -> None:
    yearly = derived() & dg.AutomationCondition.cron_tick_passed("0 0 1 1 *")

    @dg.multi_asset(
        specs=[
            dg.AssetSpec(
                ["core", "a"], deps=[["raw", "x"]], automation_condition=yearly, freshness_policy=lag(minutes=10)
            ),
            dg.AssetSpec(["core", "b"], deps=[["raw", "x"]], automation_condition=derived()),
        ]
    )
    def both():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    simulation = play([source("x"), both], own_every=60)
    simulation.arrive("raw/x", at=simulation.time(minutes=5))
    simulation.run(minutes=45)
    assert simulation.runs == [], "of the two only core/a is due, and its condition says not yet"


def test_retried_step_that_reports_its_outputs_twice_runs_no_reader_twice() -> None:
    read = [Input("raw", lambda p: [p], lambda p: [p])]
    joined = [Input("a", lambda p: [p], lambda p: [p], joinable=True)]
    nodes = [
        Node("raw", source=True, automated=False),
        Node("a", read),
        Node("b", joined, contract=LagContract(600.0)),
    ]
    world = World(Graph({node.key: node for node in nodes}))
    for n in range(3):
        world.arrive(None, f"v{n}", key="raw")
        world.now += 700
        assert world.due() == {("a", None), ("b", None)}
        world.start(f"r{n}", ("a", None), ("b", None))
        for key in ("a", "a", "b"):
            world.build(f"r{n}", (key, None), None)
        world.end(f"r{n}")
        world.now += 3600
        assert world.due() == set()
