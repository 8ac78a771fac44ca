"""Commits file after file to a table, as a process of its own, and prints what metadata there are: a line of JSON each.

The files are written in one go, to another table; each is then an append by itself, of Iceberg's own library in a Spark
of this process. So a commit writes what a run's does, in a tenth of the time. After each that old snapshots may expire
with, the table is looked at as after a commit of a run.
"""

import json
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Retention
from dagster_tidemark.settings import load_settings
from tests.toys import schemas

MERGED = "merged manifest"
TURN = Retention().batch // 10
_FEW_BYTES = 12_000  # a manifest of one file has 8,000 at most, one that is merged of a hundred at least 20,000


def main(commits: int) -> None:
    """Commit so often."""
    spark: Any = new_session(load_settings())
    source, table = replace(schemas.ORDERS, name="test.files"), replace(schemas.ORDERS, name="test.metadata")
    # A day is played in less than an hour. At 10,000 commits a day, in an hour fewer are made than stay anyway.
    table = replace(table, retention=replace(table.retention, held_for=timedelta(0)))
    for declared in (source, table):
        catalog.ensure(spark, declared)
    _orders(spark, commits).writeTo(source.identifier).option("fanout-enabled", "false").append()
    load = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable
    files = load(spark._jsparkSession, source.identifier).newScan().includeColumnStats().planFiles().iterator()
    target = load(spark._jsparkSession, table.identifier)
    folder = Path(target.location().removeprefix("file:")) / "metadata"
    begun = time.monotonic()
    for n in range(1, commits + 1):
        append = target.newAppend().appendFile(files.next().file())
        append.set(write.RUN_ID, f"{n:08x}-0000-4000-8000-000000000000")
        append.commit()
        if n % TURN == 0:
            before, looked_at = metadata(folder), time.monotonic()
            write.commit_of(spark, table, "nobody")
            told = {
                "commits": n,
                "seconds": round(time.monotonic() - begun, 1),
                "this look": round(time.monotonic() - looked_at, 1),
                "before": before,
                "after": metadata(folder),
            }
            print(json.dumps(told), flush=True)
            target.refresh()
    spark.stop()


def _orders(spark: SparkSession, count: int) -> DataFrame:
    """One row an hour, each of which becomes a file."""
    numbers = ("order_id", "line_number", "customer_id", "product_id", "store_id", "quantity")
    money = ("unit_price_usd", "discount", "revenue_usd")
    values = (
        dict.fromkeys(numbers, "CAST(rand() * 1000000 AS BIGINT)")
        | dict.fromkeys(money, "rand() * 100")
        | {
            "hour": "TIMESTAMP '2026-01-01' + make_dt_interval(0, CAST(id AS INT))",
            "ordered_at": "TIMESTAMP '2026-01-01' + make_dt_interval(0, CAST(id AS INT), 0, rand() * 3600)",
            "source_file": "concat('orders/dt=2026-10-01/hour=07/', uuid(), '.csv')",
            "source_version": "concat(md5(uuid()), '-1200-1790838000000')",
            "arrived_at": "current_timestamp()",
            "loaded_by": "'1'",
        }
    )
    kinds = schemas.ORDERS.columns
    frame = spark.range(count, numPartitions=2)
    return frame.selectExpr(*(f"CAST({values[c]} AS {kind}) AS {c}" for c, kind in kinds.items()))


def metadata(folder: Path) -> dict[str, tuple[int, int]]:
    """How many files there are of each kind, and how many bytes."""
    files, sizes = Counter[str](), Counter[str]()
    for file in folder.iterdir():
        size = file.stat().st_size
        kind = _kind(file.name, size)
        files[kind] += 1
        sizes[kind] += size
    return {kind: (count, sizes[kind]) for kind, count in files.items()}


def _kind(name: str, size: int) -> str:
    if name.startswith("."):
        return "checksum"
    if name.endswith(".metadata.json"):
        return "metadata.json"
    if name.startswith("snap-"):
        return "manifest list"
    return "manifest" if size < _FEW_BYTES else MERGED


if __name__ == "__main__":
    main(int(sys.argv[1]))
