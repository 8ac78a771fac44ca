"""What an asset may declare, what is refused by name, and that one bad declaration harms that asset alone."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import dynamic_names, graph_of
from dagster_tidemark.asset_graph.sensor_names import sensor_names
from dagster_tidemark.engine.condition import derived
from dagster_tidemark.planner.contracts import CronContract, tick_at_or_after
from dagster_tidemark.planner.graph import Graph, Input, Node
from tests.tidemark.toy_graph import DAYS, HOURS, asset, lag, source, within

SHOPS = dg.DynamicPartitionsDefinition(name="shops")


def graph(*assets: Any) -> Graph:
    return graph_of(dg.Definitions(list(assets)).resolve_asset_graph())


def node(*assets: Any) -> Node:
    """Of the last one."""
    name = list(assets[-1].keys)[-1].to_user_string()
    return graph(*assets).nodes[name]


class Broken(dg.StaticPartitionsDefinition):
    """A definition that raises, once Dagster has made an asset with it."""

    down = False

    def get_partition_keys(self, current_time: Any = None, dynamic_partitions_store: Any = None) -> Any:
        if self.down:
            raise ConnectionError("no database")
        return ["a"]


class Raises(dg.IdentityPartitionMapping):
    """Somebody's own."""

    def get_upstream_mapped_partitions_result_for_partitions(self, *_: Any, **__: Any) -> Any:
        raise KeyError("calendar")


def reading(**metadata: Any) -> dg.AssetDep:
    return dg.AssetDep(dg.AssetKey(["raw", "customers"]), metadata=metadata)


def dep(name: str, mapping: dg.PartitionMapping) -> dg.AssetDep:
    return dg.AssetDep(dg.AssetKey.from_user_string(name), partition_mapping=mapping)


ZONED = dg.DailyPartitionsDefinition("2026-09-28", timezone="Europe/Berlin", end_offset=1)

BAD = {
    "tag": (asset("bad", "raw/orders", by=HOURS, tags={"tidemark/pace": "fast"}), "tidemark/pace='fast' is unknown"),
    "requires": (asset("bad", "raw/orders", by=HOURS, tags={"tidemark/requires": "any"}), "expected 'every_input"),
    "partitions": (
        asset("bad", by=Broken(["a"])),
        "its partitions definition cannot be read: ConnectionError: no database",
    ),
    "mapping": (
        asset("bad", dep("raw/orders", Raises()), by=HOURS),
        "its input raw/orders cannot be read: KeyError",
    ),
    "zones": (asset("bad", within("raw/orders"), by=ZONED), "its time zone is UTC, the reader's is Europe/Berlin"),
    "static": (
        asset("bad", dep("areas", dg.StaticPartitionMapping({"east": "a"})), by=dg.StaticPartitionsDefinition(["a"])),
        "its input areas cannot be read: ValueError: mapping source partitions not in the upstream",
    ),
    "last window": (asset("bad", dep("raw/orders", dg.TimeWindowPartitionMapping())), "needs a partitioned reader"),
    "ripple text": (
        asset("bad", reading(ripple_days="a week"), by=DAYS),
        "ripple_days='a week' of raw/customers: expected a whole number",
    ),
    "ripple nothing": (asset("bad", reading(ripple_days=0), by=DAYS), "expected a whole number of days above 0"),
    "ripple static": (
        asset("bad", reading(ripple_days=2), by=dg.StaticPartitionsDefinition(["a"])),
        "needs a reader with time partitions",
    ),
    "optional": (asset("bad", reading(optional=2), by=DAYS), "optional=2 of raw/customers: expected true or false"),
    "use_latest": (
        asset("bad", reading(use_latest="perhaps"), by=DAYS),
        "use_latest='perhaps' of raw/customers: expected true or false",
    ),
}


@pytest.mark.filterwarnings("ignore:Non-built-in PartitionMappings")
@pytest.mark.parametrize("which", BAD)
def test_invalid_declaration_sets_only_its_own_asset_aside_with_the_reason(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, reason = BAD[which]
    areas = dg.AssetSpec("areas", partitions_def=dg.StaticPartitionsDefinition(["west"]))
    sources = [source("orders", HOURS), source("customers"), areas]
    pair = [asset("good", "raw/orders", by=HOURS), asset("better", "good", by=HOURS, freshness_policy=lag(hours=1))]
    asset_graph = dg.Definitions([*sources, *pair, bad, asset("reader", "bad")]).resolve_asset_graph()
    monkeypatch.setattr(Broken, "down", True)
    found = graph_of(asset_graph).nodes
    assert reason in found["bad"].refused and found["bad"].automated
    assert not any(found[key].refused for key in ("raw/orders", "raw/customers", "good", "better"))
    assert found["better"].contract and found["better"].inputs[0].joinable
    assert {read.key for read in found["bad"].inputs} <= {"raw/orders", "raw/customers", "areas"}


def test_all_errors_of_an_asset_declaration_are_reported_at_once() -> None:
    wrong = asset(
        "bad", reading(ripple_days="x"), by=DAYS, tags={"tidemark/pace": "fast"}, freshness_policy=lag(hours=1)
    )
    found = node(source("customers"), wrong)
    assert "ripple_days" in found.refused and "tidemark/pace" in found.refused
    assert found.contract and [read.key for read in found.inputs] == ["raw/customers"]


@pytest.mark.parametrize("days", [2, "2", " 2 ", dg.MetadataValue.int(2), dg.MetadataValue.text("2")])
def test_ripple_days_accept_numbers_and_numeric_text(days: Any) -> None:
    (read,) = node(source("customers"), asset("table", reading(ripple_days=days), by=DAYS)).inputs
    assert read.ripple_days == 2


@pytest.mark.parametrize(
    ("schedule", "meant"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("0 9 * * 7", "0 9 * * 7"),
        ("0 9 * * mon-fri", "0 9 * * MON-FRI"),
        ("0 9 L * *", "0 9 L * *"),
        ("0 9 1 JAN,jul *", "0 9 1 JAN,JUL *"),
    ],
)
def test_cron_contract_accepts_the_cron_syntax_of_dagster(schedule: str, meant: str) -> None:
    policy = dg.FreshnessPolicy.cron(schedule, timedelta(minutes=30), "Europe/Berlin")
    contract = node(asset("table", freshness_policy=policy)).contract
    assert contract == CronContract(meant, 1800.0, "Europe/Berlin")
    assert tick_at_or_after(contract, 1_790_000_000.0) >= 1_790_000_000.0


def test_cron_schedule_with_another_meaning_for_the_planner_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = dg.FreshnessPolicy.cron("@daily", timedelta(minutes=30))
    monkeypatch.setattr("dagster_tidemark.asset_graph.declarations._ALIASES", {"@daily": "0 1 * * *"})
    assert "write it in five fields" in node(asset("table", freshness_policy=policy)).refused


# What is built together, and by how many


def test_only_a_multi_asset_that_cannot_be_subset_is_built_together() -> None:
    for can_subset in (False, True):
        specs = [dg.AssetSpec(name, automation_condition=derived()) for name in ("a", "b")]

        @dg.multi_asset(specs=specs, can_subset=can_subset)
        def both(): ...

        assert node(both).together == (frozenset() if can_subset else frozenset({"a", "b"}))


def test_graph_asset_and_graph_multi_asset_are_read_like_other_assets() -> None:
    @dg.op
    def fetched(customers: Any) -> int:
        return 1

    @dg.graph_asset(ins={"customers": dg.AssetIn(key=["raw", "customers"])}, partitions_def=DAYS)
    def table(customers: Any) -> Any:
        return fetched(customers)

    @dg.graph_multi_asset(
        outs={"one": dg.AssetOut(), "two": dg.AssetOut()},
        ins={"customers": dg.AssetIn(key=["raw", "customers"])},
    )
    def both(customers: Any) -> Any:
        return {"one": fetched.alias("x")(customers), "two": fetched.alias("y")(customers)}

    rippling = table.map_asset_specs(lambda spec: spec.replace_attributes(deps=[reading(ripple_days=3)]))
    found = graph(source("customers"), rippling, both).nodes
    assert not any(n.refused for n in found.values())
    assert found["table"].inputs[0].ripple_days == 3 and found["one"].inputs[0].key == "raw/customers"
    assert found["one"].together == {"one", "two"}


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        (None, 1),
        (dg.BackfillPolicy.single_run(), None),
        (dg.BackfillPolicy.multi_run(7), 7),
    ],
)
def test_number_of_partitions_per_run_is_read_from_the_backfill_policy(policy: dg.BackfillPolicy, most: int) -> None:
    assert node(asset("table", by=DAYS, backfill_policy=policy)).most == most


# Sources, checks, what is loaded


def test_external_asset_is_a_source_without_inputs_in_the_graph() -> None:
    outside = dg.AssetSpec("outside", deps=[dg.AssetKey(["raw", "orders"])], partitions_def=HOURS)
    found = graph(source("orders", HOURS), outside, asset("table", "outside", by=HOURS)).nodes
    assert (found["outside"].source, list(found["outside"].inputs), found["outside"].automated) == (True, [], False)
    assert found["raw/orders"].source and not found["table"].source
    assert not found["table"].inputs[0].joinable, "nothing joins a run that there never is"


@pytest.mark.filterwarnings("ignore:Virtual assets")
def test_a_virtual_asset_is_refused() -> None:
    assert "virtual assets are not supported" in node(asset("view", is_virtual=True)).refused


def test_blocking_checks_of_an_asset_are_listed_by_name() -> None:
    table = asset("table")

    @dg.asset_check(asset=table, blocking=True)
    def whole() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset_check(asset=table)
    def pretty() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    checked = dg.Definitions([table], asset_checks=[whole, pretty]).resolve_asset_graph()
    assert graph_of(checked).nodes["table"].blocking == {"whole"}


def test_only_loaded_inputs_make_dagster_refuse_runs_for_missing_partitions() -> None:
    @dg.asset(partitions_def=DAYS, ins={"orders": dg.AssetIn(key=["raw", "orders"])}, automation_condition=derived())
    def loaded(orders: Any) -> None: ...

    (read,) = node(source("orders", HOURS), loaded).inputs
    (named,) = node(source("orders", HOURS), asset("table", "raw/orders", by=DAYS)).inputs
    assert read.missing_inputs("2999-01-01") and not named.missing_inputs("2999-01-01")


def test_self_dependent_asset_joins_no_run_with_itself() -> None:
    found = node(asset("total", dep("total", dg.TimeWindowPartitionMapping(-1, -1)), by=DAYS))
    assert found.reads_itself and not found.refused and not found.inputs[0].joinable


def test_dynamic_partitions_are_found_by_name_also_as_a_dimension() -> None:
    cities = dg.DynamicPartitionsDefinition(name="cities")
    by_day = dg.MultiPartitionsDefinition({"day": DAYS, "city": cities})
    assets = [asset("a", by=SHOPS), asset("b", "a", by=by_day), asset("c", "b", by=by_day)]
    found = dg.Definitions(assets[:1] + assets[2:]).resolve_asset_graph()
    assert dynamic_names(found) == {"shops", "cities"}
    assert not any(n.refused for n in graph_of(found).nodes.values())


# Sensors


def sensors(*groups: int, most: int = 400) -> list[str]:
    """The sensor of each asset of chains so long, in order."""
    nodes = [
        Node(f"{g:03}/{n:03}", [Input(f"{g:03}/{n - 1:03}", None, None, joinable=True)] if n else ())
        for g, size in enumerate(groups)
        for n in range(size)
    ]
    return list(sensor_names(nodes, most).values())


def test_one_sensor_covers_400_assets_and_keeps_joined_assets_together() -> None:
    assert set(sensors(*[1] * 400)) == {"automation"}
    assert [sensors(*[1] * 1001).count(f"automation{n}") for n in ("", "_2", "_3")] == [400, 400, 201]
    assert sensors(3, 3, 3, most=5) == ["automation"] * 3 + ["automation_2"] * 3 + ["automation_3"] * 3


def test_asset_chain_too_long_for_one_sensor_is_split() -> None:
    assert sensors(1, 7, most=5) == ["automation"] + ["automation_2"] * 5 + ["automation_3"] * 2


def test_asset_added_at_the_end_keeps_the_sensors_of_the_others() -> None:
    before = sensors(*[2] * 300)
    assert sensors(*[2] * 300, 2)[: len(before)] == before


def test_each_asset_is_assigned_to_its_sensor() -> None:
    found = graph(*[asset(f"table_{n:03}") for n in range(401)])
    assert [found.nodes[f"table_{n:03}"].sensor for n in (0, 399, 400)] == ["automation", "automation", "automation_2"]


def test_asset_key_with_a_slash_in_one_part_is_refused() -> None:
    found = graph(dg.AssetSpec(dg.AssetKey(["s3/orders"])), asset("core/x"))
    assert "a part of its key ['s3/orders'] contains a slash" in found.nodes["s3/orders"].refused
    assert found.nodes["core/x"].refused == ""
    both = graph(dg.AssetSpec(dg.AssetKey(["s3/orders"])), dg.AssetSpec(dg.AssetKey(["s3", "orders"])))
    assert both.nodes["s3/orders"].refused
