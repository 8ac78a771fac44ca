"""What 10,000 commits of one file each leave behind of metadata: it has to be at most 200 MB.

The commits are appends of pyiceberg, the cheapest real writer, to a table that `catalog.ensure` made; after every
fiftieth the table is looked at as after one of ours, which is when old snapshots expire. A day is played in an hour or
less: at 10,000 commits a day no snapshot stays for its age alone, since in an hour there are fewer than stay anyway.
`TIDEMARK_PROOF_COMMITS=2500` does fewer and reckons from them.
"""

import os
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from pipelines.lakehouse import catalog, write
from pipelines.lakehouse.tables import Retention
from pipelines.schemas import core
from pipelines.settings import Settings
from tests.proof.conftest import Report

COMMITS = 10_000
MOST = 200_000_000
MERGED = "merged manifest"  # 400 bytes for each file, where one of a single file has 6,000
KEEPS = Retention()
TURN = KEEPS.batch // 10


@pytest.mark.timeout(12 * 3600)
def test_ten_thousand_commits_leave_at_most_200_mb_of_metadata(
    spark: SparkSession, spark_server: Settings, report: Report
) -> None:
    commits = int(os.environ.get("TIDEMARK_PROOF_COMMITS", COMMITS))
    assert commits > KEEPS.newest + 2 * KEEPS.batch, "too few to see any expire"
    assert COMMITS * KEEPS.held_for / timedelta(days=1) < KEEPS.newest
    declared = replace(core.ORDERS, name="test.metadata", retention=replace(KEEPS, held_for=timedelta(0)))
    catalog.ensure(spark, declared)
    prefix = "PYICEBERG_CATALOG__LAKE__"
    exports = spark_server.exports().items()
    lake = load_catalog("lake", **{n.removeprefix(prefix).lower(): v for n, v in exports if n.startswith(prefix)})
    table = lake.load_table(declared.name)
    schema = table.schema().as_arrow()
    folder = Path(table.location().removeprefix("file:").replace("//", "/")) / "metadata"
    begun = time.monotonic()
    most, expiries = 0, list[float]()
    for n in range(1, commits + 1):
        table.append(pa.Table.from_pylist([_row(n)], schema=schema))
        if n % TURN == 0:
            files, sizes = _metadata(folder)
            most = max(most, sizes.total())
            before = time.monotonic()
            write.commit_of(spark, declared, "nobody")
            if _metadata(folder)[0]["manifest list"] < files["manifest list"]:
                expiries.append(time.monotonic() - before)
                table.refresh()
    # Before an expiry, with the most snapshots there ever are. Of these each has a list and a manifest, whatever came
    # before; every hundredth has one in which all files are named.
    more = COMMITS / commits
    reckoned = {kind: round(size * (more if kind == MERGED else 1)) for kind, size in sizes.items()}
    report(
        "metadata",
        {
            "commits": commits,
            "seconds": round(time.monotonic() - begun),
            "files": dict(files),
            "bytes": dict(sizes),
            "bytes in all": sizes.total(),
            "bytes at most": most,
            "bytes after 10,000 commits": sum(reckoned.values()),
            "expiries": len(expiries),
            "seconds an expiry": [round(seconds, 1) for seconds in expiries],
        },
    )
    assert files["metadata.json"] <= 7
    assert files["manifest list"] <= KEEPS.newest + KEEPS.batch
    assert most <= MOST
    assert sum(reckoned.values()) <= MOST


def _metadata(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """How many files there are of each kind, and how many bytes."""
    files, sizes = Counter[str](), Counter[str]()
    for file in folder.glob("[!.]*.*"):
        kind, size = _kind(file), file.stat().st_size
        files[kind] += 1
        sizes[kind] += size
    return files, sizes


def _kind(file: Path) -> str:
    if file.name.endswith(".metadata.json"):
        return "metadata.json"
    if file.name.startswith("snap-"):
        return "manifest list"
    return "manifest" if file.stat().st_size < 20_000 else MERGED


def _row(n: int) -> dict[str, object]:
    hour = datetime(2026, 10, 1, tzinfo=UTC) + timedelta(hours=n // 24)
    numbers = dict.fromkeys(("order_id", "line_number", "customer_id", "product_id", "store_id", "quantity"), n)
    money = dict.fromkeys(("unit_price_usd", "discount", "revenue_usd"), Decimal("1.2500"))
    return {
        **numbers,
        **money,
        "ordered_at": hour,
        "hour": hour,
        "source_file": f"orders/dt={hour:%Y-%m-%d}/hour={hour:%H}/{n:05}.csv",
        "source_version": f"{n:032x}-1200-1790838000000",
        "arrived_at": hour,
        "loaded_by": "1",
    }
