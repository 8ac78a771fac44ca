"""What of small files passes through a run's own memory: so many rows and bytes together, whatever they weigh."""

import contextlib
import dataclasses
import gzip
import io
import json
import multiprocessing
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse.loading.load import check_scanned
from dagster_tidemark.lakehouse.parsing import csv_rows
from dagster_tidemark.lakehouse.parsing.rows import WHOLE
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.parsing.text_blocks import BLOCK, LONGEST_LINE
from dagster_tidemark.lakehouse.readers import in_memory, small_files
from dagster_tidemark.lakehouse.readers.batch import FileBatch, declared_by, reading_of
from dagster_tidemark.lakehouse.readers.csv_text import CsvShape
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import NotScanned, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.probe import Inspected, inspect
from dagster_tidemark.lakehouse.readers.text import NO_OBJECT
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import ObjectChanged, ObjectUnavailable, ObjectVersion
from tests.toys.feeds import ORDERS

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

    def read(self, of: ObjectVersion) -> bytes:
        return self.bodies[of.key]

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        return self.bodies[of.key][begin : begin + length]

    def check(self, of: ObjectVersion) -> None:
        """It is as it was."""


def inspected(bodies: dict[str, bytes], feed: Feed = ORDERS) -> Inspected:
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(key, "v", at, "2026-10-01-07:00", len(body)) for key, body in bodies.items()]
    return inspect(Store(bodies), feed, files)


def batch_of(bodies: dict[str, bytes], feed: Feed = ORDERS) -> FileBatch:
    """Return the files as a load has them, with the rows of small ones."""
    spark: Any = None
    return reading_of(spark, Store(bodies), feed, inspected(bodies, feed), code_version="1", partition_values={})


def rows_by_file(batch: FileBatch) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of small files by key."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in batch.small.to_pylist():
        found.setdefault(batch.in_order[row["_file"]].key, []).append(row)
    return found


def fetched(bodies: dict[str, bytes]) -> set[str]:
    """Return the files that are read in memory. All others are left to Spark's workers."""
    found = batch_of(bodies)
    assert not found.faults
    here, left = set(rows_by_file(found)), {file.key for file in found.large}
    assert here | left == set(bodies) and not here & left, "of a file all rows, or none"
    return here


def test_time_to_plan_the_parts_of_large_files_grows_with_their_number() -> None:
    at, spark, store = datetime(2026, 10, 1, tzinfo=UTC), Mock(), Mock()
    columns = tuple((c, "string") for c in ORDERS.columns)
    shapes: dict[SourceFile, Shape] = {
        SourceFile(f"{n}.csv", "v", at, "2026-10-01-07:00", 2 << 20): CsvShape("csv", columns) for n in range(4_000)
    }
    batch = FileBatch(spark, store, ORDERS, "1", Inspected(shapes, {}, []), pa.table({}), [], {})
    begun = time.process_time()
    assert len(batch.parts()) == len(shapes)
    assert time.process_time() - begun < 2, "16 million steps take a minute"


def test_check_after_a_scan_names_all_refused_files_and_the_first_changed_one() -> None:
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(f"{n}.csv", "v", at, "2026-10-01-07:00", 2 << 20) for n in range(40)]
    faults: dict[str, Exception] = {f"{n}.csv": ObjectUnavailable(f"{n}.csv", "AccessDenied") for n in (3, 31)}

    def check(of: ObjectVersion) -> None:
        if of.key in faults:
            raise faults[of.key]

    landing = Mock(check=Mock(side_effect=check))
    with pytest.raises(NotScanned) as raised:
        check_scanned(landing, files)
    assert raised.value.files == {files[3]: "AccessDenied", files[31]: "AccessDenied"}
    assert landing.check.call_count == len(files)
    faults |= {f"{n}.csv": ObjectChanged(f"{n}.csv", "it was overwritten") for n in (7, 35)}
    with pytest.raises(ObjectChanged) as changed:
        check_scanned(landing, files)
    assert changed.value.key == "7.csv"
    faults.clear()
    check_scanned(landing, files)
    check_scanned(landing, [])


def test_small_parquet_file_with_millions_of_rows_is_read_by_spark() -> None:
    bomb = parquet(3_000_000)
    assert len(bomb) < small_files.SMALL
    assert fetched({"bomb.parquet": bomb, "a.parquet": parquet(10)}) == {"a.parquet"}


def one_value(rows: int, size: int, *, nested: bool = False) -> bytes:
    """Parquet in which one long text is the value of every row, and stands there once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size])).cast(pa.string())
    if nested:
        text = pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), text)
    sink = io.BytesIO()
    rest = {c: pa.array(["1"] * rows) for c in ORDERS.columns if c != "order_id"}
    pq.write_table(pa.table(rest | {"order_id": text}), sink, store_schema=False)
    return sink.getvalue()


@pytest.mark.parametrize("nested", [False, True])
def test_repeated_parquet_text_counts_for_each_row_in_the_memory_budget(nested: bool) -> None:
    bomb = one_value(4_000, 16_000, nested=nested)
    assert len(bomb) < 200_000
    assert fetched({"bomb.parquet": bomb, "a.parquet": one_value(4, 16_000, nested=nested)}) == {"a.parquet"}


def test_small_gzip_file_with_megabytes_of_text_is_read_by_spark() -> None:
    line = b'{"order_id": [' + b"1," * (small_files.LONGEST_TEXT // 2) + b"1]}\n"
    bomb = gzip.compress(line)
    assert len(bomb) < 100_000 and len(line) > small_files.LONGEST_TEXT
    assert fetched({"bomb.json.gz": bomb, "a.json.gz": gzip.compress(b'{"order_id": 1}\n')}) == {"a.json.gz"}


def peak_per_byte(unit: bytes) -> float:
    """Bytes of Python objects, at most, for each byte of JSON."""
    text = b'{"order_id": [' + unit * (1_200_000 // len(unit)) + b"1]}\n"
    tracemalloc.start()
    try:
        assert batch_of({"a.json.gz": gzip.compress(text)}).small.num_rows == 1
        return tracemalloc.get_traced_memory()[1] / len(text)
    finally:
        tracemalloc.stop()


def test_parsing_json_needs_at_most_50_times_its_text_in_memory() -> None:
    """Each is a Python object for a moment. A record has at most 24 MB, and one file is parsed at a time."""
    units = [b"{} ,", b'{"order_id":1} ,', b"[],", b"1,"]
    # In a process of its own: what other threads of this one allocate would count too.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        peaks = dict(zip(units, process.map(peak_per_byte, units), strict=True))
    assert max(peaks.values()) < 50, peaks


def test_internal_capacity_error_is_raised_and_not_reported_as_a_file_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    monkeypatch.setattr("dagster_tidemark.lakehouse.parsing.typed_rows._texts", full)
    with pytest.raises(pa.ArrowCapacityError):
        batch_of({"a.parquet": parquet(1)})


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_small_files_beyond_the_row_budget_are_read_by_spark(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "_Budget", partial(in_memory._Budget, rows=1000))
    body = {"csv": csv(90), "csv.gz": gzip.compress(csv(90)), "parquet": parquet(90)}[form]
    assert len(fetched({f"{n:02}.{form}": body for n in range(30)})) == 11


def test_small_compressed_files_count_by_their_inflated_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "_Budget", partial(in_memory._Budget, size=10_000))
    zeros = gzip.compress((HEADER + "0" * 4_000 + "\n").encode())
    assert len(fetched({f"{n}.csv.gz": zeros for n in range(10)})) == 2


class Counting(Store):
    """Notes how much is asked for."""

    asked: list[int]

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        self.asked.append(length)
        return self.bodies[of.key][begin - of.size :][:length]


LONG = LONGEST_LINE + BLOCK
"""Bytes of a line that is too long wherever the blocks begin that a file is read in."""


@pytest.mark.parametrize(
    ("length", "end", "refused"), [(LONG, b"\n", True), (LONG, b"", True), (LONGEST_LINE - 1, b"\r", False)]
)
def test_too_long_line_in_a_compressed_file_is_detected(length: int, end: bytes, refused: bool) -> None:
    body = gzip.compress(csv(1) + csv(1) + b"1" * length + end + csv(1)[len(HEADER) :], 1)
    assert len(body) < 1 << 20
    assert batch_of({"a.csv.gz": body}).large, "so much text is for workers, which read it with the same function"
    [shape] = inspected({"a.csv.gz": body}).shapes.values()
    expected = pytest.raises(Unusable, match=f"^it has a line of more than {LONGEST_LINE} bytes$")
    with expected if refused else contextlib.nullcontext():
        for _ in csv_rows.rows_of(declared_by(ORDERS), shape, MemoryFile("a.csv.gz", body), WHOLE):
            pass


class Plain:
    """A file that is made up while it is read: short lines, a long one, and short ones behind it."""

    key, size = "a.csv", 10 * LONGEST_LINE

    def __init__(self, line: int) -> None:
        self.asked, self._line = 0, line

    def read(self, begin: int, length: int) -> bytes:
        self.asked += length
        long_one = max(0, min(self._line + 7_000_000, begin + length) - max(begin, 7_000_000))
        return b"1" * long_one + (b"12345678\n" * (length // 9 + 1))[: length - long_one]


def test_reading_stops_at_a_line_that_is_too_long() -> None:
    source = Plain(LONG * 5 // 4)
    with pytest.raises(Unusable, match="it has a line of more than"):
        for _ in csv_rows.rows_of(declared_by(ORDERS), Shape("csv", (("order_id", "string"),)), source, WHOLE):
            pass
    assert source.asked <= 7_000_000 + LONGEST_LINE + 2 * BLOCK


def test_file_with_a_false_parquet_footer_length_is_refused_without_large_reads() -> None:
    for end in (b"junk", b"PAR1"):
        store = Counting({"a.parquet": b"x" * 100 + (900 << 20).to_bytes(4, "little") + end})
        store.asked = []
        file = SourceFile("a.parquet", "v", datetime(2026, 10, 1, tzinfo=UTC), "2026-10-01-07:00", 1 << 30)
        found = inspect(store, ORDERS, [file])
        assert [fault.reason for fault in found.faults] == ["unreadable"]
        assert max(store.asked) <= 64 << 10


def of_times(array: pa.Array, **options: object) -> bytes:
    sink = io.BytesIO()
    rest = {c: pa.array(["1"]) for c in ORDERS.columns if c != "ordered_at"}
    pq.write_table(pa.table(rest | {"ordered_at": array}), sink, **options)
    return sink.getvalue()


FAR = 2**63 - 1
ODD_PARQUET = {
    "a sentinel": of_times(pa.array([FAR], pa.timestamp("ms"))),
    "a zone that is none": of_times(pa.array([0], pa.timestamp("us", "Mars/Phobos"))),
    "a name that is no text": of_times(pa.array(["1"])).replace(b"quantity", b"quan\xfcity"),
    "far days in a list": of_times(pa.array([[2**31 - 1]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))),
    "far times in a list": of_times(pa.array([[FAR]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))),
    "spans in a list": of_times(pa.array([[FAR]], pa.list_(pa.int64())).cast(pa.list_(pa.duration("us")))),
    "a field twice": of_times(
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], fields=[pa.field("a", pa.int64())] * 2)
    ),
}


@pytest.mark.parametrize("odd", ODD_PARQUET)
def test_odd_small_parquet_file_does_not_stop_other_files(odd: str) -> None:
    columns = dict.fromkeys(ORDERS.columns, "string")
    for feed in (ORDERS, dataclasses.replace(ORDERS, columns=columns, rules={})):
        bodies = {"a.csv": csv(2), "odd.parquet": ODD_PARQUET[odd]}
        found = batch_of(bodies, feed)
        assert len(rows_by_file(found)["a.csv"]) == 2
        assert {fault.file.key for fault in found.faults} <= {"odd.parquet"}


def test_json_file_is_read_in_each_common_layout() -> None:
    rows = [{"order_id": n, "line_number": 1, "product_id": "a [ {"} for n in range(200)]
    printed = {
        "lines.json": "\n".join(map(json.dumps, rows)),
        "one_line.json": json.dumps(rows),
        "indented.json": json.dumps(rows, indent=2),
        "row_a_line.json": "[\r\n" + ",\r\n".join(map(json.dumps, rows)) + "\r\n]\r\n",
        "documents.json": "\n".join(json.dumps(row, indent=1) for row in rows),
    }
    found = batch_of({name: text.encode() for name, text in printed.items()})
    assert not found.faults
    for name in printed:
        assert [row["order_id"] for row in rows_by_file(found)[name]] == list(range(200))


def test_indented_json_is_refused_in_a_jsonl_file() -> None:
    body = json.dumps([{"order_id": 1, "line_number": 1}], indent=2).encode()
    (fault,) = batch_of({"a.jsonl": body, "a.json": body}).faults
    assert (fault.file.key, fault.message) == ("a.jsonl", f"no line of it is a JSON object; the first: {NO_OBJECT}")


def test_deeply_nested_json_file_does_not_stop_other_files() -> None:
    feed = dataclasses.replace(ORDERS, multiline=True)
    bodies = {"a.csv": csv(2), "deep.json": b'{"order_id": ' + b"[" * 450 + b"]" * 450 + b"}"}
    assert len(rows_by_file(batch_of(bodies, feed))["a.csv"]) == 2


@pytest.mark.parametrize("year", [1, 1600, 2300, 9999])
def test_timestamps_outside_the_nanosecond_range_are_read_exactly(year: int) -> None:
    far = of_times(pa.array([datetime(year, 12, 31, 7)], pa.timestamp("us")), use_deprecated_int96_timestamps=True)
    found = batch_of({"far.parquet": far})
    assert not found.faults
    assert found.small.column("ordered_at").to_pylist() == [datetime(year, 12, 31, 7, tzinfo=UTC)]
