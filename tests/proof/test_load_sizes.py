"""Loads of files of every size, of many files, and of many partitions: seconds, and the most memory they take.

`GB=10` makes the largest file 10 GB.
"""

import os
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import boto3
import psutil
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Feed, Grain, Table
from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.readers.small_files import SMALL
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.conftest import end_service, make_settings, start_service
from tests.proof.conftest import Report
from tests.tidemark.lakehouse.conftest import renamed
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines

HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
FIRST = datetime(2026, 10, 1)
PART = 64 << 20
SPARSE = 500
"""Columns of the sparse file; all but one in ten values are empty."""


@dataclass
class Place:
    """A cloud and a Spark server that nothing else uses."""

    settings: Settings
    spark: SparkSession
    server: psutil.Process
    client: Any

    @property
    def landing(self) -> S3Bucket:
        return S3Bucket(lambda: self.client, self.settings.landing_bucket)


@dataclass
class Peak:
    """The most resident memory, in MB: of this process, of the Spark server, of the server's Python workers."""

    server: psutil.Process
    mb: dict[str, int] = field(default_factory=lambda: {"run": 0, "server": 0, "workers": 0})
    _done: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Peak":
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.2):
            found = {"run": psutil.Process().memory_info().rss, "server": 0, "workers": 0}
            for process in (self.server, *self.server.children(recursive=True)):
                try:
                    is_java = "java" in process.name()
                    found["server" if is_java else "workers"] += process.memory_info().rss
                except psutil.Error:  # it ended meanwhile
                    continue
            self.mb = {name: max(most, found[name] >> 20) for name, most in self.mb.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("sizes")
    settings = make_settings(folder / "state")
    settings.state_dir.mkdir(exist_ok=True)
    cloud = start_service("dagster_tidemark.local.cloud.server", settings, settings.port_cloud, folder / "cloud.log")
    spark = start_service("dagster_tidemark.local.spark.server", settings, settings.port_spark, folder / "spark.log")
    session = new_session(settings)
    client = boto3.client("s3", **settings.aws_options())
    yield Place(settings, session, psutil.Process(spark.pid), client)
    session.stop()
    end_service(spark)
    end_service(cloud)


def test_load_time_grows_smoothly_with_the_file_size(place: Place, report: Report) -> None:
    sizes = {"20 rows": 1_300, "1 MB": SMALL - 100, "1.1 MB": int(SMALL * 1.1), "10 MB": 10 << 20, "100 MB": 100 << 20}
    found: dict[str, dict[str, Any]] = {}
    for name, size in sizes.items():
        load = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))
        seconds = []
        for hour in range(4):
            body = HEADER + _order_lines(FIRST + timedelta(hours=hour), size)
            seconds.append(_load(place, load, {hour: [body.encode()]})[0])
        found[name] = {
            "seconds": [round(s, 2) for s in seconds[1:]],
            "median": round(statistics.median(seconds[1:]), 2),
        }
    report("load-sizes", {"what": "seconds of a load of one CSV file; the first of four is left out", "sizes": found})
    assert found["1.1 MB"]["median"] <= 1.5 * found["1 MB"]["median"]


def test_ten_thousand_files_of_one_hour_are_loaded(place: Place, report: Report) -> None:
    load = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))
    files = [(HEADER + _order_lines(FIRST, 1_300, number=n)).encode() for n in range(10_000)]
    seconds, mb, rows = _measured(place, load, {0: files})
    report("load-10000-files", {"what": "10,000 files of one hour", "rows": rows, "seconds": seconds, "most MB": mb})
    assert rows == sum(body.count(b"\n") - 1 for body in files)


def test_five_hundred_partitions_are_loaded_in_one_run(place: Place, report: Report) -> None:
    load = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))
    hours = {h: [(HEADER + _order_lines(FIRST + timedelta(hours=h), 60_000)).encode()] for h in range(500)}
    seconds, mb, rows = _measured(place, load, hours)
    report("load-500-partitions", {"what": "500 hours in one run", "rows": rows, "seconds": seconds, "most MB": mb})
    assert rows == sum(body.count(b"\n") - 1 for (body,) in hours.values())


def test_one_huge_sparse_csv_file_is_loaded(place: Place, report: Report) -> None:
    columns = {f"c{n}": "int" for n in range(SPARSE)}
    load = renamed(
        Load(
            Feed(name="wide", prefix="wide/", grain=Grain.HOUR, columns={"id": "bigint"} | columns, required=("id",)),
            Table(
                name="core.wide",
                columns={"hour": "timestamp", "id": "bigint"} | columns | LINEAGE,
                partitioned_by="hour",
                row_key=("hour", "id"),
                comment="A wide row",
            ),
            lambda rows: rows,
            code_version="1",
        )
    )
    size = int(float(os.environ.get("GB", "1")) * 1e9)
    values = [",".join(str(n % 97) if (n + shift) % 10 == 0 else "" for n in range(SPARSE)) for shift in range(10)]
    header = f"id,{','.join(columns)}\n"
    rows = _put_large(place, load.feed.prefix_of("2026-10-01-00:00") + "a.csv", header, values, size)
    begun = time.monotonic()
    with Peak(place.server) as peak:
        done = run_load(place.spark, place.landing, load, ["2026-10-01-00:00"], run_id="huge")
    seconds = time.monotonic() - begun
    figures = {"GB": size / 1e9, "rows": rows, "seconds": round(seconds, 1), "most MB": peak.mb}
    report("load-one-large-file", {"what": f"one CSV file of {SPARSE} sparse columns"} | figures)
    assert done.table_rows == rows


def _put_large(place: Place, key: str, header: str, values: list[str], size: int) -> int:
    """Write a file of about this size in parts, and return the number of its rows."""
    bucket, client = place.settings.landing_bucket, place.client
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    parts: list[dict[str, Any]] = []
    rows, sent, text = 0, 0, [header]
    while sent < size:
        length = 0
        while length < PART:
            line = f"{rows},{values[rows % len(values)]}\n"
            text.append(line)
            length += len(line)
            rows += 1
        number = len(parts) + 1
        body = "".join(text).encode()
        sent, text = sent + len(body), []
        tag = client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append({"PartNumber": number, "ETag": tag})
    client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
    return rows


def _measured(place: Place, load: Load, files: dict[int, list[bytes]]) -> tuple[float, dict[str, int], int]:
    with Peak(place.server) as peak:
        seconds, rows = _load(place, load, files)
    return round(seconds, 1), peak.mb, rows


def _load(place: Place, load: Load, files: dict[int, list[bytes]]) -> tuple[float, int]:
    """Put files by hour, and return the seconds of their load and the rows of the table."""
    hours = {hour: f"{FIRST + timedelta(hours=hour):%Y-%m-%d-%H:00}" for hour in files}
    with ThreadPoolExecutor(8) as pool:
        for hour, bodies in files.items():
            prefix = load.feed.prefix_of(hours[hour])
            list(pool.map(lambda n, p=prefix, b=bodies: _put(place, f"{p}{n:05}.csv", b[n]), range(len(bodies))))
    begun = time.monotonic()
    done = run_load(place.spark, place.landing, load, list(hours.values()), run_id=f"sizes-{time.time_ns()}")
    assert done.table_rows is not None
    return time.monotonic() - begun, done.table_rows


def _put(place: Place, key: str, body: bytes) -> None:
    place.client.put_object(Bucket=place.settings.landing_bucket, Key=key, Body=body)


def _order_lines(hour: datetime, size: int, number: int = 0) -> str:
    """Return lines of about this number of bytes together. No two have the same key."""
    tail = f"1,17,101,3,7,19.9900,0.10,{hour:%Y-%m-%dT%H}:30:00Z\n"
    count = max(1, size // (len(tail) + 13))
    first = 10_000_000_000 + number * 1_000_000
    return "".join(f"{first + n},{tail}" for n in range(count))
