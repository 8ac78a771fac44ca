"""Features, model and forecast on a real Spark server: what they hold, what serves, and what a kill leaves behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import Table
from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.models import ModelStore
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams import StreamContext
from pipelines.definitions import defs
from pipelines.models.demand import DemandLearner
from pipelines.schemas.core import ORDERS
from pipelines.schemas.ml import DEMAND_FEATURES, DEMAND_FORECAST, DEMAND_MODEL
from pipelines.streams.scoring import SCORING, DemandScores
from tests.checkout import CHECKOUT
from tests.grocer_code import resources
from tests.grocer_demand import FIRST_DAY, order_lines
from tests.oracle import _SQL, assert_same

# Dagster of its own nested resources.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")

DAYS = [FIRST_DAY + timedelta(days=number) for number in range(16)]
LAST = DAYS[-1].isoformat()
KILLED = """
import sys, time
from pathlib import Path
import dagster as dg
from pipelines.definitions import defs
from pipelines.models import demand
from dagster_tidemark.models import ModelStore

class Learner(demand.DemandLearner):
    def __init__(self): super().__init__(seed=int(sys.argv[2]))
demand.DemandLearner = Learner
def stopping(method, before):
    def call(*args):
        kept = None if before else method(*args)
        Path(sys.argv[3]).touch()
        time.sleep(600)
    return call
if sys.argv[1] == "in the fit":
    Learner.fit = stopping(Learner.fit, True)
else:
    ModelStore.save = stopping(ModelStore.save, False)
assets = [a for a in defs.assets if isinstance(a, (dg.AssetsDefinition, dg.AssetSpec))]
with dg.DagsterInstance.ephemeral() as instance:
    dg.materialize(assets, selection=["ml/demand_model"], resources=defs.resources, instance=instance)
"""


@dataclass
class Lake:
    """The grocer's tables of a few days, and runs on them."""

    spark: SparkSession
    settings: Settings
    instance: dg.DagsterInstance

    def run(self, asset: str, *days: str) -> dg.ExecuteInProcessResult:
        assets = [a for a in defs.assets or () if isinstance(a, dg.AssetsDefinition | dg.AssetSpec)]
        names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
        tags = dict(zip(names, (days[0], days[-1]), strict=True)) if days else {}
        done = dg.materialize(
            assets, selection=[f"ml/{asset}"], tags=tags, resources=resources(self.settings), instance=self.instance
        )
        assert done.success
        return done

    def rows(self, table: Table) -> pd.DataFrame:
        return self.spark.table(table.identifier).toPandas()

    def fit(self) -> tuple[dict[str, Any], dict[str, bool]]:
        """The newest row after a run of the model, and which of its checks passed."""
        done = self.run("demand_model")
        checks = {each.check_name: each.passed for each in done.get_asset_check_evaluations()}
        rows = self.spark.table(DEMAND_MODEL.identifier)
        return rows.orderBy(rows["fitted_at"].desc()).head(1)[0].asDict(), checks

    def serving(self) -> set[str]:
        """The versions that forecast the last day, if it is forecast now."""
        self.run("demand_forecast", LAST)
        return set(self.rows(DEMAND_FORECAST)["model_version"])


@pytest.fixture(scope="module")
def lake(spark_server: Settings, spark: SparkSession) -> Iterator[Lake]:
    """core/orders of some stores' first days, and their features."""
    lines = [
        (*vars(line).values(), hour, Decimal(0), "a.csv", "1", hour, "1")
        for hour, line in order_lines(len(DAYS))
        if line.store_id <= 3 and line.product_id <= 110
    ]
    schema = ", ".join(f"{name} {kind}" for name, kind in ORDERS.columns.items())
    catalog.ensure(spark, ORDERS)
    hours = [f"{day}-{hour:02}:00" for day in DAYS for hour in range(24)]
    write.overwrite(spark.createDataFrame(lines, schema), ORDERS, hours, run_id="test")
    environment = {name: os.environ.get(name) for name in spark_server.exports()}
    os.environ.update(spark_server.exports())
    with dg.DagsterInstance.ephemeral() as instance:
        made = Lake(spark, spark_server, instance)
        made.run("demand_features", DAYS[0].isoformat(), LAST)
        yield made
    for name, value in environment.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives the model's asset other parameters."""

    def use(**parameters: Any) -> None:
        monkeypatch.setattr("pipelines.models.demand.DemandLearner", lambda: DemandLearner(**parameters))

    return use


def test_demand_features_equal_those_computed_by_duckdb(lake: Lake) -> None:
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("sold", lake.spark.table(ORDERS.identifier).toArrow())
    db.execute('CREATE VIEW "core.orders" AS SELECT * REPLACE (CAST(hour AS TIMESTAMP) AS hour) FROM sold')
    expected = db.sql(f"FROM ({_SQL['ml.demand_features']}) WHERE day BETWEEN DATE '{DAYS[0]}' AND DATE '{LAST}'")
    assert_same("ml.demand_features", expected.to_arrow_table(), lake.spark.table(DEMAND_FEATURES.identifier).toArrow())


def test_published_model_is_used_until_a_better_one_is_fitted(lake: Lake, learner: Callable[..., None]) -> None:
    first, checks = lake.fit()
    assert first["published"] and checks == {"published": True, "beats_naive": True}
    assert first["mean_absolute_error"] < first["naive_error"]
    assert first["trained_through"] < first["tested_from"] <= first["tested_through"] < DAYS[-1]
    assert first["features_snapshot_id"] == write.current_snapshot(lake.spark, DEMAND_FEATURES)
    assert lake.serving() == {first["version"]}
    forecast = lake.rows(DEMAND_FORECAST)
    features = lake.rows(DEMAND_FEATURES).query("day == @DAYS[-1]")
    store: ModelStore[Any, Any] = ModelStore("demand", DemandLearner(), lake.settings)
    by = ["store_id", "product_id"]
    scored = store.load(first["version"]).predict(features.sort_values(by)).tolist()
    assert set(forecast["forecast_day"]) == {DAYS[-1] + timedelta(days=1)}
    assert forecast.sort_values(by)["quantity"].tolist() == scored

    same, checks = lake.fit()
    assert same == first and len(lake.rows(DEMAND_MODEL)) == 1 and all(checks.values()), "nothing has changed"

    learner(iterations=1, learning_rate=1e-4)
    worse, checks = lake.fit()
    assert worse["version"] != first["version"] and not worse["published"] and not checks["published"]
    assert "serves on" in worse["reason"] and worse["replaced_error"] == pytest.approx(first["mean_absolute_error"])
    assert lake.serving() == {first["version"]}
    again, checks = lake.fit()
    assert again == worse and not checks["published"], "what was not published is not fitted again, and says so again"

    learner(iterations=140)
    other, checks = lake.fit()
    assert other["published"] and checks["published"]
    assert lake.serving() == {other["version"]}
    assert store.load(first["version"]).predict(features.sort_values(by)).tolist() == scored, "it scores as it did"

    shutil.rmtree(other["path"])
    restored, checks = lake.fit()
    assert restored["version"] == other["version"] and restored["published"] and restored["replaced_error"] is None
    assert lake.serving() == {other["version"]}


def test_score_for_the_next_day_equals_the_forecast(lake: Lake) -> None:
    lake.fit()
    lake.serving()
    answers = DemandScores(StreamContext(lake.settings, open_lake(lake.settings), SCORING))
    forecast = lake.rows(DEMAND_FORECAST).query("day == @DAYS[-1]").to_dict("records")
    told = answers([{**row, "date": row["forecast_day"]} for row in forecast])
    assert told == [{"score": row["quantity"], "model_version": row["model_version"]} for row in forecast]
    assert len(told) > 20


@pytest.mark.proof
@pytest.mark.parametrize(
    ("where", "seed"), [("in the fit", 11), pytest.param("before the row", 12, marks=pytest.mark.proof)]
)
def test_killed_fit_keeps_the_old_model_and_the_next_run_completes(
    lake: Lake, learner: Callable[..., None], tmp_path: Path, where: str, seed: int
) -> None:
    lake.run("demand_model")
    served, rows = lake.serving(), len(lake.rows(DEMAND_MODEL))
    reached = tmp_path / "reached"
    _killed_at(lake.settings, reached, where, str(seed))
    assert lake.serving() == served and len(lake.rows(DEMAND_MODEL)) == rows

    learner(seed=seed)
    kept = set((Path(lake.settings.warehouse) / "models" / "demand").iterdir())
    newest, _ = lake.fit()
    assert len(lake.rows(DEMAND_MODEL)) == rows + 1
    assert (Path(newest["path"]) in kept) == (where == "before the row")
    assert lake.serving() == ({newest["version"]} if newest["published"] else served)


def _killed_at(settings: Settings, reached: Path, *arguments: str) -> None:
    command: Sequence[str] = [sys.executable, "-P", "-c", KILLED, *arguments, str(reached)]
    process = subprocess.Popen(
        command, cwd=CHECKOUT, env=os.environ | settings.exports() | {"PYTHONPATH": str(CHECKOUT)}
    )
    try:
        deadline = time.monotonic() + 200
        while not reached.exists():
            assert process.poll() is None, "it has ended before it came there"
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
