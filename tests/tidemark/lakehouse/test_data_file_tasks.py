"""Tasks that write data files, without Spark: into a bucket of a real S3 server, and into a folder."""

import dataclasses
import io
from functools import reduce
from operator import xor
from pathlib import Path
from random import Random
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
from tests.sampling import sample

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


@pytest.mark.parametrize("seed", sample(range(10), 0, 1, 2))
def test_data_file_task_keeps_rows_of_many_files_in_any_order(seed: int, tmp_path: Path) -> None:
    """The expected files and sums are computed row by row."""
    random = Random(seed)
    count = random.randrange(2, 60)
    partition_of = [random.randrange(4) for _ in range(count)]
    values = [{"region": f"r{n}"} for n in range(4)]
    folders = [f"{tmp_path}/{of['region']}" for of in values]
    constants = {"source_file": [f"{n}.csv" for n in range(count)]}
    work = DataFileTask(None, SCHEMA, folders, values, partition_of, frozenset(range(4)), constants, "load", {})
    batches = []
    expected: dict[int, list[tuple[int, str]]] = {}
    hashes: dict[int, list[int]] = {}
    for _ in range(random.randrange(1, 5)):
        files = [random.randrange(count) for _ in range(random.randrange(200))]
        hashed = [random.randrange(-(2**63), 2**63) for _ in files]
        numbers = [random.randrange(1000) for _ in files]
        for file, number, of_row in zip(files, numbers, hashed, strict=True):
            expected.setdefault(partition_of[file], []).append((number, f"{file}.csv"))
            hashes.setdefault(file, []).append(of_row)
        regions = pa.array([f"r{partition_of[file]}" for file in files], pa.string())
        columns = {FILE: pa.array(files, pa.int32()), "n": pa.array(numbers, pa.int64()), "region": regions}
        hashed_columns = {KEY: pa.array(hashed, pa.int64()), CONTENT: pa.array(hashed, pa.int64())}
        batches.append(pa.RecordBatch.from_pydict(columns | hashed_columns))
    found = reports(list(work.run(batches)))
    for report in found:
        written = pq.read_table(report.path, partitioning=None).to_pylist()
        assert [(row["n"], row["source_file"]) for row in written] == expected.pop(report.partition)
        assert {row["region"] for row in written} == {f"r{report.partition}"}
        for landed in report.landed:
            of_file = hashes.pop(landed.file)
            xored = reduce(xor, of_file)
            sums = sum(h >> 32 for h in of_file), sum(h & 0xFFFF_FFFF for h in of_file)
            assert (landed.rows, landed.xored, landed.high, landed.low) == (len(of_file), xored, *sums)
    assert not expected and not hashes


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
