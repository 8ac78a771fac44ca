"""A file with none of the declared columns is refused, not landed as nulls; a file that lacks some is named."""

import gzip
import io
import json
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.execution.load_check import columns_said, quarantine_result
from dagster_tidemark.lakehouse.loading.load import Load, Loaded
from dagster_tidemark.lakehouse.readers import batch, small_files
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.readers.probe import Inspected, inspect
from dagster_tidemark.lakehouse.table import LINEAGE, SOURCE_ROW, Table
from dagster_tidemark.sources.feed import Feed, Grain, NewColumns
from tests.tidemark.lakehouse.conftest import Loading, Put, quarantined, renamed
from tests.tidemark.lakehouse.test_inspection import Store

DAY = "2026-10-01"
COLUMNS = {"tripduration": "bigint", "starttime": "string", "bikeid": "bigint"}
FEED = Feed("trips", "trips/", Grain.DAY, COLUMNS)
NEW = [{"ride_id": "a", "started_at": "b"}, {"ride_id": "c", "started_at": "d"}]
OLD = [{"tripduration": 1, "starttime": "b"}, {"tripduration": 2, "starttime": "d"}]
TRIPS = Load(
    FEED,
    Table(
        "core.trips",
        {"day": "date"} | COLUMNS | SOURCE_ROW | LINEAGE,
        ("day", "source_file", "source_row"),
        partitioned_by="day",
    ),
    lambda landed: landed,
    code_version="1",
)


def bodies(found: list[dict[str, object]]) -> dict[str, bytes]:
    """Return the same rows in every format."""
    csv = "\n".join([",".join(found[0]), *(",".join(map(str, row.values())) for row in found), ""]).encode()
    lines = "".join(json.dumps(row) + "\n" for row in found).encode()
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(found), parquet)
    return {
        "a.csv": csv,
        "b.csv.gz": gzip.compress(csv),
        "c.jsonl": lines,
        "d.json": json.dumps(found, indent=1).encode(),
        "e.json.gz": gzip.compress(json.dumps(found).encode()),
        "f.parquet": parquet.getvalue(),
    }


def looked_into(files: dict[str, bytes], feed: Feed = FEED) -> Inspected:
    at = datetime(2026, 10, 1, tzinfo=UTC)
    sources = [SourceFile(key, "v", at, DAY, len(body)) for key, body in files.items()]
    return inspect(Store(files), feed, sources)


def faults(found: Inspected, feed: Feed = FEED) -> dict[str, tuple[str, str]]:
    nothing: Any = None
    of_files = batch.reading_of(nothing, nothing, feed, found, code_version="1", partition_values={}).faults
    return {fault.file.key: (fault.reason, fault.message) for fault in of_files}


@pytest.mark.parametrize("new_columns", list(NewColumns))
def test_small_file_without_declared_columns_is_refused_in_every_format(new_columns: NewColumns) -> None:
    feed = Feed("trips", "trips/", Grain.DAY, COLUMNS, new_columns=new_columns)
    found = faults(looked_into(bodies(NEW), feed), feed)
    assert list(found) and sorted(found) == sorted(bodies(NEW))
    for reason, message in found.values():
        assert reason in ("missing_column", "new_column" if new_columns == "fail" else "missing_column")
        assert "ride_id" in message and (
            "none of the declared columns tripduration" in message or "fail" in new_columns
        )


def test_large_file_without_declared_columns_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    files = {key: body for key, body in bodies(NEW).items() if "json" not in key}
    found = looked_into(files)
    assert {key: reason for key, (reason, _) in faults(found).items()} == dict.fromkeys(files, "missing_column")


def test_json_objects_without_members_are_refused() -> None:
    assert faults(looked_into({"a.jsonl": b"{}\n{}\n"}))["a.jsonl"][0] == "missing_column"


def test_declared_columns_missing_in_files_are_reported_beside_new_columns() -> None:
    found = looked_into(bodies(OLD))
    assert not faults(found) and found.missing_columns(FEED) == {"bikeid": sorted(bodies(OLD))}
    loaded = Loaded(None, {}, missing_columns=found.missing_columns(FEED))
    result = quarantine_result(FEED, dg.AssetKey(["core", "trips"]), loaded)
    assert result.description == "declared columns missing in files (null there): bikeid"
    said = {name: value.value for name, value in result.metadata.items()}
    assert said["missing columns"] == {"bikeid": sorted(bodies(OLD))}
    assert columns_said(said)["missing_columns"] == said["missing columns"], "a waiver changes nothing of it"


def test_missing_columns_are_not_reported_for_json_read_only_in_part() -> None:
    late = b'{"tripduration": 1}\n' * 20_000 + b'{"bikeid": 7}\n'
    assert looked_into({"a.jsonl": late}).missing_columns(FEED) == {}


@pytest.mark.parametrize("small", [True, False], ids=["fetched", "scanned"])
def test_files_without_declared_columns_are_quarantined_and_leave_no_row(
    spark: SparkSession, put: Put, loading: Loading, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    monkeypatch.setattr(small_files, "SMALL", small_files.SMALL if small else 0)
    load = renamed(TRIPS)
    for key, body in bodies(NEW).items():
        put(load.feed.prefix_of(DAY) + f"new-{key}", body)
    put(load.feed.prefix_of(DAY) + "late.jsonl", b'{"ride_id": "x"}\n' * 20_000 + b'{"bikeid": 7}\n')
    for key, body in bodies(OLD).items():
        put(load.feed.prefix_of(DAY) + key, body)
    loaded = loading(load, DAY)
    refused = [(f"new-{key}", 0, "missing_column") for key in bodies(NEW)]
    assert quarantined(spark, load) == sorted(refused)
    table = spark.table(load.table.identifier)
    assert table.where("tripduration IS NOT NULL").count() == 2 * len(bodies(OLD))
    assert set(loaded.missing_columns["bikeid"]) >= {load.feed.prefix_of(DAY) + key for key in ("a.csv", "f.parquet")}
    late = table.where("source_file LIKE '%late.jsonl' AND bikeid = 7").collect()
    assert [row.source_row for row in late] == [20_001], "a row is numbered as it stands in its file"


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_row_numbers_match_the_file_also_if_it_is_read_in_parts(
    spark: SparkSession, put: Put, loading: Loading, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    load, number = renamed(TRIPS), 40_000
    rows = pa.table({"tripduration": range(number), "starttime": ["x" * 20] * number, "bikeid": range(number)})
    body = io.BytesIO()
    if ending == ".csv":
        pa_csv.write_csv(rows, body)
    elif ending == ".parquet":
        pq.write_table(rows, body, row_group_size=5_000)
    else:
        body.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
    put(load.feed.prefix_of(DAY) + f"many{ending}", body.getvalue())
    monkeypatch.setattr(batch, "TASK_BYTES", 64 << 10)
    loading(load, DAY)
    table = spark.table(load.table.identifier)
    assert table.count() == number
    assert table.where("source_row <> tripduration + 1").count() == 0
