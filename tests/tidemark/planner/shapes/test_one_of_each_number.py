"""The points of issue 13 that no other test shows at 0004a19, said in words that both versions have.

The number of its point begins the docstring of each test.
"""

import time
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.events import JobFailureData, RunFailureReason
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Table
from dagster._core.storage.tags import PARTITION_NAME_TAG

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.definitions import build_definitions
from dagster_tidemark.engine.condition import derived
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.settings import load_settings
from dagster_tidemark.simulation.log import SimulatedLog
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import DATA_VERSION
from tests.tidemark.postgres import has_postgres, postgres_instance
from tests.tidemark.toy_graph import ASAP, DAYS, START, asset, lag, source

DAY = "2026-10-05"


def observe(instance: dg.DagsterInstance, name: str, partition: str | None = None) -> None:
    key = dg.AssetKey.from_user_string(name)
    event = dg.AssetObservation(key, partition=partition, tags={DATA_VERSION: "1"})
    instance.report_runless_asset_event(event)


def test_251_assets_with_contracts_are_all_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """13. A sensor may have 500 entities with a condition, and the check of each contract is one."""
    names = {f"core/t{n}" for n in range(251)}
    tables = [source("x"), *(asset(name, "raw/x", freshness_policy=lag(minutes=5), **ASAP) for name in sorted(names))]
    location = build_definitions(load_settings(), tables, (), ()).get_repository_def()
    asked: set[str] = set()
    with dg.DagsterInstance.ephemeral() as instance:
        observe(instance, "raw/x")
        for sensor in location.sensor_defs:
            if sensor.name.startswith("automation"):
                with dg.build_sensor_context(instance, repository_def=location, sensor_name=sensor.name) as context:
                    requests = sensor.evaluate_tick(context).run_requests or ()
                asked |= {key.to_user_string() for request in requests for key in request.asset_selection or ()}
    assert asked == names


def test_planning_time_grows_linearly_with_the_number_of_daily_partitions() -> None:
    """15. Four times the days take about four times as long, not sixteen."""

    def seconds(days: int) -> float:
        by = dg.DailyPartitionsDefinition("2020-01-01")
        assets = [
            source("x", by),
            asset("features", "raw/x", by=by),
            asset("model", "features"),
            asset("scores", "features", "model", by=by, freshness_policy=lag(hours=1)),
        ]
        simulation = Simulation(assets, start=START)
        for day in by.get_partition_keys()[:days]:
            observe(simulation.instance, "raw/x", day)
        begun = time.process_time()
        assert len(simulation.plan().decisions) == 2 * days + 1
        return time.process_time() - begun

    few, many = (min(seconds(days) for _ in range(2)) for days in (150, 600))
    assert many < 8 * few


def test_first_code_version_does_not_rebuild_the_output_of_a_dagster_run() -> None:
    """19. Dagster writes the run's id where an asset has no code version."""

    def graph(code_version: str | None) -> list[Any]:
        @dg.asset(
            key=["core", "x"],
            deps=[["raw", "x"]],
            automation_condition=derived(),
            code_version=code_version,
            tags=ASAP["tags"],
        )
        def x() -> None: ...

        return [source("x"), x]

    simulation = Simulation(graph(None), start=START)
    with simulation.instance:  # whose artifact folder a real run makes
        simulation.arrive("raw/x", at=simulation.time(minutes=1))
        built = graph(None)
        simulation.at(simulation.time(minutes=10), lambda: dg.materialize(built, instance=simulation.instance))
        simulation.deploy(graph("1"), at=simulation.time(minutes=20))
        simulation.run(hours=1)
    assert len(simulation.runs) == 1


def test_up_to_date_partition_whose_run_never_started_is_built_again() -> None:
    """26. Else it stays red in the UI until a person runs it."""
    assets = [source("x", DAYS), asset("core/x", "raw/x", by=DAYS, **ASAP)]
    simulation = Simulation(assets, start=START, every_tick=True)
    log = SimulatedLog(simulation.instance, simulation.clock, dg.Definitions(assets).resolve_asset_graph())

    def times_out() -> None:
        run = simulation.instance.get_run_by_id("by hand")
        assert run is not None
        reason = JobFailureData(error=None, failure_reason=RunFailureReason.START_TIMEOUT)
        simulation.instance.report_run_failed(run, "it took longer than 120 seconds to start", reason)

    simulation.arrive("raw/x", DAY, at=simulation.time(minutes=1))
    by_hand = {PARTITION_NAME_TAG: DAY}
    simulation.at(simulation.time(minutes=5), lambda: log.created("by hand", ["core/x"], by_hand) and None)
    simulation.at(simulation.time(minutes=7), times_out)
    simulation.run(minutes=15)
    assert [run.succeeded for run in simulation.runs_of("core/x", DAY)] == [True, True]


@pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL on this machine (Debian's package postgresql)")
def test_event_committed_two_minutes_after_its_id_was_taken_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """28. Until it is committed, events with later ids are read."""
    graph = graph_of(dg.Definitions([source("x", DAYS)]).resolve_asset_graph())
    with postgres_instance() as instance:
        follower = LogConsumer.started(instance, graph)
        observe(instance, "raw/x", "2026-10-01")
        with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
            late = connection.execute(sqlalchemy.select(Table)).one()
            connection.execute(sqlalchemy.delete(Table))
        observe(instance, "raw/x", "2026-10-02")
        follower.read(instance, lambda: False)
        shown, passed = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: shown() + 120)
        monkeypatch.setattr(time, "monotonic", lambda: passed() + 120)
        observe(instance, "raw/x", "2026-10-03")
        follower.read(instance, lambda: False)
        with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
            connection.execute(Table.insert().values(**late._mapping))
        follower.read(instance, lambda: False)
        assert follower.history.facts.with_content("raw/x") == {"2026-10-01", "2026-10-02", "2026-10-03"}
