"""A file is judged by its bytes, and by nothing else."""

import gzip
import io
import random
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.readers.verdict import damage_of, unreadable
from dagster_tidemark.sources.file_endings import Format
from dagster_tidemark.sources.listing import BucketUnavailable, ObjectVersion
from tests.toys.feeds import ORDERS

TEXT = random.Random(0).randbytes(5 << 20) + b"0" * (20 << 20)
GZIP = gzip.compress(TEXT, 1, mtime=0)  # it stands in the names of tests, which two processes collect
MEMBERS = gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0) + b"\0\0"


def parquet() -> bytes:
    numbers, sink = random.Random(0), io.BytesIO()
    pq.write_table(pa.table({"a": list(range(50_000)), "b": [numbers.randbytes(8).hex() for _ in range(50_000)]}), sink)
    return sink.getvalue()


PARQUET = parquet()
HOLED = PARQUET[: len(PARQUET) // 2] + b"\xff" * 200 + PARQUET[len(PARQUET) // 2 + 200 :]


class Holding:
    """A store with one object, which is refused from some byte on."""

    name = "landing"

    def __init__(self, body: bytes, refused_from: int | None = None) -> None:
        self.body, self.refused_from = body, len(body) if refused_from is None else refused_from

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        if begin + length > self.refused_from:
            raise BucketUnavailable("ExpiredToken")
        return self.body[begin : begin + length]

    def read(self, of: ObjectVersion, first: int | None = None, last: int | None = None) -> bytes:
        raise NotImplementedError

    def check(self, of: ObjectVersion) -> None:
        raise NotImplementedError


def damage(name: str, store: Holding) -> str | None:
    return damage_of(store, SourceFile(name, "v", datetime(2026, 10, 1, tzinfo=UTC), None, len(store.body)))


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.csv", b"\xff\0", None),
        ("a.csv.gz", GZIP, None),
        ("a.csv.gz", MEMBERS, None),
        ("a.csv.gz", GZIP[:-9], "truncated"),
        ("a.csv.gz", GZIP + b"junk", "no gzip file"),
        ("a.csv.gz", b"junk", "no gzip file"),
        ("a.parquet", PARQUET, None),
        ("a.parquet", PARQUET[:-5], "no Parquet file"),
        ("a.parquet", HOLED, "damaged"),
    ],
)
def test_what_is_wrong_with_the_bytes_is_named(name: str, body: bytes, said: str | None) -> None:
    found = damage(name, Holding(body))
    assert found is None if said is None else found and said in found


@pytest.mark.parametrize(("name", "body"), [("a.csv.gz", GZIP), ("a.parquet", PARQUET), ("a.parquet", HOLED)])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_bytes_that_cannot_be_had_are_no_verdict(name: str, body: bytes, share: float) -> None:
    with pytest.raises(BucketUnavailable):
        damage(name, Holding(body, refused_from=int(len(body) * share)))


def test_while_spark_is_away_it_is_asked_once_and_not_for_each_file() -> None:
    asked = []

    class Away:
        @property
        def conf(self) -> object:
            asked.append("conf")
            raise PySparkException("connection refused")

        @property
        def read(self) -> object:
            asked.append("read")
            raise PySparkException("connection refused")

    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(f"{n}.csv", "v", at, None, 1) for n in range(6)]
    shapes = {file: Shape(Format.CSV, (("order_id", "string"),)) for file in files}
    failure = PySparkException("gone")
    with pytest.raises(PySparkException) as raised:
        unreadable(Away(), Holding(b""), ORDERS, shapes, failure)  # type: ignore[arg-type]
    assert raised.value is failure
    assert asked == ["conf"]
