"""Missing values are counted by the job that writes the rows, also over Spark Connect."""

import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.execution.filled_check import counting_missing, filled_check, filled_result
from dagster_tidemark.execution.io_manager import IcebergIOManager
from dagster_tidemark.lakehouse.table import Table


def test_missing_values_are_counted_by_the_run_that_writes_the_rows(spark: SparkSession) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    table = Table(f"test.{name}", {"n": "bigint", "cost_usd": "bigint"}, row_key=("n",))
    source = SimpleNamespace(session=spark)

    @dg.asset(key=["test", name], check_specs=[filled_check(["test", name], "cost_usd", "things without a cost")])
    def things() -> Iterator[dg.Output[DataFrame] | dg.AssetCheckResult]:
        rows, missing = counting_missing(
            spark.sql("SELECT id AS n, if(id < 2, NULL, id) AS cost_usd FROM range(5)"), "cost_usd"
        )
        yield dg.Output(rows)
        yield filled_result("cost_usd", "things without a cost", missing())

    result = dg.materialize([things], resources={"io_manager": IcebergIOManager({table.name: table}, source)})
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.description == "2 things without a cost in the rows that this run wrote"
    assert spark.table(table.identifier).count() == 5
