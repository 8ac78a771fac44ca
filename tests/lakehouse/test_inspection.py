"""What of small files passes through a run's own memory: so many rows and bytes together, whatever they weigh."""

import gzip
import io
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.feeds import ORDERS
from pipelines.lakehouse import inspection
from pipelines.lakehouse.files import SourceFile
from pipelines.lakehouse.inspection import inspect
from pipelines.sources.listing import ObjectVersion

HEADER = ",".join(ORDERS.columns) + "\n"


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({c: pa.array(["1"] * rows) for c in ORDERS.columns}), sink)
    return sink.getvalue()


def csv(rows: int) -> bytes:
    return (HEADER + "1,1,1,1,1,1,1,0,2026-10-01T07:00:00Z\n" * rows).encode()


class Store:
    """Objects in memory."""

    name = "landing"

    def __init__(self, bodies: dict[str, bytes]) -> None:
        self.bodies = bodies

    def read(self, of: ObjectVersion, first: int | None = None, last: int | None = None) -> bytes:
        body = self.bodies[of.key]
        return body[:first] if first is not None else body[-last:] if last is not None else body

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        return self.bodies[of.key][begin : begin + length]

    def check(self, of: ObjectVersion) -> None:
        """It is as it was."""


def fetched(bodies: dict[str, bytes]) -> set[str]:
    """Which of these files are read in memory; all others are left to Spark."""
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(key, "v", at, "2026-10-01-07:00", len(body)) for key, body in bodies.items()]
    found = inspect(Store(bodies), ORDERS, files)
    assert {f.key for f in found.readable} == set(bodies) and not found.faults
    return {file.key for file in found.fetched}


def test_a_few_kilobytes_of_parquet_with_millions_of_rows_are_left_to_spark() -> None:
    bomb = parquet(3_000_000)
    assert len(bomb) < inspection.SMALL
    assert fetched({"bomb.parquet": bomb, "a.parquet": parquet(10)}) == {"a.parquet"}


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_many_files_that_are_small_each_are_left_to_spark_beyond_what_fits_together(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_ROWS_TOGETHER", 1000)
    body = {"csv": csv(90), "csv.gz": gzip.compress(csv(90)), "parquet": parquet(90)}[form]
    assert len(fetched({f"{n:02}.{form}": body for n in range(30)})) in (10, 11)


def test_what_is_inflated_counts_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_TOGETHER", 10_000)
    zeros = gzip.compress((HEADER + "0" * 4_000 + "\n").encode())
    assert len(fetched({f"{n}.csv.gz": zeros for n in range(10)})) == 2
