"""The same content gets the same verdict below and above the size up to which files are read in the run's process."""

import gzip
import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Table
from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.readers import batch, probe, small_files
from dagster_tidemark.lakehouse.readers.batch import reading_of
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.s3 import S3Bucket
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import Put, renamed

COLUMNS = {"a": "bigint", "b": "string"}
NUMBERS = Load(
    Feed("numbers", "numbers/", Grain.DAY, COLUMNS, required=("a",)),
    Table("core.numbers", {"day": "date"} | COLUMNS | LINEAGE, ("day", "a"), partitioned_by="day"),
    lambda landed: landed,
    code_version="1",
)
DAY = "2026-10-01"

Verdicts = list[tuple[int, str | None, str | None]] | tuple[str, str]


def parquet(*columns: tuple[str, pa.Array]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


HALF = '{"a": 1, "b": "\\ud83d"}'
BINARY = pa.array([b"\xff", b"\xfe"]).view(pa.string())
CONTENTS: dict[str, tuple[bytes, str | None]] = {
    "good.csv": (b"a,b\n1,x\nwords,y\n", None),
    "every row at fault.csv": (b"a,b\n1\n2,x,y\n\xff,x\n", None),
    "other columns.csv": (b"c,d\n1,x\n", "none of the declared columns"),
    "no text.csv": (b"\xff\xfe,b\n1,x\n", "the first line is not UTF-8 text"),
    "good.jsonl": (b'{"a": 1, "b": "x"}\n{"a": "words"}\n5\n', None),
    "every row at fault.jsonl": (f"{HALF}\n{HALF}\n".encode(), None),
    "rows at fault and none else.jsonl": (f"words\n{HALF}\n5\n".encode(), None),
    "no object.jsonl": (b"words\n5\n[6]\n", "no line of it is a JSON object; the first: the line is no row"),
    "no text.jsonl": (
        b'{"a": "\xff"}\n{"b": "M\xfcller"}\n',
        "no line of it is a JSON object; the first: not valid UTF-8",
    ),
    "other names.jsonl": (b'{"c": 1}\nwords\n{"d": 2}\n', "found c, d"),
    "no names.jsonl": (b"{}\n{}\n", "found none"),
    "no rows.json": (b"[]", None),
    "over lines.json": (json.dumps([{"a": 1}, {"a": "x"}], indent=1).encode(), None),
    "every row at fault.parquet": (parquet(("a", pa.array([1, 2])), ("b", BINARY)), None),
    "other columns.parquet": (parquet(("c", pa.array([1, 2]))), "none of the declared columns"),
    "cut.parquet": (parquet(("a", pa.array([1, 2])))[:-9], "not a valid Parquet file"),
}


def verdicts(spark: SparkSession, landing: S3Bucket, load: Load) -> dict[str, Verdicts]:
    """Return the fault of each file, or the number, reason and message of each of its rows."""
    listed = landing.list(load.feed.prefix).objects
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(o.key, "v", at, DAY, o.size, o.etag) for o in listed]
    inspected = probe.inspect(landing, load.feed, files)
    values = load.table.partition_values_sql("_partition")
    reading = reading_of(spark, landing, load.feed, inspected, code_version="1", partition_values=values)
    reading, judged = judge_rows(load, reading)
    found: dict[str, Any] = {name_of(file.key): [] for file in files}
    try:
        rows = judged.rows.orderBy("source_file", "_block", "_row").collect()
        for row in rows:
            of_file = found[name_of(row.source_file)]
            of_file.append((len(of_file), row["_reason"], row["_message"]))
    finally:
        judged.forget()
    return found | {name_of(fault.file.key): (fault.reason, fault.message) for fault in reading.faults}


def name_of(key: str) -> str:
    return key.rpartition("/")[2]


# Below a limit of 0 there is no file. Otherwise large files are padded, which takes long at the limit of a megabyte.
@pytest.mark.parametrize("limit", sample([0, 100_000, small_files.SMALL], 0, 100_000))
def test_small_and_large_files_with_the_same_content_get_the_same_verdict(
    spark: SparkSession, landing: S3Bucket, put: Put, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    load = renamed(NUMBERS)
    bodies = {name: body for name, (body, _) in CONTENTS.items()}
    bodies |= {f"{name}.gz": gzip.compress(body) for name, body in bodies.items() if "parquet" not in name}
    for name, body in bodies.items():
        put(load.feed.prefix_of(DAY) + name, body)
    small = verdicts(spark, landing, load)
    for name, (_, message) in CONTENTS.items():
        for of_file in [small[name], *([small[f"{name}.gz"]] if f"{name}.gz" in small else [])]:
            if message is None:
                assert isinstance(of_file, list), (name, of_file)
            else:
                assert isinstance(of_file, tuple) and message in of_file[1], (name, of_file)
    monkeypatch.setattr(small_files, "SMALL", limit)
    for name, body in bodies.items() if limit else ():
        if not name.endswith(("parquet", "gz")):
            put(load.feed.prefix_of(DAY) + name, body + b"\n" * limit)
    monkeypatch.setattr(batch, "TASK_BYTES", limit // 3 or 300_000)
    assert verdicts(spark, landing, load) == small
