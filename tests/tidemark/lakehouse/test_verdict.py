"""A file is judged by its bytes, and by nothing else, where Spark's workers read it."""

import contextlib
import gzip
import io
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Table
from dagster_tidemark.formats import FileFormat, register_format
from dagster_tidemark.lakehouse.loading.judged_rows import _rows_alone, judge_rows
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.parsing.part_of_file import REPORT, PartOfFile, PartReport
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows
from dagster_tidemark.lakehouse.parsing.sources import BucketAddress, BucketFile, StoreFault
from dagster_tidemark.lakehouse.parsing.spark_tasks import Scan
from dagster_tidemark.lakehouse.readers import format_registry, probe, small_files
from dagster_tidemark.lakehouse.readers.batch import FileBatch, reading_of
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import NotScanned, SourceFile
from dagster_tidemark.lakehouse.readers.probe import Inspected
from dagster_tidemark.settings import LOCAL_KEY, Settings
from dagster_tidemark.sources import file_endings
from dagster_tidemark.sources.feed import Feed, Grain
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.kinds import avro_kinds
from tests.tidemark.lakehouse.conftest import Put, renamed
from tests.tidemark.storage_faults import WORKERS, Fault, faults

COLUMNS = {"a": "bigint", "b": "string"}
NUMBERS = Load(
    Feed("numbers", "numbers/", Grain.DAY, COLUMNS, required=("a",)),
    Table("core.numbers", {"day": "date"} | COLUMNS | LINEAGE, ("day", "a"), partitioned_by="day"),
    lambda landed: landed,
    code_version="1",
)
DAY = "2026-10-01"
COUNT = 250_000
"""Rows of a file that takes several blocks and requests."""

DICE = random.Random(0)
WORDS = [f"{DICE.getrandbits(128):032x}" for _ in range(COUNT)]
TEXT = b"a,b\n" + "".join(f"{n},{word}\n" for n, word in enumerate(WORDS)).encode()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(COUNT)), "b": WORDS}), sink, row_group_size=COUNT // 3)
    return sink.getvalue()


def as_orc() -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table({"a": list(range(COUNT)), "b": WORDS}), sink, stripe_size=1 << 20)
    return sink.getvalue()


def as_avro() -> bytes:
    members = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    rows = [{"a": n, "b": word} for n, word in enumerate(WORDS[:20_000])]
    return avro_kinds.file_of({"type": "record", "name": "Row", "fields": members}, rows)


GZIP = gzip.compress(TEXT, 1, mtime=0)  # it stands in the names of tests, which two processes collect
MEMBERS = gzip.compress(b"a,b\n1,x", mtime=0) + gzip.compress(b"y\n", mtime=0) + b"\0\0"
PARQUET = parquet()
ORC, AVRO = as_orc(), as_avro()
HOLED = PARQUET[: len(PARQUET) // 2] + b"\xff" * 200 + PARQUET[len(PARQUET) // 2 + 200 :]


@dataclass
class Holding:
    """A store with one object as workers see it, which is refused from some byte on."""

    body: bytes
    refused_from: int | None = None
    name: str = "landing"
    asked: list[str] = field(default_factory=list)

    def connect(self) -> "Holding":
        return self

    def open_input_file(self, path: str) -> "Holding":
        self.asked.append(path)
        return self

    def metadata(self) -> None:
        return None

    def size(self) -> int:
        return len(self.body)

    def read_at(self, length: int, begin: int) -> bytes:
        if self.refused_from is not None and begin + length > self.refused_from:
            raise OSError("AWS Error ACCESS_DENIED during GetObject operation: ExpiredToken")
        return self.body[begin : begin + length]


class Refused(Exception):
    """The bytes of a file could not be had."""


def scan_of(name: str, store: Holding, declared: dict[str, str]) -> Scan:
    read_as = format_registry.format_of(name)
    shape = Shape(read_as.name, tuple((c, "string") for c in declared))
    part = PartOfFile(0, name, len(store.body), "", shape, read_as.rows_of, WHOLE)
    return Scan(DeclaredContent(declared), store, [[part]])  # type: ignore[arg-type]


def damage(name: str, store: Holding, declared: dict[str, str] = COLUMNS) -> str | None:
    """What a worker says of a file's bytes.

    Raises:
        Refused: they could not be had.
    """
    report = report_of(scan_of(name, store, declared))
    if report.refused:
        assert report.fault is None
        raise Refused(report.refused)
    assert report.fault is None or report.fault[0] == "unreadable"
    return report.fault and report.fault[1]


def report_of(scan: Scan) -> PartReport:
    """Return the report of a task that reads one part."""
    *_, last = scan.run([pa.RecordBatch.from_pydict({"id": [0]})])
    return PartReport.of_json(last.column(REPORT)[0].as_py())


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.csv", b"a,b\n\xff\0", None),
        ("a.csv.gz", GZIP, None),
        ("a.csv.gz", MEMBERS, None),
        ("a.csv.gz", GZIP[:-9], "truncated"),
        ("a.csv.gz", GZIP + b"junk", "no gzip file"),
        ("a.csv.gz", b"junk", "no gzip file"),
        ("a.json.gz", GZIP[:-9], "truncated"),
        ("a.parquet", PARQUET, None),
        ("a.parquet", PARQUET[:-5], "not a valid Parquet file"),
        ("a.parquet", HOLED, "damaged"),
        ("a.orc", ORC, None),
        ("a.orc", ORC[:-5], "not a valid ORC file"),
        ("a.avro", AVRO, None),
        ("a.avro", AVRO[:-5], "not a valid Avro file, or damaged: it ends in a block"),
    ],
)
def test_damaged_file_bytes_are_reported(name: str, body: bytes, said: str | None) -> None:
    found = damage(name, Holding(body))
    assert found is None if said is None else found and said in found


FORMS = [
    ("a.csv", TEXT),
    ("a.csv.gz", GZIP),
    ("a.json", TEXT),
    ("a.parquet", PARQUET),
    ("a.parquet", HOLED),
    ("a.orc", ORC),
    ("a.avro", AVRO),
]


@pytest.mark.parametrize(("name", "body"), FORMS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_refused_bytes_are_not_reported_as_damage(name: str, body: bytes, share: float) -> None:
    with pytest.raises(Refused, match="ExpiredToken"):
        damage(name, Holding(body, int(len(body) * share)))


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats that a test registers are there for that test only."""
    monkeypatch.setattr(file_endings, "_NAMES", dict(file_endings._NAMES))
    monkeypatch.setattr(format_registry, "_REGISTERED", dict(format_registry._REGISTERED))


def own(rows_of: Any) -> None:
    """Register a format whose files are read so."""
    shape = lambda feed, source: Shape("own", tuple((c, "string") for c in COLUMNS))  # noqa: E731
    register_format(FileFormat(name="own", endings=(".own",), shape=shape, rows_of=rows_of))


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize("passes_over", [True, False])
def test_refused_bytes_a_custom_format_hides_are_not_reported_as_damage(passes_over: bool) -> None:
    def rows_of(declared: DeclaredContent, shape: Shape, source: FileBytes, part: Part) -> Iterator[Rows]:
        try:
            source.read(0, 10)
        except Exception as error:
            if not passes_over:
                raise ValueError("it is damaged") from error
        yield from ()

    own(rows_of)
    with pytest.raises(Refused, match="ExpiredToken"):
        damage("a.own", Holding(b"0123456789", 5))
    assert damage("a.own", Holding(b"0123456789")) is None


def test_overwritten_file_is_not_reported_as_damaged() -> None:
    longer = Holding(TEXT)
    scan = scan_of("a.csv", longer, COLUMNS)
    longer.body += b"1,x\n"
    report = report_of(scan)
    assert report.fault is None and report.refused and "written again" in report.refused


def test_worker_refuses_an_object_that_was_replaced_by_one_of_the_same_size(
    cloud: Settings, landing: S3Bucket, put: Put
) -> None:
    put("replaced/a.csv", b"a\n1\n")
    (listed,) = landing.list("replaced/a.csv").objects
    put("replaced/a.csv", b"a\n2\n")
    system = BucketAddress(landing.name, cloud.aws_region, cloud.aws_endpoint_url, LOCAL_KEY).connect()
    with pytest.raises(StoreFault, match="it was written again: 4 bytes"):
        BucketFile(system, landing.name, listed.key, listed.size, listed.etag)


@pytest.mark.usefixtures("formats")
def test_worker_capacity_error_is_not_reported_as_damage() -> None:
    def rows_of(declared: DeclaredContent, shape: Shape, source: FileBytes, part: Part) -> Iterator[Rows]:
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
        yield

    own(rows_of)
    with pytest.raises(pa.ArrowCapacityError):
        damage("a.own", Holding(b""))


def read(
    spark: SparkSession, landing: S3Bucket, load: Load, patch: pytest.MonkeyPatch
) -> tuple[dict[str, str], dict[str, int]]:
    """What is wrong with files, and how many rows the others have, all of them read by workers."""
    patch.setattr(small_files, "SMALL", 0)
    listed = landing.list(load.feed.prefix).objects
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(o.key, "v", at, DAY, o.size, o.etag) for o in listed]
    inspected = probe.inspect(landing, load.feed, files)
    values = load.table.partition_values_sql("_partition")
    asked = reading_of(spark, landing, load.feed, inspected, code_version="1", partition_values=values)
    assert not asked.faults and len(asked.large) == len(files), "their headers are all right"
    reading, judged = judge_rows(load, asked)
    try:
        counted = {row.source_file: row["count"] for row in judged.rows.groupBy("source_file").count().collect()}
        assert counted == {key: of.rows for key, of in judged.tally.items()}
        assert judged.rejected_frame.count() == 0
    finally:
        judged.forget()
    short = {name: name.removeprefix(load.feed.prefix_of(DAY)) for name in [*counted, *(f.key for f in files)]}
    said = {short[fault.file.key]: f"{fault.reason}: {fault.message}" for fault in reading.faults}
    return said, {short[key]: count for key, count in counted.items()}


def test_rows_before_the_damage_of_a_file_are_discarded(
    spark: SparkSession, landing: S3Bucket, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = renamed(NUMBERS)
    bodies = {
        "good.csv": b"a,b\n1,x\n",
        "good.csv.gz": GZIP,
        "good.parquet": PARQUET,
        "cut.csv.gz": GZIP[:-9],
        "junk behind.csv.gz": GZIP + b"junk",
        "holed.parquet": HOLED,
    }
    for name, body in bodies.items():
        put(load.feed.prefix_of(DAY) + name, body)
    said, counted = read(spark, landing, load, monkeypatch)
    assert counted == {"good.csv": 1, "good.csv.gz": COUNT, "good.parquet": COUNT}
    assert said.keys() == {"cut.csv.gz", "junk behind.csv.gz", "holed.parquet"}
    assert said["cut.csv.gz"].startswith("unreadable: the gzip file is truncated")
    assert said["junk behind.csv.gz"].startswith("unreadable: no gzip file")
    assert said["holed.parquet"].startswith("unreadable: not a valid Parquet file, or damaged")


@pytest.mark.parametrize(
    ("name", "status"),
    [("b.csv", 403), ("b.csv.gz", 200), ("b.parquet", 403)],
)
def test_file_refused_while_read_is_reported_alone_and_not_as_damaged(
    spark: SparkSession,
    cloud: Settings,
    landing: S3Bucket,
    put: Put,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    status: int,
) -> None:
    load = renamed(NUMBERS)
    body = {"b.csv": TEXT, "b.csv.gz": GZIP, "b.parquet": PARQUET}[name]
    put(load.feed.prefix_of(DAY) + "a.csv", b"a,b\n1,x\n")
    put(load.feed.prefix_of(DAY) + name, body)
    middle = Fault(agent=WORKERS, below=load.feed.prefix, name=name, skip=1, status=status)
    with faults(str(cloud.aws_endpoint_url), middle), pytest.raises(NotScanned, match="AWS Error") as raised:
        read(spark, landing, load, monkeypatch)
    assert [file.key for file in raised.value.files] == [load.feed.prefix_of(DAY) + name]


def test_file_refused_only_once_is_reported_alone(
    spark: SparkSession, cloud: Settings, landing: S3Bucket, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = renamed(NUMBERS)
    for name in ("a.csv", "b.csv"):
        put(load.feed.prefix_of(DAY) + name, b"a,b\n1,x\n")
    once = Fault(agent=WORKERS, below=load.feed.prefix, name="b.csv", times=1)
    with (
        faults(str(cloud.aws_endpoint_url), once),
        pytest.raises(NotScanned, match=r"b\.csv: AWS Error") as raised,
    ):
        read(spark, landing, load, monkeypatch)
    assert [file.key for file in raised.value.files] == [load.feed.prefix_of(DAY) + "b.csv"]


@pytest.mark.usefixtures("formats")
def test_file_that_crashes_workers_is_reported_alone_and_not_as_damaged(
    spark: SparkSession, landing: S3Bucket, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows_of(declared: DeclaredContent, shape: Shape, source: FileBytes, part: Part) -> Iterator[Rows]:
        if source.key.endswith("bad.own"):
            os._exit(3)  # as the kernel ends one that takes too much memory
        yield Rows({"a": pa.array(["1"]), "b": pa.array(["x"])}, 1)

    own(rows_of)
    load = renamed(NUMBERS)
    for name in ("good.own", "bad.own", "good.csv"):
        put(load.feed.prefix_of(DAY) + name, b"a,b\n1,x\n")
    with pytest.raises(NotScanned, match="Python worker") as raised:
        read(spark, landing, load, monkeypatch)
    assert [file.key for file in raised.value.files] == [load.feed.prefix_of(DAY) + "bad.own"]


class Away:
    """A session whose server does not answer."""

    def __init__(self, said: str) -> None:
        self.asked = 0
        self._said = said

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        raise PySparkException(self._said)


@pytest.mark.parametrize("failure", ["gone", "Python worker exited unexpectedly (crashed)"])
def test_unavailable_spark_is_asked_once_and_not_for_each_file(failure: str) -> None:
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(f"{n}.csv", "v", at, DAY, 1) for n in range(6)]
    shapes = {file: Shape("csv", tuple((c, "string") for c in COLUMNS)) for file in files}
    spark: Any = Away("connection refused")
    store: Any = SimpleNamespace(name="landing")
    reading = FileBatch(spark, store, NUMBERS.feed, "1", Inspected(shapes, {}, []), pa.table({}), [], {})
    found: dict[SourceFile, str] = {}
    with contextlib.suppress(PySparkException):
        found = reading.ending_workers(PySparkException(failure))
    assert not found
    assert spark.asked <= 1


def test_worker_report_is_restored_from_its_json() -> None:
    report = PartReport(3, 7, 2, 1, ["x"], None, ("unreadable", "why"))
    assert PartReport.of_json(report.to_json()) == report


def test_file_that_spark_rereads_with_another_result_fails_the_job(spark: SparkSession) -> None:
    reports = [None, PartReport(0, rows=1).to_json(), PartReport(1, refused="ExpiredToken").to_json()]
    read = spark.createDataFrame([(0, reports[0]), (0, reports[1]), (1, reports[2])], "_file int, _report string")
    assert _rows_alone(read, [1]).count() == 1
    with pytest.raises(PySparkException, match=r"with two results.*ExpiredToken"):
        _rows_alone(read, []).count()
