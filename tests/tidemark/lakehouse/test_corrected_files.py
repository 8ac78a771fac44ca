"""Files that are corrected, moved, removed and put again: after each load, the table has what docs/feeds.md says.

Times are those that other stores than S3 may list: years ago, equal, in the future, and older than the replaced file's.
"""

import dataclasses
from datetime import UTC, datetime
from random import Random

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import load_plan, load_state
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.listing import LandedObject
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import HOUR, Delete, Loading, Put, csv, key, line

HOURS = (HOUR, "2026-10-01-08:00")
NAMES = ("a.csv", "a+b.csv", "a%2Bb c.csv", "ü 漢#?.csv")
TIMES = [datetime(year, 1, 1, tzinfo=UTC) for year in (1999, 2026, 2026, 2199)]


@pytest.mark.parametrize("few_files", sample([2, 50], 2))
@pytest.mark.parametrize("size", sample([0, small_files.SMALL], small_files.SMALL), ids=["workers", "run"])
def test_table_follows_corrected_moved_and_removed_files_whatever_their_times(
    spark: SparkSession,
    put: Put,
    delete: Delete,
    loading: Loading,
    orders: Load,
    size: int,
    few_files: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = Random(f"{size} {few_files}")
    files: dict[str, tuple[str, dict[int, int]]] = {}  # the partition and the quantity of each order, by key
    times: dict[str, datetime] = {}

    def at_its_time(landed: LandedObject, partition: Partition) -> SourceFile:
        file, at = source_file(landed, partition), times[landed.key]
        return dataclasses.replace(file, version=f"{landed.etag} {at.year}", arrived_at=at)

    source_file = load_state.source_file
    monkeypatch.setattr(load_state, "source_file", at_its_time)
    monkeypatch.setattr(load_plan, "FEW_FILES", few_files)
    monkeypatch.setattr(small_files, "SMALL", size)

    def write(at: str, hour: Partition, content: dict[int, int]) -> None:
        put(at, csv(*(line(n, quantity, f"2026-10-01T{hour[11:13]}:15:00Z") for n, quantity in content.items())))
        files[at], times[at] = (hour, content), random.choice(TIMES)

    def remove(at: str) -> tuple[Partition, dict[int, int]]:
        delete(at)
        return files.pop(at)

    for step in range(6):
        for _ in range(6 if not step else random.randint(1, 3)):
            hour = random.choice(HOURS)
            at = key(orders, random.choice(NAMES), hour)
            change = random.random()
            if at not in files or change < 0.4:
                write(at, hour, {n: random.randint(1, 99) for n in random.sample(range(6), random.randint(1, 4))})
            elif change < 0.6:  # moved to the other folder
                to = HOURS[hour == HOURS[0]]
                write(key(orders, at.rpartition("/")[2], to), to, remove(at)[1])
            elif change < 0.8:  # deleted and put again with the same bytes
                write(at, *remove(at))
            else:
                remove(at)
        loading(orders, *HOURS)

        expected: dict[tuple[str, int], int] = {}
        for at in sorted(files, key=lambda at: (times[at], at)):
            expected |= {(at.rpartition("/")[0], n): quantity for n, quantity in files[at][1].items()}
        found = spark.table(orders.table.identifier).select("source_file", "order_id", "quantity").collect()
        got = {(row.source_file.rpartition("/")[0], row.order_id): row.quantity for row in found}
        assert (len(found), got) == (len(got), expected), f"step {step}: {files} {times}"
