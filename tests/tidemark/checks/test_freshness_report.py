"""The asset `ops/freshness` and its sensor, on simulated days, with a real catalog and no Spark."""

import io
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from dagster_tidemark import build_definitions
from dagster_tidemark.cli.status_view import lag_table
from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine.condition import own_assets
from dagster_tidemark.engine.lag_history import FRESHNESS_ASSET, lags
from dagster_tidemark.execution.freshness_report import FRESHNESS, freshness_asset
from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.sensors.freshness_sensor import NAME, missing_days
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.tags import CODE_LOCATION, REQUESTED_BY
from tests.tidemark.toy_graph import ASAP, HOURS, START, asset, lag, source


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "warehouse").mkdir()
    changes = {"catalog_uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    return load_settings().model_copy(update=changes)


def location() -> list[object]:
    return [
        source("orders", HOURS),
        asset("core/orders", "raw/orders", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
    ]


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    """Two days with data at seven, built within a minute on the first day, an hour late on the second."""
    made = Simulation(location(), start=START)  # type: ignore[arg-type]
    for day in (5, 6):
        at = made.time(days=day - 5, hours=7)
        made.arrive("raw/orders", f"2026-10-{day:02}-06:00", at=at)
    made.run(days=1)
    made.switch("automation", on=False, at=made.time(days=1, hours=6))
    made.switch("automation", on=True, at=made.time(days=1, hours=8))
    made.run(days=1, minutes=10)
    yield made
    made.instance.dispose()


def rows(settings: Settings) -> dict[date, dict[str, object]]:
    return {row["day"]: row for row in Appendable(open_lake(settings), FRESHNESS).rows().to_pylist()}


def build(simulation: Simulation, settings: Settings, *days: str) -> dg.ExecuteInProcessResult:
    definition = freshness_asset(settings, lambda: simulation.asset_graph)
    job = dg.Definitions([definition]).resolve_implicit_global_asset_job_def()
    tags = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[-1]}
    with simulation.clock.frozen():
        return job.execute_in_process(instance=simulation.instance, tags=tags)


def test_report_has_a_row_per_asset_and_day_and_is_replaced_when_built_again(
    simulation: Simulation, settings: Settings
) -> None:
    done = build(simulation, settings, "2026-10-05", "2026-10-06")
    assert done.success
    found = rows(settings)
    assert [(row["asset"], row["contract"]) for row in found.values()] == [("core/orders", "within 5 min")] * 2
    first, second = found[date(2026, 10, 5)], found[date(2026, 10, 6)]
    assert 20 < first["longest_lag_s"] < 60 and first["within_contract"] == 1.0  # type: ignore[operator]
    assert first["observed_s"] == pytest.approx(17 * 3600, abs=60), "the log begins at seven"
    assert second["longest_lag_s"] == pytest.approx(3630, abs=60)
    assert second["within_contract"] == pytest.approx(1 - 3330 / 86_400, abs=0.001)
    assert second["mean_lag_s"] == pytest.approx(3630 * 3630 / 2 / 86_400, rel=0.05)
    build(simulation, settings, "2026-10-06")
    assert rows(settings).keys() == found.keys()
    metadata = {m.partition: m.metadata for m in done.asset_materializations_for_node("ops__freshness")}
    assert metadata["2026-10-06"]["assets outside their contract"].value == 1
    assert metadata["2026-10-06"]["code location"].value == settings.code_location
    seen = simulation.instance.fetch_observations(dg.AssetKey(["core", "orders"]), limit=1).records[0]
    assert seen.asset_observation is not None
    assert seen.asset_observation.metadata["lag, longest (seconds)"].value == pytest.approx(
        second["longest_lag_s"], abs=0.001
    )
    assert seen.asset_observation.metadata["lag, promised (seconds)"].value == 300
    share = second["longest_lag_s"] / 300  # type: ignore[operator]
    assert seen.asset_observation.metadata["lag, longest (share of promised)"].value == pytest.approx(share, abs=0.001)


def test_status_shows_the_lags_of_the_last_day(simulation: Simulation) -> None:
    with simulation.clock.frozen():
        end = event_time.now()
        found = lags(simulation.instance, simulation.asset_graph, [(end - 86_400, end)])
    out = io.StringIO()
    Console(file=out, width=120).print(lag_table(found))
    shown = out.getvalue()
    assert "core/orders" in shown and "within 5 min" in shown and "1 h" in shown and "96.1" in shown, shown


def test_report_changes_nothing_for_the_planner(simulation: Simulation, settings: Settings) -> None:
    before = simulation.plan()
    build(simulation, settings, "2026-10-05", "2026-10-06")
    assert simulation.plan().decisions == before.decisions


def test_sensor_requests_ended_days_that_are_missing_and_pauses_after_a_failure(settings: Settings) -> None:
    defs = build_definitions(settings, location(), [], [], freshness_report=True)
    repository = defs.get_repository_def()
    sensor = repository.get_sensor_def(NAME)
    with dg.instance_for_test() as instance, pytest.MonkeyPatch.context() as patched:

        def tick(at: str, cursor: str | None) -> dg.SensorResult | dg.SkipReason:
            now = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
            patched.setattr(event_time, "now", lambda: now)
            context = dg.build_sensor_context(instance, cursor=cursor, repository_def=repository)
            found = sensor(context)
            assert isinstance(found, dg.SensorResult | dg.SkipReason)
            return found

        began = tick("2026-10-05 12:00", None)
        assert isinstance(began, dg.SensorResult) and not began.run_requests
        assert isinstance(tick("2026-10-06 00:04", began.cursor), dg.SkipReason), "the day may still get events"
        asked = tick("2026-10-06 00:05", began.cursor)
        assert isinstance(asked, dg.SensorResult) and asked.run_requests
        assert [(r.partition_key, r.tags[REQUESTED_BY]) for r in asked.run_requests] == [("2026-10-05", NAME)]
        later = tick("2026-10-08 00:05", began.cursor)
        assert isinstance(later, dg.SensorResult) and later.run_requests
        tags = later.run_requests[0].tags
        assert tags["dagster/asset_partition_range_start"] == "2026-10-05"
        assert tags["dagster/asset_partition_range_end"] == "2026-10-07"
        for day, location_ in (("2026-10-06", settings.code_location), ("2026-10-07", "other")):
            reported = dg.AssetMaterialization(FRESHNESS_ASSET, metadata={"code location": location_}, partition=day)
            instance.report_runless_asset_event(reported)
        missing = missing_days(instance, settings.code_location, date(2026, 10, 5), event_time.now())
        assert [str(day) for day in missing] == ["2026-10-05", "2026-10-07"]

        def started(location_: str) -> dg.DagsterRun:
            return instance.create_run_for_job(
                repository.get_implicit_global_asset_job_def(),
                tags={REQUESTED_BY: NAME, CODE_LOCATION: location_},
                status=dg.DagsterRunStatus.STARTED,
            )

        started("other")
        assert isinstance(tick("2026-10-08 00:05", began.cursor), dg.SensorResult), "that run reports other assets"
        run = started(settings.code_location)
        held = tick("2026-10-08 00:06", began.cursor)
        assert isinstance(held, dg.SkipReason) and "is under way" in str(held.skip_message)
        patched.undo()
        instance.report_run_failed(run)
        ended = datetime.now(UTC)
        pause = tick(f"{ended:%Y-%m-%d %H:%M:%S}", began.cursor)
        assert isinstance(pause, dg.SkipReason) and "1 runs failed" in str(pause.skip_message)


def test_report_is_no_code_of_the_project_and_has_no_automation(settings: Settings) -> None:
    defs = build_definitions(settings, location(), [], [], freshness_report=True)
    assert FRESHNESS_ASSET.to_user_string() not in assets_of(
        own_assets(defs), Project(settings.code_root, settings.code_location)
    )
    graph = defs.resolve_asset_graph()
    assert graph.has(FRESHNESS_ASSET) and graph.get(FRESHNESS_ASSET).automation_condition is None
    without = build_definitions(settings, location(), [], []).resolve_asset_graph()
    assert not without.has(FRESHNESS_ASSET)
