"""One asset, partition or event that the planner has no answer for harms only itself."""

from datetime import date, timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.engine import engine
from dagster_tidemark.engine.condition import derived, with_automation
from dagster_tidemark.engine.run_requests import apart
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import TABLES
from tests.tidemark.planner.shapes.playing import CITIES, REGIONS, healthy, keeps_the_pair, mapped, play, why_not
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source

DAY = "2026-10-05"
NOON = dg.FreshnessPolicy.cron("0 12 * * *", timedelta(hours=3))
pytestmark = pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")


class Raising(dg.IdentityPartitionMapping):
    """A user's mapping with a defect."""

    def get_upstream_mapped_partitions_result_for_partitions(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("the calendar has no such day")

    def get_downstream_partitions_for_partitions(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("the calendar has no such day")


def broken_mapping() -> list[Any]:
    return [source("x", DAYS), asset("broken", mapped("raw/x", Raising()), by=HOURS, **ASAP)]


def raising_condition() -> list[Any]:
    class Broken(dg.AutomationCondition):  # type: ignore[type-arg]
        def evaluate(self, context: Any) -> Any:
            raise ValueError("the author's mistake")

    return [source("x", DAYS), asset("broken", "raw/x", by=DAYS, automation_condition=derived() & Broken())]


def foreign_policy() -> list[Any]:
    return [source("x", DAYS), asset("broken", "raw/x", by=DAYS, tags={"tidemark/pace": "whenever"})]


def missing_cities() -> list[Any]:
    return [source("x", CITIES), asset("broken", "raw/x", by=CITIES, **ASAP)]


KINDS = [broken_mapping, foreign_policy, missing_cities]


@pytest.mark.parametrize("kind", KINDS)
def test_broken_asset_is_set_aside_and_reported_while_others_are_built(kind: Any) -> None:
    simulation = play([*kind(), *healthy()])
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=4))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    keeps_the_pair(simulation)
    assert why_not(simulation, "broken") or why_not(simulation, "raw/x")


def test_custom_condition_that_raises_does_not_affect_other_assets() -> None:
    simulation = play(with_automation([*raising_condition(), *healthy()]), own_every=60)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=4))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    partitions = [run.assets for run in simulation.runs if set(run.assets) <= {"core/healthy", "marts/healthy"}]
    assert partitions, "the pair goes on, whatever the sensor's tick says"
    assert simulation.tables.fresh(("marts/healthy", DAY))


def test_tick_with_a_broken_asset_still_builds_all_other_assets() -> None:
    many = [asset(f"core/t{n}", "raw/healthy", by=DAYS, freshness_policy=lag(minutes=30)) for n in range(20)]
    simulation = play([*broken_mapping(), *healthy(), *many])
    for target in ("raw/x", "raw/healthy"):
        simulation.arrive(target, DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    assert all(simulation.tables.fresh((f"core/t{n}", DAY)) for n in range(20))
    keeps_the_pair(simulation)


def test_healthy_assets_meet_their_contract_beside_several_broken_assets() -> None:
    @dg.multi_asset(
        specs=[dg.AssetSpec(f"part{n}", deps=["static_one"], automation_condition=derived()) for n in (1, 2)]
    )
    def parts():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    assets = [
        source("x", DAYS),
        source("city", CITIES),
        asset("mapping", mapped("raw/x", Raising()), by=HOURS, **ASAP),
        asset("cities", "raw/city", by=CITIES, **ASAP),
        asset("static_one", "raw/x", by=REGIONS, **ASAP),
        asset("tag", "raw/x", by=DAYS, tags={"tidemark/requires": "luck"}),
        asset("alias", "raw/x", by=DAYS, freshness_policy=dg.FreshnessPolicy.cron("@daily", timedelta(hours=1))),
        parts,
        *healthy(),
    ]
    simulation = play(assets)
    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=3))
    simulation.arrive("raw/x", "no day", at=simulation.time(minutes=3))
    simulation.arrive("raw/city", "never was", at=simulation.time(minutes=4))
    for minute in (5, 50, 100):
        simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=minute))
    simulation.run(hours=3)
    keeps_the_pair(simulation)
    for asset_key in ("mapping", "tag"):
        assert why_not(simulation, asset_key), asset_key


def test_tables_that_share_only_a_partition_key_run_separately() -> None:
    """Two pairs are due in the same tick over the same day."""
    mine, yours = ("core/mine", "marts/mine"), ("core/yours", "marts/yours")
    simulation = play(
        [
            source("mine", DAYS),
            source("yours", DAYS),
            *(asset(core, core.replace("core", "raw"), by=DAYS, freshness_policy=NOON) for core in (mine[0], yours[0])),
            *(asset(mart, core, by=DAYS, freshness_policy=NOON) for core, mart in (mine, yours)),
        ]
    )
    for name in ("raw/mine", "raw/yours"):
        simulation.tell(name, "2026-10-04", None, at=simulation.time(minutes=5))
    simulation.fail("marts/mine")
    simulation.run(hours=30)
    at_noon = [run.assets for run in simulation.runs if run.created_at < simulation.runs[0].created_at + 1]
    assert sorted(at_noon) == [mine, yours]
    assert all("mine" in asset for run in simulation.runs if not run.succeeded for asset in run.assets)


@pytest.mark.parametrize("checks", ["none named", "all named"])
def test_run_request_is_split_together_with_its_asset_checks(checks: str) -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("left"), dg.AssetSpec("right")])
    def both() -> tuple[None, None]:
        raise NotImplementedError

    @dg.asset_check(asset=dg.AssetKey("left"))
    def complete() -> dg.AssetCheckResult:
        raise NotImplementedError

    @dg.asset_check(asset=dg.AssetKey("elsewhere"), additional_deps=[dg.AssetKey("alone")])
    def alike() -> dg.AssetCheckResult:
        raise NotImplementedError

    assets = [both, asset("alone"), asset("below", "right"), asset("elsewhere")]
    graph = dg.Definitions(assets, asset_checks=[complete, alike]).resolve_asset_graph()
    keys = [dg.AssetKey(name) for name in ("left", "alone", "right", "below")]
    named = [dg.AssetCheckKey(keys[0], "complete"), dg.AssetCheckKey(dg.AssetKey("elsewhere"), "alike")]
    request = dg.RunRequest(
        asset_selection=keys, asset_check_keys=None if checks == "none named" else named, tags={"a": "b"}
    )
    together, alone = apart(request, graph)
    assert [key.to_user_string() for key in together.asset_selection or ()] == ["left", "right", "below"]
    assert [key.to_user_string() for key in alone.asset_selection or ()] == ["alone"]
    expected = (None, None) if checks == "none named" else (named[:1], named[1:])
    assert (together.asset_check_keys, alone.asset_check_keys) == expected
    assert dict(together.tags) == {"a": "b", TABLES: "below, left, right"}
    assert dict(alone.tags) == {"a": "b", TABLES: "alone"}


class Threshold(dg.Config):
    """Config without a default."""

    most: int


class Warehouse(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A resource whose address is in the environment."""

    url: str


def broken(body: Any, **more: Any) -> dg.AssetsDefinition:
    settings: dict[str, Any] = {"automation_condition": derived(), **ASAP, **more}
    read, policy = [dg.AssetKey(["raw", "healthy"])], dg.BackfillPolicy.single_run()
    return dg.asset(key="broken", deps=read, partitions_def=DAYS, backfill_policy=policy, **settings)(body)


def without_config(**more: Any) -> list[Any]:
    def body(config: Threshold) -> None: ...

    return [broken(body, **more)]


def without_its_environment() -> list[Any]:
    def body(warehouse: Warehouse) -> None: ...

    return [broken(body)]


def with_a_check_without_config() -> list[Any]:
    @dg.asset_check(asset="broken")
    def strict(config: Threshold) -> Any: ...

    return [asset("broken", "raw/healthy", by=DAYS, **ASAP), strict]


def one_of_two_without_config() -> list[Any]:
    @dg.multi_asset(
        specs=[
            dg.AssetSpec(name, deps=[dg.AssetKey(["raw", "healthy"])], automation_condition=derived())
            for name in ("broken", "beside")
        ],
        partitions_def=DAYS,
        can_subset=False,
    )
    def _both(config: Threshold):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    return [_both, asset("of_broken", "broken", by=DAYS, **ASAP)]


def asking_for_itself() -> list[Any]:
    return without_config(automation_condition=dg.AutomationCondition.eager(), freshness_policy=None)


@pytest.mark.parametrize(
    ("kind", "days"),
    [
        (without_config, 1),
        (without_config, 8),
        (without_its_environment, 8),
        (with_a_check_without_config, 1),
        (one_of_two_without_config, 8),
        (asking_for_itself, 1),
    ],
)
def test_asset_whose_run_cannot_be_planned_is_set_aside_and_reported(kind: Any, days: int) -> None:
    each = [*kind(), *healthy()]
    checks = [one for one in each if isinstance(one, dg.AssetChecksDefinition)]
    assets = with_automation([one for one in each if one not in checks])
    address = Warehouse(url=dg.EnvVar("NO_SUCH_VARIABLE"))
    simulation = Simulation(
        dg.Definitions(assets=assets, asset_checks=checks, resources={"warehouse": address}), start=START, own_every=30
    )
    for day in range(days):
        simulation.arrive("raw/healthy", f"{date(2026, 10, 5) - timedelta(days=day)}", at=simulation.time(minutes=5))
    simulation.run(hours=0.6)
    keeps_the_pair(simulation)
    told = why_not(simulation, "broken")
    assert "can be planned" in told and ("NO_SUCH_VARIABLE" in told or "config" in told), told
    assert not simulation.runs_of("broken")
    assert set(simulation.plan().aside("broken")) == {None}, "it is not even asked for"
    engine.forget(simulation.instance)  # as in another process, which asks for no runs
    assert "can be planned" in why_not(simulation, "broken")


def test_assets_with_different_metadata_on_one_input_are_built_with_their_reader() -> None:
    """Dagster makes no job of assets whose inputs disagree about what they read."""

    def read(**metadata: Any) -> dg.AssetDep:
        return dg.AssetDep(dg.AssetKey(["raw", "x"]), metadata=metadata)

    assets = with_automation(
        [
            source("x"),
            asset("core/a", read(ripple_days=1), by=DAYS, **ASAP),
            asset("core/b", read(ripple_days=2), by=DAYS, **ASAP),
            asset("core/c", read(use_latest=True), "core/a", by=DAYS, **ASAP),
            asset("marts/all", "core/a", "core/b", "core/c", by=DAYS, **ASAP),
            *healthy(),
        ]
    )
    simulation = play(assets)
    simulation.arrive("raw/x", at=simulation.time(minutes=5))
    simulation.arrive("raw/healthy", DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    keeps_the_pair(simulation)
    assert simulation.tables.fresh(("marts/all", DAY))
    assert not [name for name in ("core/a", "core/b", "core/c", "marts/all") if why_not(simulation, name)]


def test_conflicting_dependency_metadata_sets_the_reader_aside_and_fails_no_tick() -> None:
    def read(note: str) -> dg.AssetDep:
        return dg.AssetDep(dg.AssetKey(["raw", "x"]), metadata={"note": note})

    assets = [source("x", DAYS), *(asset(f"core/{n}", read(n), by=DAYS, **ASAP) for n in "ab")]
    simulation = play([*assets, asset("marts/both", "core/a", "core/b", by=DAYS, **ASAP), *healthy()])
    for name in ("raw/x", "raw/healthy"):
        simulation.arrive(name, DAY, at=simulation.time(minutes=5))
    simulation.run(hours=1)
    keeps_the_pair(simulation)
    assert simulation.tables.fresh(("core/a", DAY)) and simulation.tables.fresh(("core/b", DAY))
    assert "Conflicting metadata" in why_not(simulation, "marts/both")


def test_upstream_mapping_that_raises_breaches_its_reader_and_no_other_contract() -> None:
    tables = [
        *healthy(),
        source("x", CITIES),
        source("y", CITIES),
        asset("middle", mapped("raw/x", Raising()), by=CITIES),
        asset("last", "middle", "raw/y", by=CITIES, freshness_policy=lag(minutes=30)),
    ]
    simulation = play(tables)
    with simulation.clock.frozen():
        simulation.instance.add_dynamic_partitions("cities", ["kiev"])
    for name, partition in (("raw/x", "kiev"), ("raw/y", "kiev"), ("raw/healthy", DAY)):
        simulation.arrive(name, partition, at=simulation.time(minutes=5))
    simulation.run(hours=2)
    standings = simulation.standings()
    assert (standings["marts/healthy"].verdict, standings["last"].verdict) == ("met", "breached")
    assert "middle never had data" in standings["last"].reason
    keeps_the_pair(simulation)
