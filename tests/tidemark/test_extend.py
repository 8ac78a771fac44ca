"""Tidemark's assets in a code location of others: theirs stay as they are, ours get their data and their automation."""

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark import LINEAGE, Feed, Grain, Table, extend, feed_assets, load_settings, table_asset
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.condition import own_assets
from dagster_tidemark.engine.saved_overview import CHECK
from dagster_tidemark.sensors.contract_sensor import STATE
from dagster_tidemark.settings import Settings
from dagster_tidemark.table_partitions import DeclarationRefused
from tests import pages
from tests.sampling import sample
from tests.tidemark.engine.evaluations import evaluations

C = dg.AutomationCondition
DAYS = dg.DailyPartitionsDefinition("2026-10-05", end_offset=1)
HOURS = dg.HourlyPartitionsDefinition("2026-10-05-00:00", end_offset=1)
COUNTRIES = dg.StaticPartitionsDefinition(["dk", "se"])
PARTITIONS: Sequence[dg.PartitionsDefinition | None] = (
    None,
    DAYS,
    HOURS,
    COUNTRIES,
    dg.WeeklyPartitionsDefinition("2026-09-28"),
    dg.MultiPartitionsDefinition({"day": DAYS, "country": COUNTRIES}),
    dg.DynamicPartitionsDefinition(name="customers"),
)
CONDITIONS: Sequence[dg.AutomationCondition | None] = (
    None,
    C.eager(),
    C.on_missing(),
    C.on_cron("0 * * * *"),
    C.on_cron("15 6 * * *"),
    C.eager().without(~C.any_deps_missing()),
    C.newly_updated() | C.code_version_changed(),
)
SALES = Table("marts.sales", {"day": "date", "sold": "bigint"}, partitioned_by="day", row_key=("day",))
TRIPS = Table(
    "core.trips", {"day": "date", "trip_id": "bigint"} | LINEAGE, partitioned_by="day", row_key=("day", "trip_id")
)


def their_assets(count: int, seed: int) -> list[dg.AssetsDefinition]:
    """Make assets of every kind of partitions and condition; each reads up to two that come before it."""
    chosen = random.Random(seed)
    made: list[dg.AssetsDefinition] = []
    for number in range(count):
        partitions = PARTITIONS[number % len(PARTITIONS)]
        like_it = [each for each in made if each.partitions_def in (None, partitions)]

        @dg.asset(
            name=f"theirs_{number}",
            deps=chosen.sample(like_it, min(len(like_it), chosen.randint(0, 2))),
            partitions_def=partitions,
            automation_condition=chosen.choice(CONDITIONS),
            code_version=chosen.choice(["1", None]),
            freshness_policy=dg.FreshnessPolicy.time_window(timedelta(hours=1)) if number % 3 == 0 else None,
            io_manager_key=chosen.choice(["io_manager", "spark"]),
        )
        def theirs() -> int:
            return 1

        made.append(theirs)
    return made


@dg.job
def their_job() -> None: ...


@dg.sensor(name="landing", job=their_job)
def their_sensor() -> dg.SkipReason:
    return dg.SkipReason("nothing")


def their_location(count: int = 20, seed: int = 0) -> dg.Definitions:
    """Return a location that uses for itself every name that ours would have without a prefix."""
    resources = dict.fromkeys(("io_manager", "spark", "landing", "lakehouse", "events_queue"), dg.mem_io_manager)
    return dg.Definitions(
        assets=their_assets(count, seed),
        jobs=[their_job],
        schedules=[dg.ScheduleDefinition("reconcile_all", job=their_job, cron_schedule="0 0 * * *")],
        sensors=[their_sensor],
        resources=resources,
        executor=dg.multiprocess_executor,
    )


@table_asset(SALES, ins={"rows": "theirs_1"}, partitions=DAYS, fresh=timedelta(hours=1), code_version="1")
def sales(rows: Any) -> Any:
    """One row per day."""
    return rows


def extended(theirs: dg.Definitions) -> dg.Definitions:
    feed = Feed("trips", "trips/", Grain.DAY, {"trip_id": "bigint"}, required=("trip_id",))
    assets = [sales, *feed_assets(feed, TRIPS, partitions_def=DAYS)]
    return extend(theirs, load_settings(), assets=assets, tables=[SALES, TRIPS], feeds=[feed])


def test_extended_location_keeps_its_definitions_and_prefixes_added_ones() -> None:
    theirs, both = their_location(), extended(their_location())
    assert both.executor is theirs.executor
    before, after = theirs.get_repository_def(), both.get_repository_def()
    for kind in ("sensor_defs", "schedule_defs"):
        old, new = ({each.name for each in getattr(found, kind)} for found in (before, after))
        assert old < new and all(name.startswith("tidemark_") for name in new - old)
    old, new = before.get_top_level_resources(), after.get_top_level_resources()
    assert old.items() <= new.items() and all(name.startswith("tidemark_") for name in new.keys() - old.keys())
    for key in before.asset_graph.get_all_asset_keys():
        one, other = before.asset_graph.get(key), after.asset_graph.get(key)
        assert one.automation_condition is other.automation_condition
        assert one.freshness_policy == other.freshness_policy and one.metadata == other.metadata
    [own] = [each for each in before.sensor_defs if each.name == "default_automation_condition_sensor"]
    [still] = [each for each in after.sensor_defs if each.name == own.name]
    assert still.asset_selection is not None and own.asset_selection is not None
    assert still.asset_selection.resolve(after.asset_graph) == own.asset_selection.resolve(before.asset_graph)
    ours = after.asset_graph.get_all_asset_keys() - before.asset_graph.get_all_asset_keys()
    added = {"marts/sales", "core/trips", "raw/trips", "ops/incidents", "ops/landing_events", "ops/maintenance"}
    assert {key.to_user_string() for key in ours} == added
    assert {key.asset_key for key in after.asset_graph.asset_check_keys} <= ours


ALL = dg.AssetSelection.all()


def of_all(kind: str) -> dg.Definitions:
    """Return a location that selects all of its assets, and all downstream of one, in one of Dagster's ways."""

    in_one_run = dg.BackfillPolicy.single_run()

    @dg.asset(partitions_def=DAYS, backfill_policy=in_one_run)
    def theirs_1() -> None: ...

    @dg.asset(deps=[theirs_1], partitions_def=DAYS, backfill_policy=in_one_run)
    def theirs_2() -> None: ...

    def ticked(_: Any) -> dg.SkipReason:
        return dg.SkipReason("nothing")

    job = dg.define_asset_job("everything", tags={"team": "ours"})
    below = dg.define_asset_job("below", selection=dg.AssetSelection.assets("theirs_1").downstream())
    cron: dict[str, Any] = {"cron_schedule": "0 0 * * *"}
    more: dict[str, Any] = {
        "jobs": {"jobs": [job, below]},
        "schedule": {"jobs": [job], "schedules": [dg.ScheduleDefinition("nightly", job=job, **cron)]},
        "schedule alone": {"schedules": [dg.ScheduleDefinition("nightly", target=ALL, **cron)]},
        "partitioned": {"jobs": [job], "schedules": [dg.build_schedule_from_partitioned_job(job)]},
        "sensor": {"sensors": [dg.SensorDefinition("at_times", evaluation_fn=ticked, jobs=[job, below])]},
        "sensor of assets": {"sensors": [dg.SensorDefinition("at_times", evaluation_fn=ticked, asset_selection=ALL)]},
        "sensor of a target": {"sensors": [dg.SensorDefinition("at_times", evaluation_fn=ticked, target=ALL)]},
        "automation": {"sensors": [dg.AutomationConditionSensorDefinition("theirs", target=ALL, run_tags={"a": "b"})]},
        "user code": {
            "sensors": [
                dg.AutomationConditionSensorDefinition(
                    "theirs", target=ALL, use_user_code_server=True, default_condition=C.eager(), emit_backfills=False
                )
            ]
        },
    }
    return dg.Definitions(assets=[theirs_1, theirs_2], **more[kind])


def selected(defs: dg.Definitions) -> dict[str, Any]:
    """Return the assets and attributes of each asset job and of each sensor that selects assets."""
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    jobs = [job for job in repository.get_all_jobs() if job.name != "__ASSET_JOB"]
    found: dict[str, Any] = {
        job.name: ({*job.asset_layer.executable_asset_keys}, job.partitions_def, dict(job.tags)) for job in jobs
    }
    for sensor in repository.sensor_defs:
        if sensor.asset_selection is not None and not sensor.name.startswith("tidemark_"):
            found[sensor.name] = (sensor.asset_selection.resolve(graph), type(sensor), sensor.minimum_interval_seconds)
            if isinstance(sensor, dg.AutomationConditionSensorDefinition):
                more = (sensor.default_condition, dict(sensor.run_tags), sensor.emit_backfills, sensor.sensor_type)
                found[sensor.name] += more
    return found | {each.name: each.cron_schedule for each in repository.schedule_defs if each.name == "nightly"}


@pytest.mark.parametrize(
    "kind",
    [
        "jobs",
        "schedule",
        "schedule alone",
        "partitioned",
        "sensor",
        "sensor of assets",
        "sensor of a target",
        "automation",
        "user code",
    ],
)
def test_selections_of_all_assets_exclude_added_assets(kind: str) -> None:
    hourly = Table("marts.hourly", {"hour": "timestamp"}, partitioned_by="hour", row_key=("hour",))

    @table_asset(hourly, ins={"rows": "theirs_1"}, partitions=HOURS, code_version="1")
    def per_hour(rows: Any) -> Any:
        return rows

    ours = [sales, per_hour]
    both = extend(of_all(kind), load_settings(), assets=ours, tables=[SALES, hourly])
    before, after = selected(of_all(kind)), selected(both)
    assert before == {name: found for name, found in after.items() if name in before} and before


def test_copied_automation_sensor_requests_no_added_assets(instance: dg.DagsterInstance) -> None:
    repository = extended_by(of_all("user code")).get_repository_def()
    sensor = repository.get_sensor_def("theirs")
    sensor.evaluate_tick(context := dg.build_sensor_context(instance, repository_def=repository))
    ran = sensor.evaluate_tick(dg.build_sensor_context(instance, repository_def=repository, cursor=context.cursor))
    asked = {key.to_user_string() for run in ran.run_requests or () for key in run.asset_selection or ()}
    assert asked <= {"theirs_1", "theirs_2"}


def test_selection_by_key_includes_added_assets() -> None:
    theirs = dg.Definitions.merge(
        of_all("jobs"), dg.Definitions(jobs=[dg.define_asset_job("by_key", [sales.key, dg.AssetKey("theirs_1")])])
    )
    # Dagster warns of a job with several backfill policies. A table that loads one of their assets would have another.
    ours = sales.with_attributes(backfill_policy=dg.BackfillPolicy.single_run())
    both = extend(theirs, load_settings(), assets=[ours], tables=[SALES])
    assert selected(both)["by_key"][0] == {sales.key, dg.AssetKey("theirs_1")}


def test_contract_of_a_table_that_reads_an_existing_asset_is_checked_in_a_run(instance: dg.DagsterInstance) -> None:
    both = extend(their_location(), load_settings(), assets=[sales], tables=[SALES])
    job = both.get_repository_def().get_implicit_global_asset_job_def()
    check = dg.AssetCheckKey(sales.key, CHECK)
    done = job.get_subset(asset_selection=set(), asset_check_selection={check}).execute_in_process(instance=instance)
    [found] = done.get_asset_check_evaluations()
    assert (found.asset_check_key, found.metadata[STATE].value) == (check, "met")


def test_custom_automation_sensor_class_is_refused_with_a_remedy() -> None:
    class Slower(dg.AutomationConditionSensorDefinition):
        pass

    theirs = dg.Definitions.merge(of_all("jobs"), dg.Definitions(sensors=[Slower("slow", target=ALL)]))
    with pytest.raises(DeclarationRefused, match=r"sensor slow of class Slower .* list its assets by their keys"):
        extended_by(theirs)
    kept = dg.Definitions.merge(of_all("jobs"), dg.Definitions(sensors=[Slower("slow", target=["theirs_1"])]))
    assert isinstance(extended_by(kept).get_repository_def().get_sensor_def("slow"), Slower)


def extended_by(theirs: dg.Definitions) -> dg.Definitions:
    return extend(theirs, load_settings(), assets=[sales], tables=[SALES])


def test_extended_location_without_feeds_has_no_landing_sensor() -> None:
    both = extend(their_location(), load_settings(), assets=[sales], tables=[SALES]).get_repository_def()
    ours = {each.name for each in both.sensor_defs if each.name.startswith("tidemark_")}
    names = ("automation", "catch_up", "contracts", "dead_runs", "incidents", "maintenance")
    assert ours == {f"tidemark_{name}" for name in names}
    assert not [each.name for each in both.schedule_defs if each.name.startswith("tidemark_")]


@pytest.mark.parametrize("seed", sample(range(3), 1))
def test_existing_conditions_request_the_same_runs_after_extension(seed: int) -> None:
    count, begin = 40, datetime.fromisoformat("2026-10-07T05:50+00:00")
    names, times = (
        [f"theirs_{number}" for number in range(count)],
        [begin + n * timedelta(minutes=30) for n in range(8)],
    )
    asked: list[list[tuple[str, str | None]]] = []
    for definitions in (their_location(count, seed), extended(their_location(count, seed))):
        with dg.DagsterInstance.ephemeral() as instance:
            instance.add_dynamic_partitions("customers", ["ada", "bob"])
            ticks = []
            for tick, wanted in enumerate(evaluations(definitions, instance, names, times)):
                ticks += wanted
                for name, partition in random.Random(tick).sample(wanted, len(wanted) // 2):
                    instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=partition))
        asked.append(ticks)
    assert asked[0] == asked[1] and len(asked[0]) > 5


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def test_planner_requests_added_assets_once_their_existing_inputs_have_data(instance: dg.DagsterInstance) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TIDEMARK_CONTRACT_SCALE", "0.0001")
        repository = extended(their_location()).get_repository_def()
    today = DAYS.get_last_partition_key()

    def tick(name: str) -> Any:
        context = dg.build_sensor_context(instance, repository_def=repository)
        return repository.get_sensor_def(name).evaluate_tick(context)

    tick("tidemark_automation")
    instance.report_runless_asset_event(dg.AssetMaterialization("theirs_1", partition=today))
    asked = [run for name in ("automation", "catch_up") for run in tick(f"tidemark_{name}").run_requests or ()]
    wanted = {(key.to_user_string(), run.partition_key) for run in asked for key in run.asset_selection or ()}
    assert wanted <= {("marts/sales", today)}
    assert all(run.tags["dagster/max_retries"] == "0" for run in asked)
    said = tick("tidemark_contracts")
    assert {event.asset_key.to_user_string() for event in said.asset_events} <= {"marts/sales", "core/trips"}
    kept = saved_overview.kept(instance, load_settings().code_location)
    assert kept is not None and "marts/sales" in {row.asset for row in kept.rows if row.shown}
    assert not [row.asset for row in kept.rows if row.shown and row.asset.startswith("theirs")]


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")  # Dagster of its own nested resources
def test_existing_and_added_assets_read_each_other_by_their_io_managers(
    spark_server: Settings, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    for name, value in spark_server.exports().items():
        monkeypatch.setenv(name, value)
    table = Table("marts.of_theirs", {"id": "bigint"}, row_key=("id",))
    seen: list[Any] = []

    @dg.asset
    def numbers() -> list[int]:
        return [1, 2]

    @table_asset(table, ins={"numbers": "numbers"}, code_version="1")
    def of_theirs(numbers: list[int], tidemark_spark: dg.ResourceParam[Any]) -> DataFrame:
        session: SparkSession = tidemark_spark.session
        return session.createDataFrame([(number,) for number in numbers], "id bigint")

    @dg.asset(ins={"rows": dg.AssetIn(["marts", "of_theirs"])})
    def reads_ours(rows: DataFrame) -> None:
        seen.extend(row.id for row in rows.collect())

    theirs = dg.Definitions(assets=[numbers, reads_ours], resources={"io_manager": dg.mem_io_manager})
    both = extend(theirs, load_settings(), assets=[of_theirs], tables=[table])
    ran = both.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    assert ran.success and sorted(seen) == [1, 2]


def test_instance_retries_no_run_that_a_sensor_requests_again() -> None:
    repository = extended(their_location()).get_repository_def()
    sensor = repository.get_sensor_def("tidemark_automation")
    assert isinstance(sensor, dg.AutomationConditionSensorDefinition)
    assert sensor.run_tags["dagster/max_retries"] == "0"
    assert repository.get_job("tidemark_maintain_tables").tags["dagster/max_retries"] == "0"
    assert "dagster/max_retries" not in repository.get_job("their_job").tags


def test_asset_that_exists_in_the_extended_location_is_refused() -> None:
    @dg.asset(key=["theirs_1"])
    def again() -> None: ...

    with pytest.raises(DeclarationRefused, match="asset theirs_1 is already in this code location"):
        extend(their_location(), load_settings(), assets=[again])


def test_added_table_stored_by_another_io_manager_is_refused() -> None:
    @dg.asset(key=["marts", "sales"], partitions_def=DAYS)
    def written_out() -> None: ...

    with pytest.raises(DeclarationRefused, match='io_manager_key="tidemark_io_manager"'):
        extend(their_location(), load_settings(), assets=[written_out], tables=[SALES])


def test_existing_location_page_adds_a_table_in_ten_lines() -> None:
    page = pages.page("existing-location.md")
    code = page.partition("```python\n")[2].partition("```")[0]

    @dg.asset
    def orders() -> list[tuple[int, int]]:
        return [(1, 2)]

    module: dict[str, Any] = {"defs": dg.Definitions(assets=[orders])}
    pages.execute(code, "existing-location.md", module)
    graph = module["defs"].resolve_asset_graph()
    found = graph.get(dg.AssetKey(["marts", "sales"]))
    assert found.parent_keys == {dg.AssetKey("orders")} and found.automation_condition is not None
    assert graph.get(dg.AssetKey("orders")).automation_condition is None
    added = code.partition("from dagster_tidemark")[2].partition("defs = extend")[0]
    statements = [line for line in added.splitlines() if line.strip()]
    assert len(statements) <= 10
    assert [spec.key for each in own_assets(module["defs"]) for spec in each.specs] == [found.key]


@pytest.mark.parametrize(
    ("given", "most"),
    [({}, 1), ({"backfill_policy": dg.BackfillPolicy.single_run()}, None), ({"deps": ["calls"]}, None)],
)
def test_added_table_gets_one_existing_partition_per_run(given: dict[str, Any], most: int | None) -> None:
    @dg.asset(partitions_def=DAYS)
    def calls() -> list[int]:
        return [1]

    loaded = {} if "deps" in given else {"ins": {"calls": "calls"}}

    @table_asset(SALES, partitions=DAYS, code_version="1", **loaded, **given)
    def per_day(**read: Any) -> Any:
        return read

    both = extend(dg.Definitions(assets=[calls]), load_settings(), assets=[per_day], tables=[SALES])
    policy = both.resolve_asset_graph().get(per_day.key).backfill_policy
    assert policy is not None and policy.max_partitions_per_run == most
