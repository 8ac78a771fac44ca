"""The sensors that ask for runs, on an ephemeral instance: what they ask for, and what they say when they do not."""

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.instigation_logger import get_instigation_log_records
from dagster._core.definitions.sensor_definition import SensorEvaluationContext

from dagster_tidemark.engine.condition import derived
from dagster_tidemark.engine.engine import engine_for
from dagster_tidemark.sensors import catch_up as range_sensor
from dagster_tidemark.sensors.automation import automation_sensor
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.checks.test_contract import refuse
from tests.tidemark.ticks import Location
from tests.tidemark.toy_graph import asset, small, source
from tests.toys.definitions import defs

HOURS = [f"2026-10-01-{h:02}:00" for h in range(10)]
TIME = r"(\w{3} \d\d \w{3} )?\d\d:\d\d"
MOMENT = r"\w{3} \d\d \w{3} \d\d:\d\d"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def observe(instance: dg.DagsterInstance, key: str, *partitions: str | None, version: str = "1") -> None:
    for partition in partitions:
        tags = {DATA_VERSION: version}
        instance.report_runless_asset_event(
            dg.AssetObservation(dg.AssetKey(["raw", key]), partition=partition, tags=tags)
        )


def catch_up(instance: dg.DagsterInstance) -> dg.SensorResult | dg.SkipReason:
    context = dg.build_sensor_context(instance, repository_def=defs.get_repository_def())
    result = catch_up_sensor()(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def log_of(instance: dg.DagsterInstance, sensor: dg.SensorDefinition, tick: str) -> list[str]:
    """What the UI shows of a tick: what is captured of it as a code server evaluates it."""
    key = ["repository", sensor.name, tick]
    with SensorEvaluationContext(
        instance.get_ref(), None, None, None, key, None, defs.get_repository_def(), sensor_name=sensor.name
    ) as context:
        sensor.evaluate_tick(context)
    return [record["msg"] for record in get_instigation_log_records(instance, key)]


def automation(instance: dg.DagsterInstance) -> dict[str, set[str | None]]:
    result = dg.evaluate_automation_conditions(defs=defs, instance=instance)
    asked = {}
    for found in result.results:
        subset = found.true_subset
        if not subset.is_empty:
            partitions = subset.expensively_compute_partition_keys() if subset.is_partitioned else {None}
            asked[found.key.to_user_string()] = set(partitions)
    return asked


def test_changed_partition_is_requested_only_once(instance: dg.DagsterInstance) -> None:
    observe(instance, "orders", HOURS[0])
    observe(instance, "customers", None)
    assert automation(instance) == {
        "core/orders": {HOURS[0]},
        "marts/sales_hourly": {HOURS[0]},
        "core/customers": {None},
    }
    assert automation(instance) == {}, "its run may just be slow to appear"


def test_many_partitions_are_one_range_run_of_the_catch_up_sensor(
    instance: dg.DagsterInstance,
) -> None:
    observe(instance, "orders", *HOURS)
    result = catch_up(instance)
    assert isinstance(result, dg.SensorResult)
    (request,) = result.run_requests or []
    assert [k.to_user_string() for k in request.asset_selection or []] == ["core/orders", "marts/sales_hourly"]
    assert request.tags["dagster/asset_partition_range_start"] == HOURS[0]
    assert request.tags["dagster/asset_partition_range_end"] == HOURS[-1]
    assert automation(instance) == {}


def test_mart_without_an_input_is_reported_with_the_reason(instance: dg.DagsterInstance) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(["core", "orders"], partition=HOURS[0]))
    catch_up(instance)  # asks for the weeks that the hour is in
    result = catch_up(instance)
    assert isinstance(result, dg.SkipReason)
    assert f"marts/margin_hourly {HOURS[0]}: no data: core/prices" in str(result.skip_message)
    assert "marts/order_stats 2026-10-01: no data: core/customers" in str(result.skip_message)


def test_set_aside_asset_is_logged_once_and_shown_in_the_automation_tab(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(monkeypatch, "core/orders", "there is no pace 'fast'")
    location = Location(instance, small())
    location.observe("raw/orders", "yesterday")
    line = "set aside: there is no pace 'fast'"
    ticks = [location.tick() for _ in range(3)]
    assert [line in ticked.said("core/orders") for ticked in ticks] == [True, False, False], "stored once"
    context = dg.build_sensor_context(instance, repository_def=location.repository)
    catch_up_sensor().evaluate_tick(context)
    for said in ("set aside: core/orders: there is no pace 'fast'", "set aside: raw/orders yesterday: "):
        assert len([message for message in caplog.messages if message.startswith(said)]) == 1


def test_sensor_takes_only_the_requests_of_its_own_assets(instance: dg.DagsterInstance) -> None:
    location = Location(instance, small())
    location.observe("raw/orders", "2026-10-05-00:00")
    # Another sensor, which looks after something else, is evaluated first.
    with dg.build_sensor_context(instance, repository_def=location.repository) as context:
        other = dg.AutomationConditionSensorDefinition(
            "other", target=dg.AssetSelection.assets("marts/daily").without_checks(), use_user_code_server=True
        )
        assert not other.evaluate_tick(context).run_requests
    hour = "2026-10-05-00:00"
    assert location.tick().asked == {("core/orders", hour), ("marts/hourly", hour)}


def test_ticks_that_dagster_has_given_up_on_keep_their_requests_for_the_next_ticks(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour, location = "2026-10-05-00:00", Location(instance, small())
    location.observe("raw/orders", hour)
    with monkeypatch.context() as slow:
        slow.setattr(range_sensor, "_LONGEST_TICK", -1.0)
        assert location.tick().asked == set()
    assert location.tick().asked == {("core/orders", hour), ("marts/hourly", hour)}, "not a minute later"
    observe(instance, "orders", *HOURS)
    with monkeypatch.context() as slow:
        slow.setattr(range_sensor, "_LONGEST_TICK", -1.0)
        assert isinstance(catch_up(instance), dg.SkipReason)
    result = catch_up(instance)
    assert isinstance(result, dg.SensorResult)
    assert len(result.run_requests or []) == 2, "the ten hours, and the one before for this location's mart"


def test_condition_that_may_refuse_reserves_no_partition(instance: dg.DagsterInstance) -> None:
    own = derived() & dg.AutomationCondition.cron_tick_passed("0 9 * * *")
    tags = {"tidemark/pace": "asap"}
    location = Location(instance, [source("orders"), asset("own", "raw/orders", automation_condition=own, tags=tags)])
    location.observe("raw/orders", None)
    assert location.tick().asked == set()
    assert engine_for(instance, location.repository.asset_graph).reserved == {}


RUN = "core/orders, marts/sales_hourly, 2026-10-01-00:00 to 2026-10-01-09:00 (10 partitions): "


def test_tick_log_lists_the_requested_runs_with_their_reason(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        observe(instance, "orders", *HOURS)
        (line,) = log_of(instance, catch_up_sensor(), "first")
        assert line.startswith(RUN)
        assert re.fullmatch(f"starts {MOMENT} for marts/weekly_review: first data of {TIME}", line.removeprefix(RUN))
        assert log_of(instance, catch_up_sensor(), "second") == []
        assert [path.name for path in tmp_path.glob("storage/repository/catch_up/*")] == ["first.err"]


def test_automation_sensor_logs_the_reason_of_a_requested_run_once(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        observe(instance, "orders", HOURS[0])
        first, second = (log_of(instance, automation_sensor(), tick) for tick in ("first", "second"))
        ours = [line for line in first if line.startswith("core/orders, marts/sales_hourly, 2026-10-01-00:00: ")]
        assert len(ours) == 1
        assert re.search(rf": starts {MOMENT} for marts/weekly_review: first data of {TIME}$", ours[0])
        assert not [line for line in second if "starts" in line]
