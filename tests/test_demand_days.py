"""Days of the demand model in the simulator: who is built when, and who waits for whom."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from pipelines.definitions import defs
from pipelines.tidemark.simulation.simulator import Run, RunPace, Simulation

START = datetime(2026, 10, 4, tzinfo=UTC)  # a Sunday
FEATURES, MODEL, FORECAST = "ml/demand_features", "ml/demand_model", "ml/demand_forecast"
CHAIN = {"raw/orders", "core/orders", FEATURES, MODEL, FORECAST}


def chain(**versions: str) -> list[Any]:
    """The demand model and what it is made of; with other code versions of some assets, by their last name."""

    def coded(spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(code_version=versions.get(spec.key.path[-1], spec.code_version))

    assets = [a for a in defs.assets or () if isinstance(a, dg.AssetsDefinition)]
    found = [a for a in assets if a.key.to_user_string() in CHAIN and a.is_executable]
    sources = [a for a in defs.assets or () if getattr(a, "key", None) == dg.AssetKey(["raw", "orders"])]
    assert len(found) >= len(CHAIN) - 1 and sources
    return [a.map_asset_specs(coded) if a.is_materializable else a for a in {id(a): a for a in found + sources}.values()]


def begin(days: int, **more: Any) -> Simulation:
    """A platform with an order file at seven and at nineteen of each day."""
    simulation = Simulation(chain(), start=START, seed=1, pace=RunPace(step=30.0, spread=0.5), **more)
    for day in range(days):
        for hour in (7, 19):
            partition = f"{START + timedelta(days=day, hours=hour):%Y-%m-%d-%H:00}"
            simulation.arrive("raw/orders", partition, at=simulation.time(days=day, hours=hour, minutes=20))
    return simulation


def day(number: int) -> str:
    return f"{START + timedelta(days=number):%Y-%m-%d}"


def ended(runs: list[Run], of: str) -> list[float]:
    return [run.committed[of] for run in runs if of in run.committed]


def test_a_days_features_become_its_forecast_by_nine_of_the_next_and_not_before_its_end() -> None:
    simulation = begin(3)
    simulation.run(days=3, hours=12)
    for number in (0, 1, 2):
        (made,) = ended(simulation.runs_of(FORECAST, day(number)), FORECAST)
        assert simulation.time(days=number + 1) < made <= simulation.time(days=number + 1, hours=9)
        assert min(ended(simulation.runs_of(FEATURES, day(number)), FEATURES)) < made


def test_the_model_is_fitted_on_mondays_before_six_and_at_no_other_time() -> None:
    simulation = begin(9)
    simulation.run(days=9)
    fits = ended(simulation.runs_of(MODEL), MODEL)
    assert len(fits) == 2, simulation.runs_of(MODEL)
    for fit, monday in zip(fits, (1, 8), strict=True):
        assert simulation.time(days=monday, hours=1) < fit <= simulation.time(days=monday, hours=6)
    assert len(simulation.runs_of(FORECAST)) == 8, "a new model changes no forecast that was made"


@pytest.mark.parametrize("asset", ["demand_features", "orders"])
def test_after_new_code_the_model_is_refitted_once_and_the_forecasts_follow_it(asset: str) -> None:
    simulation = begin(5)
    simulation.run(days=5, hours=12)
    before = len(simulation.runs)
    simulation.deploy(chain(**{asset: "2"}), at=simulation.time(days=5, hours=13))
    simulation.run(hours=8)
    new = simulation.runs[before:]
    (fit,) = ended([run for run in new if MODEL in run.assets], MODEL)
    features = ended([run for run in new if FEATURES in run.assets], FEATURES)
    forecasts = ended([run for run in new if FORECAST in run.assets], FORECAST)
    assert max(features) < fit < min(forecasts)
    rebuilt = {p for run in new if FORECAST in run.assets for p in run.partitions}
    assert rebuilt == {day(number) for number in range(5)}


def test_new_code_of_the_model_fits_it_at_once_and_makes_no_forecast_anew() -> None:
    simulation = begin(3)
    simulation.run(days=3, hours=12)
    before = len(simulation.runs)
    simulation.deploy(chain(demand_model="2"), at=simulation.time(days=3, hours=13))
    simulation.run(hours=4)
    assert [run.assets for run in simulation.runs[before:]] == [(MODEL,)]


def test_new_code_of_the_features_with_equal_content_fits_nothing() -> None:
    simulation = begin(3, content=lambda target, inputs, code: f"{target}{sorted(inputs, key=repr)}")
    simulation.run(days=3, hours=12)
    before = len(simulation.runs)
    simulation.deploy(chain(demand_features="2"), at=simulation.time(days=3, hours=13))
    simulation.run(hours=4)
    assert {asset for run in simulation.runs[before:] for asset in run.assets} == {FEATURES}
