"""The check `contract`: what it says, when it says it, and that no run has to do with it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.asset_page import with_pages
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine import overview as overview_module
from dagster_tidemark.engine.saved_overview import CHECK
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.sensors.contract_sensor import STATE, contract_checks, contract_sensor
from dagster_tidemark.settings import load_settings
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source, within
from tests.toys.definitions import defs

HOUR_7 = "2026-10-05-07:00"
NINE = dg.FreshnessPolicy.cron(deadline_cron="0 9 * * *", lower_bound_delta=timedelta(minutes=30))


def graph(version: str = "1") -> list[Any]:
    """Of core/orders the code version."""
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, code_version=version, freshness_policy=lag(minutes=5), **ASAP),
        asset("marts/report", within("core/orders"), by=DAYS, freshness_policy=NINE),
        asset("marts/unpromised", "core/orders", by=HOURS),
    ]


class Watched:
    """A simulation whose contracts are looked at when the test says so."""

    def __init__(self, assets: list[Any] | None = None) -> None:
        assets = assets or graph()
        definitions = dg.Definitions([*assets, *contract_checks(assets)])
        self.simulation = Simulation(definitions, start=START)
        self.told: list[tuple[str, str]] = []
        self._repository = definitions.get_repository_def()
        self._sensor = contract_sensor()
        self._cursor: str | None = None

    def look(self, **at: float) -> str:
        """Let time pass until then and evaluate the sensor; what it skips for, or nothing."""
        self.simulation.run_until(self.simulation.time(**at))
        with self.simulation.clock.frozen():
            instance = self.simulation.instance
            with dg.build_sensor_context(instance, self._cursor, repository_def=self._repository) as context:
                result = self._sensor.evaluate_tick(context)
            self._cursor = result.cursor
            for event in result.asset_events:
                instance.report_runless_asset_event(event)
                self.told.append((event.asset_key.to_user_string(), event.metadata[STATE].value))
        return result.skip_message or ""

    def last(self, asset: str) -> dg.AssetCheckEvaluation:
        """The last result that is in the instance."""
        key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), CHECK)
        (record,) = self.simulation.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        assert record.event is not None
        evaluation = record.event.get_dagster_event().event_specific_data
        assert isinstance(evaluation, dg.AssetCheckEvaluation)
        return evaluation


def test_check_and_page_state_that_the_last_result_stays_while_the_daemon_is_stopped() -> None:
    promised = asset("core/orders", by=HOURS, freshness_policy=lag(minutes=5))
    [check] = contract_checks([promised])
    [spec] = check.check_specs
    [page] = with_pages([promised], {}, load_settings())
    on_page = page.descriptions_by_key[dg.AssetKey(["core", "orders"])]
    for said, words in ((spec.description, "the last one stays here"), (on_page, "keeps the last one")):
        assert words in (said or "") and "daemon" in (said or "") and "stopped" in (said or "")


def test_contract_check_reports_each_change_of_state_once() -> None:
    watched = Watched()
    simulation = watched.simulation
    simulation.fail("core/orders", times=4)  # with the pauses between, for seven minutes and more
    simulation.arrive("raw/orders", HOUR_7, at=simulation.time(hours=7))
    watched.look(hours=6)
    assert sorted(watched.told) == [("core/orders", "met"), ("marts/report", "met")]
    watched.told.clear()
    for minute in range(60):
        watched.look(hours=7, minutes=minute)
    states = [state for asset_, state in watched.told if asset_ == "core/orders"]
    assert states == ["at risk", "breached", "met"]
    assert len(watched.told) == 3, "nothing is said again while nothing changes"


def test_contract_check_reports_again_after_each_materialization() -> None:
    watched = Watched()
    simulation = watched.simulation
    watched.look(hours=6)
    for hour in (7, 8):
        watched.told.clear()
        simulation.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=simulation.time(hours=hour))
        watched.look(hours=hour, minutes=2)
        assert watched.told == [("core/orders", "met")]
        made = simulation.runs_of("core/orders")[-1]
        assert watched.last("core/orders").metadata["judged at"].value >= made.ended_at
        assert "met" in watched.look(hours=hour, minutes=3), "and only once"


def test_contract_check_reports_partition_lag_reason_and_severity() -> None:
    watched = Watched()
    watched.simulation.fail("core/orders", times=9)
    watched.simulation.arrive("raw/orders", HOUR_7, at=watched.simulation.time(hours=7))
    watched.look(hours=7, minutes=6)
    said = watched.last("core/orders")
    assert not said.passed and said.severity is dg.AssetCheckSeverity.ERROR
    assert said.metadata["partition"].value == HOUR_7
    assert said.metadata["lag (seconds)"].value == 360
    assert said.metadata["lag, promised (seconds)"].value == 300
    assert "failed attempts" in str(said.metadata["reason"].value)
    assert "promised for 2026-10-05 07:05:00 UTC" in str(said.metadata["reason"].value)


def test_cron_contract_is_breached_at_its_deadline_and_reports_the_silent_source() -> None:
    watched = Watched()
    for hour in ("2026-10-04-07:00", "2026-10-05-07:00"):
        watched.simulation.arrive("raw/orders", hour, at=watched.simulation.time(hours=7))
    watched.look(days=2, hours=8.9)
    assert watched.last("marts/report").passed, "the day before yesterday was there, and yesterday's tick is to come"
    watched.look(days=2, hours=9.1)
    said = watched.last("marts/report")
    assert not said.passed
    assert "lag, promised (seconds)" not in said.metadata, "the promise is a time of day"
    assert said.metadata["partition"].value == "2026-10-06"
    assert "raw/orders silent since 2026-10-05 07:00:00 UTC" in str(said.metadata["reason"].value)


def test_contract_check_skips_partitions_before_the_first_observation() -> None:
    watched = Watched()
    watched.look(days=3)
    assert set(watched.told) == {("core/orders", "met"), ("marts/report", "met")}


def test_contract_check_is_never_part_of_a_requested_run() -> None:
    watched = Watched()
    watched.simulation.arrive("raw/orders", HOUR_7, at=watched.simulation.time(hours=7))
    requested: list[dg.RunRequest] = []
    daemon = watched.simulation._daemon
    submit = daemon._submit
    daemon._submit = lambda sensor, asked, **more: (requested.extend(asked), submit(sensor, asked, **more))[1]  # type: ignore[method-assign,func-returns-value]
    watched.look(days=1, hours=10)
    assert requested and all(request.asset_check_keys == [] for request in requested)


def test_contract_check_can_be_executed_manually() -> None:
    assets = graph()
    definitions = dg.Definitions([*assets, *contract_checks(assets)])
    with dg.DagsterInstance.ephemeral() as instance:
        tags = {DATA_VERSION: "1"}
        instance.report_runless_asset_event(
            dg.AssetObservation(dg.AssetKey(["raw", "orders"]), partition=HOUR_7, tags=tags)
        )
        job = definitions.resolve_implicit_global_asset_job_def()
        selection = {dg.AssetCheckKey(dg.AssetKey(["core", "orders"]), CHECK)}
        done = job.get_subset(asset_check_selection=selection, asset_selection=set()).execute_in_process(
            instance=instance
        )
    (evaluation,) = done.get_asset_check_evaluations()
    assert evaluation.metadata[STATE].value == "met"


def refuse(monkeypatch: pytest.MonkeyPatch, asset_key: str, reason: str) -> None:
    """The planner has no answer for an asset."""
    real = planner_graph.graph_of

    def _graph_of(assets: AnyGraph, **more: float) -> Graph:
        nodes = real(assets, **more).nodes
        return Graph({key: replace(n, refused=reason if key == asset_key else "") for key, n in nodes.items()})

    monkeypatch.setattr(planner_graph, "graph_of", _graph_of)


def test_contract_check_of_a_refused_asset_fails_and_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse(monkeypatch, "core/orders", "there is no pace 'fast'")
    watched = Watched()
    watched.look(hours=6)
    assert dict(watched.told) == {"core/orders": "not judged", "marts/report": "met"}
    said = watched.last("core/orders")
    assert not said.passed and said.severity is dg.AssetCheckSeverity.ERROR
    assert said.metadata["reason"].value == "set aside: there is no pace 'fast'"
    made_from = watched.last("marts/report").metadata["set aside"].value
    assert made_from == "upstream core/orders: there is no pace 'fast'"


def test_contract_check_reports_a_newly_set_aside_partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    watched.look(hours=6)
    watched.told.clear()
    with watched.simulation.clock.frozen():
        watched.simulation.instance.report_runless_asset_event(
            dg.AssetMaterialization(dg.AssetKey(["core", "orders"]), partition="yesterday")
        )
    watched.look(hours=6, minutes=1)
    assert watched.told == [("core/orders", "met")]
    said = watched.last("core/orders")
    assert (
        said.passed and "core/orders yesterday: 'yesterday' is not a partition key" in said.metadata["set aside"].value
    )
    assert "it contains everything else that arrived; set aside: core/orders yesterday" in said.metadata["reason"].value
    assert "met" in watched.look(hours=6, minutes=2), "and only once"


def test_missing_partition_stays_breached_for_days_and_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    watched.look(hours=6)  # from now on it is judged
    for day in (1, 2, 9):
        watched.look(days=day, hours=10)
        said = watched.last("marts/report")
        assert (said.passed, said.metadata["partition"].value) == (False, "2026-10-04")
        assert "raw/orders never had data" in said.metadata["reason"].value
    monkeypatch.setattr(overview_module, "_seen", {})  # another process
    watched.told.clear()
    watched._cursor = None
    watched.look(days=9, hours=11)
    assert watched.last("marts/report").metadata["partition"].value == "2026-10-04"
    for n in range(9):  # a person gives them up
        watched.simulation.report("marts/report", f"2026-10-{4 + n:02}", at=watched.simulation.time(days=9, hours=12))
    watched.look(days=9, hours=13)
    assert watched.last("marts/report").metadata["partition"].value == "2026-10-13"


@pytest.mark.parametrize("asset_key", ["core/orders", "marts/sales_daily", "marts/weekly_review"])
def test_every_asset_with_a_freshness_policy_has_a_contract_check(asset_key: str) -> None:
    checks = {
        key.asset_key.to_user_string() for key in defs.resolve_asset_graph().asset_check_keys if key.name == CHECK
    }
    assert asset_key in checks
