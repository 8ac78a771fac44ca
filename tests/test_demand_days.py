"""Days of the demand model in the simulator: who is built when, and who waits for whom."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import Run, RunPace, Simulation
from pipelines.definitions import defs
from tests.sampling import sample

START = datetime(2026, 10, 4, tzinfo=UTC)  # a Sunday
FEATURES, MODEL, FORECAST = "ml/demand_features", "ml/demand_model", "ml/demand_forecast"
ROLLUP = "marts/executive_rollup"


def grocer(**versions: str) -> dg.Definitions:
    """The whole graph; with other code versions of some assets, by their last name."""

    def coded(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(code_version=versions.get(spec.key.path[-1], spec.code_version))

    assets = [a.map_asset_specs(coded) if isinstance(a, dg.AssetsDefinition) else a for a in defs.assets or ()]
    return dg.Definitions(assets, resources=defs.resources)


def begin(days: int, **more: Any) -> Simulation:
    """A platform with prices and an order file at seven, and another one at nineteen, of each day."""
    pace = RunPace(step=30.0, spread=0.5, tick=15.0)
    simulation = Simulation(grocer(), start=START, seed=1, pace=pace, **more)
    for number in range(days):
        simulation.arrive("raw/prices", day(number), at=simulation.time(days=number, hours=7))
        for hour in (7, 19):
            at = simulation.time(days=number, hours=hour, minutes=20)
            simulation.arrive("raw/orders", f"{day(number)}-{hour:02}:00", at=at)
    return simulation


def day(number: int) -> str:
    return f"{START + timedelta(days=number):%Y-%m-%d}"


def ended(runs: list[Run], of: str) -> list[float]:
    return [run.committed[of] for run in runs if of in run.committed]


def test_forecast_is_built_between_the_end_of_its_day_and_nine() -> None:
    simulation = begin(3)
    simulation.run(days=3, hours=12)
    for number in (0, 1, 2):
        (made,) = ended(simulation.runs_of(FORECAST, day(number)), FORECAST)
        assert simulation.time(days=number + 1) < made <= simulation.time(days=number + 1, hours=9)
        known = ended(simulation.runs_of(FEATURES, day(number)), FEATURES)
        assert any(simulation.time(days=number + 1) < at < made for at in known)


def test_demand_model_is_fitted_first_at_once_and_then_on_mondays() -> None:
    simulation = begin(9)
    simulation.run(days=9)
    first, *fits = ended(simulation.runs_of(MODEL), MODEL)
    assert first < simulation.time(hours=8)
    assert len(fits) == 2, simulation.runs_of(MODEL)
    for fit, monday in zip(fits, (1, 8), strict=True):
        assert simulation.time(days=monday, hours=1) < fit <= simulation.time(days=monday, hours=6)
    assert len(simulation.runs_of(FORECAST)) == 8, "a new model changes no forecast that was made"


@pytest.mark.parametrize("asset", sample(["demand_features", "orders"], "orders"))
def test_new_code_version_refits_the_model_once_and_rebuilds_forecasts(asset: str) -> None:
    simulation = begin(5)
    simulation.run(days=5, hours=12)
    before = len(simulation.runs)
    simulation.deploy(grocer(**{asset: "2"}), at=simulation.time(days=5, hours=13))
    simulation.run(hours=8)
    new = simulation.runs[before:]
    (fit,) = ended([run for run in new if MODEL in run.assets], MODEL)
    features = ended([run for run in new if FEATURES in run.assets], FEATURES)
    forecasts = ended([run for run in new if FORECAST in run.assets], FORECAST)
    assert max(features) < fit < min(forecasts)
    rebuilt = {p for run in new if FORECAST in run.assets for p in run.partitions}
    assert rebuilt == {day(number) for number in range(5)}
    rolled_up = {p for run in new if ROLLUP in run.assets for p in run.partitions}
    assert rolled_up == (rebuilt if asset == "orders" else set())


def test_new_model_code_refits_the_model_and_rebuilds_no_forecast() -> None:
    simulation = begin(3)
    simulation.run(days=3, hours=12)
    before = len(simulation.runs)
    simulation.deploy(grocer(demand_model="2"), at=simulation.time(days=3, hours=13))
    simulation.run(hours=4)
    assert [run.assets for run in simulation.runs[before:]] == [(MODEL,)]


def test_new_feature_code_with_equal_content_refits_nothing() -> None:
    simulation = begin(3, content=lambda target, inputs, code: f"{target}{sorted(inputs, key=repr)}")
    simulation.run(days=3, hours=12)
    before = len(simulation.runs)
    simulation.deploy(grocer(demand_features="2"), at=simulation.time(days=3, hours=13))
    simulation.run(hours=4)
    assert {asset for run in simulation.runs[before:] for asset in run.assets} == {FEATURES}
