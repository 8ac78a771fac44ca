"""Names and assets that an existing code location and Tidemark's additions both have."""

from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.assets.definition.cacheable_assets_definition import (
    AssetsDefinitionCacheableData,
    CacheableAssetsDefinition,
)

from dagster_tidemark import (
    LINEAGE,
    MESSAGE,
    Feed,
    Grain,
    Table,
    build_definitions,
    extend,
    feed_assets,
    load_settings,
    table_asset,
)
from dagster_tidemark.engine.condition import own_assets
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.sensors import automation
from dagster_tidemark.streams import Stream
from dagster_tidemark.streams.stream_declaration import StreamRefused
from dagster_tidemark.table_partitions import DeclarationRefused

DAYS = dg.DailyPartitionsDefinition("2026-11-24", end_offset=1)
LANDING = {"pilot_id": "bigint"}
PILOTAGE = Table(
    "core.pilotage", {"day": "date"} | LANDING | LINEAGE, partitioned_by="day", row_key=("day", "pilot_id")
)
PILOTAGE_FEED = Feed("pilotage", "pilotage/", Grain.DAY, LANDING, required=("pilot_id",))
FEES = Table("marts.fees", {"port": "bigint"}, row_key=("port",))


@dg.asset
def rates() -> int:
    return 1


def ours() -> list[Any]:
    @table_asset(FEES, ins={"rates": "rates"}, fresh=timedelta(hours=1), code_version="1")
    def fees(rates: Any) -> Any:
        return rates

    return [fees, *feed_assets(PILOTAGE_FEED, PILOTAGE, partitions_def=DAYS)]


def extended(theirs: Any, assets: list[Any] | None = None) -> dg.Definitions:
    given = ours() if assets is None else assets
    return extend(theirs, load_settings(), assets=given, tables=[FEES, PILOTAGE], feeds=[PILOTAGE_FEED])


def loaded(defs: dg.Definitions) -> dg.RepositoryDefinition:
    """Return the repository with everything in it resolved, as a code server does."""
    repository = defs.get_repository_def()
    repository.load_all_definitions()
    return repository


def job_of_op(op: str, job: str = "nightly") -> dg.JobDefinition:
    @dg.op(name=op)
    def work() -> None: ...

    @dg.job(name=job)
    def made() -> None:
        work()

    return made


@dg.sensor(name="tidemark_landing", job=job_of_op("copied"))
def landing() -> dg.SkipReason:
    return dg.SkipReason("nothing")


def named(key: str) -> dg.AssetsDefinition:
    @dg.asset(key=key.split("/"))
    def theirs() -> None: ...

    return theirs


@dg.asset_check(asset=["marts", "fees"], name="contract")
def contract() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


SCHEDULE = dg.ScheduleDefinition("tidemark_automation", target=[rates], cron_schedule="0 0 * * *")
SPARK = dg.ResourceDefinition.hardcoded_resource(1)


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (lambda: dg.Definitions(sensors=[landing]), "sensor or schedule tidemark_landing of this code location"),
        (lambda: dg.Definitions(schedules=[SCHEDULE]), "sensor or schedule tidemark_automation of this code location"),
        (lambda: dg.Definitions(jobs=[job_of_op("a", "tidemark_maintain_tables")]), "job tidemark_maintain_tables of"),
        (lambda: dg.Definitions(resources={"tidemark_spark": SPARK}), "resource tidemark_spark of this code location"),
        (lambda: dg.Definitions(assets=[named("ops/maintenance")]), "asset ops/maintenance of this code location"),
        (lambda: dg.Definitions(asset_checks=[contract]), "check contract of asset marts/fees of this code location"),
        (
            lambda: dg.Definitions(assets=[named("marts__fees")]),
            "op marts__fees of asset marts__fees has the name of an op that Tidemark adds for asset marts/fees; rename",
        ),
        (
            lambda: dg.Definitions(jobs=[job_of_op("core__pilotage")]),
            "op core__pilotage of job nightly has the name of an op that Tidemark adds for asset core/pilotage; rename",
        ),
    ],
)
def test_name_that_both_have_is_refused_with_its_place(theirs: Callable[[], dg.Definitions], said: str) -> None:
    with pytest.raises(DeclarationRefused, match=said):
        extended(theirs())


@pytest.mark.parametrize("op", ["maintenance", "look_at_every_prefix", "landing", "automation"])
def test_op_of_the_location_may_have_any_name_without_the_prefix(op: str) -> None:
    @dg.op(name=op)
    def work() -> int:
        return 1

    @dg.graph_asset
    def computed() -> Any:
        return work()

    in_a_job = dg.Definitions(assets=[rates], jobs=[job_of_op(op)])
    in_an_asset = dg.Definitions(assets=[rates, computed])
    for theirs in (in_a_job, in_an_asset):
        assert op in {node.name for job in loaded(extended(theirs)).get_all_jobs() for node in job.all_node_defs}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: extended(dg.Definitions(assets=[rates])), "already contain Tidemark's, .* call it once, with all"),
        (lambda: dg.repository(name="old")(lambda: [rates]), "found the repository .*: pass a dg.Definitions"),
        (lambda: dg.definitions(lambda: dg.Definitions(assets=[rates])), "call extend in it: `return extend"),
        (lambda: [rates], "expected Definitions, found list"),
    ],
)
def test_extend_names_what_it_expects(given: Callable[[], Any], said: str) -> None:
    with pytest.raises(DeclarationRefused, match=said):
        extended(given())


def loaded_from_a_module(assets: list[Any], **attributes: Any) -> dg.Definitions:
    """Return a location that finds its assets in a module, with the added ones among them."""
    module = ModuleType("models")
    for number, asset in enumerate([rates, *assets]):
        setattr(module, f"asset_{number}", asset)
    return dg.Definitions(assets=dg.load_assets_from_modules([module], **attributes))


@pytest.mark.parametrize("attributes", [{}, {"automation_condition": dg.AutomationCondition.eager()}])
def test_added_assets_that_the_location_also_loads_are_taken_once(attributes: dict[str, Any]) -> None:
    assets = ours()
    both = extended(loaded_from_a_module(assets, **attributes), assets)
    assert {spec.key.to_user_string() for each in own_assets(both) for spec in each.specs} == {
        "core/pilotage",
        "marts/fees",
    }
    graph = loaded(both).asset_graph
    assert graph.get(dg.AssetKey("rates")).automation_condition == attributes.get("automation_condition")


def test_existing_asset_that_is_passed_gets_the_automation_and_stays_one_asset() -> None:
    both = extended(dg.Definitions(assets=[rates]), [*ours(), rates])
    assert loaded(both).asset_graph.get(dg.AssetKey("rates")).automation_condition is not None


def test_added_table_below_a_key_prefix_is_refused_with_the_remedy() -> None:
    with pytest.raises(DeclarationRefused, match="load its module without key_prefix"):
        extended(loaded_from_a_module(ours()[:1], key_prefix="ports"), [])


def test_assets_that_dagster_makes_later_do_not_disturb_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    class FromAnApi(CacheableAssetsDefinition):
        def compute_cacheable_data(self) -> list[AssetsDefinitionCacheableData]:
            return [AssetsDefinitionCacheableData(keys_by_output_name={"result": dg.AssetKey("synced")})]

        def build_definitions(self, data: Any) -> list[dg.AssetsDefinition]:
            return [named("synced")]

    graphs, graph_of_all = [], automation._graph

    def recorded(*given: Any) -> Graph:
        graphs.append(graph_of_all(*given))
        return graphs[-1]

    monkeypatch.setattr(automation, "_graph", recorded)
    both = extended(dg.Definitions(assets=[rates, FromAnApi("api")]))
    assert dg.AssetKey("synced") in loaded(both).asset_graph.get_all_asset_keys()
    assert {"marts/fees", "core/pilotage", "rates"} <= graphs[0].nodes.keys()


def test_sensor_or_schedule_of_a_user_defined_class_is_refused_with_a_remedy() -> None:
    class Slower(dg.SensorDefinition):
        pass

    class Later(dg.ScheduleDefinition):
        pass

    def ticked(_: Any) -> dg.SkipReason:
        return dg.SkipReason("nothing")

    everything = dg.define_asset_job("everything", selection="*")
    by_key = dg.define_asset_job("by_key", selection=[rates])
    slow = Slower("slow", evaluation_fn=ticked, job=everything)
    with pytest.raises(DeclarationRefused, match=r"sensor slow of class Slower .* list the job's assets by their keys"):
        extended(dg.Definitions(assets=[rates], sensors=[slow]))
    with pytest.raises(
        DeclarationRefused, match=r"schedule late of class Later .* list the job's assets by their keys"
    ):
        late = Later("late", job=everything, cron_schedule="0 0 * * *")
        extended(dg.Definitions(assets=[rates], schedules=[late]))
    kept = extended(
        dg.Definitions(assets=[rates], sensors=[Slower("slow", evaluation_fn=ticked, job=by_key)])
    ).get_repository_def()
    assert isinstance(kept.get_sensor_def("slow"), Slower)


def with_fees(**options: Any) -> Callable[[Any], Any]:
    given: dict[str, Any] = {"ins": {"rates": "rates"}, "fresh": timedelta(hours=1), "code_version": "1"} | options
    return table_asset(FEES, **given)


@with_fees()
def unannotated(rates: Any, tidemark_spark) -> Any:  # type: ignore[no-untyped-def]
    return rates


CLICKS = Table("raw.clicks", {"page": "string"} | MESSAGE, row_key=("message_id",))
CLICKS_STREAM = Stream(name="clicks", table=CLICKS, queue="clicks", required=("page",))
OTHER_FEES = Table("marts.fees", {"port": "string"}, row_key=("port",))
GIVEN: dict[str, Any] = {"tables": [FEES, PILOTAGE], "feeds": [PILOTAGE_FEED]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: GIVEN | {"assets": ours()[0]}, "assets: expected a list, found AssetsDefinition: write assets="),
        (lambda: GIVEN | {"assets": ours(), "tables": FEES}, "tables: expected a list, found Table marts.fees: write"),
        (lambda: GIVEN | {"assets": [FEES]}, "assets: expected assets and checks, found Table marts.fees"),
        (lambda: GIVEN | {"assets": [ours()]}, r"assets: .* found a list: write \*feed_assets"),
        (lambda: GIVEN | {"assets": [], "tables": ours()[:1]}, "tables: expected Table, found AssetsDefinition"),
        (
            lambda: GIVEN | {"assets": ours(), "tables": [PILOTAGE]},
            "but table marts.fees is not passed: add it to `tab",
        ),
        (
            lambda: GIVEN | {"assets": ours(), "feeds": []},
            "asset raw/pilotage is the source of a feed that is not passed",
        ),
        (lambda: GIVEN | {"assets": ours(), "streams": [CLICKS_STREAM]}, "stream clicks: there is no asset raw/clicks"),
        (
            lambda: GIVEN | {"assets": ours(), "tables": [FEES, PILOTAGE, OTHER_FEES]},
            "table marts.fees is declared twice",
        ),
        (lambda: GIVEN | {"assets": [unannotated]}, "marts/fees: tidemark_spark is a resource: annotate the parameter"),
    ],
)
def test_incomplete_or_misplaced_declarations_are_refused_with_a_remedy(
    given: Callable[[], dict[str, Any]], said: str
) -> None:
    with pytest.raises(DeclarationRefused, match=said):
        extend(dg.Definitions(assets=[rates]), load_settings(), **given())


def test_settings_that_are_none_are_refused() -> None:
    settings: Any = ours()
    with pytest.raises(DeclarationRefused, match=r"settings: expected load_settings\(\), found list"):
        extend(dg.Definitions(assets=[rates]), settings)
    with pytest.raises(DeclarationRefused, match=r"settings: expected load_settings\(\), found list"):
        build_definitions(settings, [], [], [])


def test_declarations_may_be_iterators() -> None:
    assets, tables = iter(ours()), iter([FEES, PILOTAGE])
    feeds: Any = iter([PILOTAGE_FEED])
    both = extend(dg.Definitions(assets=[rates]), load_settings(), assets=assets, tables=tables, feeds=feeds)
    assert dg.AssetKey(["marts", "fees"]) in loaded(both).asset_graph.get_all_asset_keys()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ins": ["rates"]}, r"asset marts/fees: expected ins as a mapping, found \['rates'\]"),
        (
            {"ins": {"rates": rates}},
            "asset marts/fees: ins: rates: expected a key such as 'core/orders' or a dg.AssetIn",
        ),
        ({"fresh": 3600}, "asset marts/fees: fresh: expected a timedelta or a dg.FreshnessPolicy, found 3600"),
    ],
)
def test_table_asset_names_the_asset_and_the_wrong_argument(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationRefused, match=said):
        with_fees(**options)


def test_table_asset_without_a_table_is_refused() -> None:
    decorator: Any = table_asset

    def fees(rates: Any) -> Any:
        return rates

    with pytest.raises(DeclarationRefused, match="expected a Table, found function fees: write @table_asset"):
        decorator(fees)


def test_input_that_looks_misspelt_is_logged_and_one_of_another_location_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_prefix = named("harbour/berths")
    for dep in ("ratse", "berths", "elsewhere"):

        @table_asset(FEES, deps=[dep], fresh=timedelta(hours=1), code_version="1")
        def fees() -> None: ...

        extend(dg.Definitions(assets=[rates, with_prefix]), load_settings(), assets=[fees], tables=[FEES])
    assert caplog.messages == [
        "marts/fees reads ratse, which this code location does not have; rates is similar",
        "marts/fees reads berths, which this code location does not have; harbour/berths is similar",
    ]


def test_feed_assets_with_swapped_arguments_are_refused() -> None:
    feed: Any = PILOTAGE
    table: Any = PILOTAGE_FEED
    with pytest.raises(DeclarationRefused, match="feed_assets: expected a Feed and a Table, found Table and Feed"):
        feed_assets(feed, table, partitions_def=DAYS)


def test_rules_of_streams_are_functions_and_rules_of_feeds_are_sql() -> None:
    rules: Any = {"too_low": "pilot_id > 0"}
    with pytest.raises(StreamRefused, match="stream clicks: rule 'too_low' is not a function: write lambda fields"):
        Stream(name="clicks", table=CLICKS, queue="clicks", rules=rules)
    rules = {"too_low": lambda row: row["pilot_id"] > 0}
    with pytest.raises(ValueError, match="feed pilotage: rule 'too_low': expected a condition in SQL such as"):
        Feed("pilotage", "pilotage/", Grain.DAY, LANDING, rules=rules)
