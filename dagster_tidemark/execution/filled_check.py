"""Checks that count missing values in a column while the rows are written.

Does not belong here: refusing rows without a value, which the transform decides.
"""

from collections.abc import Callable, Sequence

import dagster as dg
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F


def filled_check(asset: Sequence[str], column: str, meaning: str) -> dg.AssetCheckSpec:
    """Return a check that warns of rows without a value in a column.

    Args:
        meaning: Plural noun for such rows, such as "products without a price".
    """
    return dg.AssetCheckSpec(f"{column}_filled", asset=dg.AssetKey(asset), description=f"Warns of {meaning}.")


def counting_missing(rows: DataFrame, column: str) -> tuple[DataFrame, Callable[[], int]]:
    """Return the rows, and a function that returns how many lack a value. Call it after the rows are written."""
    observation = Observation(f"{column}_missing")
    missing = F.count_if(F.col(column).isNull()).alias("missing")
    return rows.observe(observation, missing), lambda: int(observation.get["missing"])


def filled_result(column: str, meaning: str, missing: int) -> dg.AssetCheckResult:
    """Return the result of `filled_check` for the rows that a run wrote."""
    return dg.AssetCheckResult(
        passed=missing == 0,
        check_name=f"{column}_filled",
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{missing} {meaning} in the rows that this run wrote",
        metadata={"missing": missing},
    )
