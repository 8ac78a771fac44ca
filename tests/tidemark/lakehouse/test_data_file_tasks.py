"""Tasks that write data files, without Spark: into a bucket of a real S3 server, and into a folder."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.data_file_tasks import (
    CONTENT,
    FILE,
    KEY,
    DataFileNotWritten,
    DataFileTask,
    Report,
    report_of,
)
from dagster_tidemark.lakehouse.parsing.sources import BucketAddress
from dagster_tidemark.settings import LOCAL_KEY, Settings

SCHEMA = pa.schema([("n", pa.int64()), ("region", pa.string()), ("source_file", pa.string())])


def task(folder: str, store: BucketAddress | None = None) -> DataFileTask:
    """Two landed files of one partition and one of another, of which several tasks have rows."""
    values = [{"region": "north"}, {"region": "south"}]
    folders = [f"{folder}/region={of['region']}" for of in values]
    constants = {"source_file": ["a.csv", "b.csv", "c.csv"]}
    return DataFileTask(store, SCHEMA, folders, values, [0, 0, 1], frozenset({0}), constants, "load", {})


def rows(files: list[int], keys: list[int] | None = None, region: str | None = None) -> pa.RecordBatch:
    numbers = np.arange(len(files), dtype=np.int64)
    return pa.RecordBatch.from_pydict(
        {
            FILE: pa.array(files, pa.int32()),
            "n": numbers,
            "region": [region or ("north" if file < 2 else "south") for file in files],
            KEY: pa.array(numbers if keys is None else keys, pa.int64()),
            CONTENT: numbers * 7 - 3,
        }
    )


def reports(written: list[pa.RecordBatch]) -> list[Report]:
    return [report_of(text) for batch in written for text in batch.column("report").to_pylist() if text]


def test_data_file_task_writes_one_parquet_file_per_partition_to_s3(cloud: Settings) -> None:
    store = BucketAddress(cloud.landing_bucket, cloud.aws_region, cloud.aws_endpoint_url, LOCAL_KEY)
    written = list(task("tasks/t", store).run([rows([0, 0, 2]), rows([1, 2])]))
    north, south = reports(written)
    s3: Any = boto3.client("s3", **cloud.aws_options())
    for report, expected in ((north, ["a.csv", "a.csv", "b.csv"]), (south, ["c.csv", "c.csv"])):
        body = s3.get_object(Bucket=cloud.landing_bucket, Key=report.path)["Body"].read()
        assert len(body) == report.size
        found = pq.read_table(io.BytesIO(body))
        assert found["source_file"].to_pylist() == expected
        assert report.rows == len(expected) == sum(landed.rows for landed in report.landed)
    assert [landed.file for landed in north.landed] == [0, 1]
    hashes = [batch.column("key").to_pylist() for batch in written if batch.column("key").null_count == 0]
    assert hashes == [[2], [1]], "of the partition that other tasks have rows of"
    footers = [batch.column("footer")[0].as_py() for batch in written if batch.column("report")[0].is_valid]
    assert [pq.read_metadata(io.BytesIO(footer)).num_rows for footer in footers] == [3, 2]


def test_data_file_task_detects_two_rows_with_one_key(tmp_path: Path) -> None:
    (report,) = reports(list(task(str(tmp_path)).run([rows([0, 1], keys=[5, 6]), rows([0], keys=[5])])))
    assert report.has_rivals


def test_data_file_task_detects_rows_of_other_partitions_and_leaves_no_file(tmp_path: Path) -> None:
    (report,) = reports(list(task(str(tmp_path)).run([rows([0]), rows([0], region="south")])))
    assert report.is_astray
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("fault", ["bucket", "folder"])
def test_data_file_task_reports_storage_errors_apart_from_data_errors(
    cloud: Settings, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "file").write_text("")
    store = (
        BucketAddress("no-such-bucket", cloud.aws_region, cloud.aws_endpoint_url, LOCAL_KEY)
        if fault == "bucket"
        else None
    )
    with pytest.raises(DataFileNotWritten, match="region=north"):
        list(task(str(tmp_path / "file"), store).run([rows([0])]))


def test_interrupted_data_file_task_leaves_no_file(tmp_path: Path) -> None:
    small = dataclasses.replace(task(str(tmp_path)), prefix="x")

    def batches() -> Any:
        yield rows([0])
        raise RuntimeError("the job was cancelled")

    with pytest.raises(RuntimeError):
        list(small.run(batches()))
    assert not list(tmp_path.rglob("*.parquet"))
