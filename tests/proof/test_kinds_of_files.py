"""Each kind of file that people have, small and above 1 MB: the rows and rejections of a load, as they were written.

The kinds and their rows are in `tests/proof/kinds`, which imports nothing of the loader.
"""

import re
from datetime import UTC, datetime

import boto3
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, SOURCE_ROW, Feed, Grain, Table
from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.readers.batch import reading_of
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.readers.probe import inspect
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.proof.kinds.corpus import GROUPS
from tests.proof.kinds.kind import SIZES, Kind

DAY = "2026-01-02"
SHOWN = 300


@pytest.fixture(scope="module")
def landing(cloud: Settings) -> S3Bucket:
    return S3Bucket(lambda: boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)


def differences(spark: SparkSession, landing: S3Bucket, prefix: str, kind: Kind) -> dict[str, str]:
    """Return, for each size, how a load differs from the kind; empty if it does not."""
    feed = Feed("kind", f"{prefix}/", Grain.DAY, dict(kind.columns), **kind.options)
    columns = {"file_day": "date"} | dict(kind.columns) | LINEAGE | SOURCE_ROW
    table = Table("core.kind", columns, ("file_day", "source_file", "source_row"), partitioned_by="file_day")
    load = Load(feed, table, lambda rows: rows, "1")
    for size in SIZES:
        landing._client.put_object(Bucket=landing.name, Key=f"{prefix}/{size}/{kind.key}", Body=kind.file(size))
    listed = landing.list(f"{prefix}/").objects
    at = datetime(2026, 1, 2, tzinfo=UTC)
    files = [SourceFile(o.key, "v", at, DAY, o.size, o.etag) for o in listed]
    assert max(file.size for file in files) > 1 << 20, "the large file is small"
    asked = reading_of(
        spark, landing, feed, inspect(landing, feed, files), code_version="1",
        partition_values=table.partition_values_sql("_partition"),
    )  # fmt: skip
    reading, judged = judge_rows(load, asked)
    try:
        rows = judged.rows.orderBy("_block", "_row").collect()
    finally:
        judged.forget()
    faults = {fault.file.key: fault.message for fault in reading.faults}
    found = {}
    for size in SIZES:
        key = f"{prefix}/{size}/{kind.key}"
        of_file = [row for row in rows if row.source_file == key]
        good = [tuple(row[c] for c in kind.columns) for row in of_file if row["_reason"] is None]
        messages = [row["_message"] for row in of_file if row["_reason"] is not None]
        if said := _difference(kind, size, good, messages, faults.get(key)):
            found[size] = said[:SHOWN]
    return found


def _difference(kind: Kind, size: str, good: list[tuple[object, ...]], messages: list[str], fault: str | None) -> str:
    if kind.refused or fault:
        return "" if kind.is_refused_with(fault or "") and not good else f"refused: {fault}"
    expected = [tuple(_as_spark(value) for value in row) for row in kind.rows(size)]
    if len(good) != len(expected):
        return f"{len(good)} good rows, not {len(expected)}; rejected: {messages[:2]}"
    if unlike := [pair for pair in zip(good, expected, strict=True) if pair[0] != pair[1]]:
        return f"{len(unlike)} rows differ: {unlike[0]}"
    if len(messages) != len(kind.odd) or not all(word in said for word, said in zip(kind.odd, messages, strict=True)):
        return f"rejected: {messages}"
    return ""


def _as_spark(value: object) -> object:
    """Return a value as Spark's client returns it: times without a zone, bytes as an array."""
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)
    return bytearray(value) if isinstance(value, bytes) else value


@pytest.mark.parametrize("group", GROUPS)
def test_file_of_each_kind_gives_its_rows_or_is_refused_at_each_size(
    spark: SparkSession, landing: S3Bucket, report: Report, group: str
) -> None:
    name = re.sub("[^a-z]+", "-", group.lower())
    found: dict[str, dict[str, str]] = {}
    for number, kind in enumerate(GROUPS[group]):
        try:
            unlike = differences(spark, landing, f"kinds-{name}-{number}", kind)
        except Exception as error:
            unlike = {"both": f"the load fails: {type(error).__name__}: {str(error)[:SHOWN]}"}
        if unlike:
            found[kind.name] = unlike
    kinds = GROUPS[group]
    refused = sum(bool(kind.refused) for kind in kinds)
    figures = {"kinds": len(kinds), "files": 2 * len(kinds), "refused as a whole": refused, "rows of a file": SIZES}
    report(f"kinds-of-files-{name}", {**figures, "different": found})
    assert not found
