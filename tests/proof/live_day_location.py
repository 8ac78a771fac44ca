"""A code location of one chain: files of tills, their table with a check, and the takings with a contract.

`LIVE_DAY_FOLDER/broken/takings` lets the transform fail, `broken/sane` lets the check raise. `LIVE_DAY_BEGIN` is the
due time of the file that does not come (Unix seconds), `LIVE_DAY_URL` the address of the webhook. Does not belong here:
the faults, and what is expected (`tests.proof.test_live_day`).
"""

import os
from datetime import timedelta
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark import (
    LINEAGE,
    ExpectedArrival,
    Feed,
    Grain,
    Table,
    Webhook,
    build_definitions,
    feed_assets,
    load_settings,
    shaped_as,
    table_asset,
)
from dagster_tidemark.planner import run_retries

CONTRACT = timedelta(seconds=90)
BEGIN = float(os.environ.get("LIVE_DAY_BEGIN", "86400"))
HOURS = dg.HourlyPartitionsDefinition(f"{load_settings().start_date}-00:00")
TILLS = Table(
    "core.tills",
    {"hour": "timestamp", "sale_id": "bigint", "amount_usd": "double"} | LINEAGE,
    partitioned_by="hour",
    row_key=("hour", "sale_id"),
)
TAKINGS = Table(
    "marts.takings",
    {"hour": "timestamp", "sales": "bigint", "takings_usd": "double"},
    partitioned_by="hour",
    row_key=("hour",),
)
FEED = Feed("tills", "tills/", Grain.HOUR, {"sale_id": "bigint", "amount_usd": "double"}, required=("sale_id",))

if "LIVE_DAY_FOLDER" in os.environ:  # only where the location is loaded: the day has no minute for each failure
    run_retries.FIRST_PAUSE = 10.0


def window_end(begin: float = BEGIN) -> float:
    """Return the end of the window whose file does not come (Unix seconds)."""
    return begin // 3600 * 3600


def _is_broken(name: str) -> bool:
    return (Path(os.environ["LIVE_DAY_FOLDER"]) / "broken" / name).exists()


@dg.asset_check(asset=["core", "tills"], blocking=True)
def sane() -> dg.AssetCheckResult:
    """Whether the amounts are sane."""
    if _is_broken("sane"):
        raise ZeroDivisionError("the check divides by the number of tills of another shop")
    return dg.AssetCheckResult(passed=True)


@table_asset(
    TAKINGS,
    ins={"tills": "core/tills"},
    partitions=HOURS,
    fresh=CONTRACT,
    owners=["team:sales"],
    code_version="1",
    tags={"tidemark/pace": "asap"},
)
def takings(tills: DataFrame) -> DataFrame:
    """One row per hour: its sales and takings."""
    if _is_broken("takings"):
        raise ValueError("a column was renamed")
    found = tills.groupBy("hour").agg(F.count("*").alias("sales"), F.sum("amount_usd").alias("takings_usd"))
    return shaped_as(found, TAKINGS.columns)


defs = build_definitions(
    load_settings(),
    [*feed_assets(FEED, TILLS, partitions_def=HOURS, owners=["team:core"]), sane, takings],
    [FEED],
    [TILLS, TAKINGS],
    notify=[Webhook(url=os.environ.get("LIVE_DAY_URL", "http://127.0.0.1:1"), secret=dg.EnvVar("LIVE_DAY_SECRET"))],
    expected=[ExpectedArrival(source="raw/tills", within=timedelta(seconds=BEGIN - window_end()))],
)
