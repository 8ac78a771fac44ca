"""Rows of Parquet: what a value means does not depend on whether it is handed on as a value or as its text."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.lakehouse import shipping
from dagster_tidemark.lakehouse.parsing import typed_rows
from dagster_tidemark.lakehouse.parsing.kernels import arrow_type
from dagster_tidemark.lakehouse.parsing.part_of_file import typed_columns
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, Part, Rows, equal_parts
from dagster_tidemark.lakehouse.parsing.typed_rows import NO_TEXT, rows_of_table
from dagster_tidemark.lakehouse.readers import parquet
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.parquet import rows_of
from dagster_tidemark.lakehouse.readers.values import _number
from tests.tidemark.lakehouse.parsing.arrow_edges import KINDS, edges, is_same, text_of
from tests.tidemark.lakehouse.parsing.sources import InMemory, cut

EDGES = edges()


class Stored(InMemory):
    """A file that notes the requests for it. The store may refuse one."""

    def __init__(self, body: bytes, refused: int | None = None) -> None:
        super().__init__("a.parquet", body)
        self.refused = refused
        self.requests: list[tuple[int, int]] = []

    def read(self, begin: int, length: int) -> bytes:
        self.requests.append((begin, length))
        if len(self.requests) - 1 == self.refused:
            raise Refused(f"request {self.refused}")
        return super().read(begin, length)


class Refused(Exception):
    """The error of a store."""


def written(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def as_table(body: bytes) -> pa.Table:
    with pq.ParquetFile(io.BytesIO(body), coerce_int96_timestamp_unit="us") as opened:
        return opened.read()


def whole(found: Sequence[Rows], column: str) -> list[object]:
    return [value for rows in found for value in rows.columns[column].to_pylist()]


def meaning(text: str | None, kind: str) -> object:
    """Return the exact value that a text has in a type."""
    if text is None:
        return None
    if kind == "string":
        return text or None
    if kind == "binary":
        return text.encode()
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    if kind in ("int", "bigint"):
        assert re.fullmatch("-?[0-9]+", text)
        return int(text)
    if kind == "double":
        return float(text)
    if kind == "float":
        return float(np.float32(text))
    if kind == "date":
        assert re.fullmatch("(.{10})( 00:00:00.000000[0-9]{0,3}Z)?", text)
        return date.fromisoformat(text[:10])
    if kind.startswith("timestamp"):
        assert re.fullmatch(r".{10}( .{8}\.[0-9]{6,9}Z)?", text)
        text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)  # a timestamp has microseconds
        time = datetime.fromisoformat(text.removesuffix("Z"))
        return time.replace(tzinfo=UTC) if kind == "timestamp" else time
    precision, scale = arrow_type(kind).precision, arrow_type(kind).scale
    value = Decimal(text)
    assert value.copy_abs() < Decimal(10) ** (precision - scale)
    assert value == value.quantize(Decimal(1).scaleb(-scale), context=Context(prec=100))
    return value


@pytest.mark.parametrize("name", EDGES)
def test_parquet_value_is_read_like_its_text_form(name: str) -> None:
    body = written(pa.table({"v": EDGES[name]}))
    table = as_table(body)
    for kind in KINDS:
        texts = [text_of(table["v"].slice(n, 1).combine_chunks(), kind) for n in range(table.num_rows)]
        # Each value alone, so that no value becomes a text because of another one, and then all values together.
        every = [rows_of_table(DeclaredContent({"v": kind}), table.slice(n, 1)) for n in range(table.num_rows)]
        for found in (every, list(rows_of(DeclaredContent({"v": kind}), None, Stored(body)))):
            assert sum(rows.count for rows in found) == len(texts)
            assert all(rows.faults is None for rows in found)
            said = iter(texts)
            for rows in found:
                column = rows.columns["v"]
                assert column.type in (pa.string(), arrow_type(kind)), (kind, column.type)
                for value in column.to_pylist():
                    text = next(said)
                    if column.type == pa.string() and kind != "string":
                        assert value == text, kind
                    else:
                        assert is_same(value, meaning(text, kind)), (kind, value, text)


WIDENED = {
    "int8": ("int", "bigint", "float", "double", "decimal(10,0)", "decimal(18,4)", "decimal(38,18)"),
    "int32": ("int", "bigint", "decimal(18,4)", "decimal(38,18)", "decimal(10,0)"),
    "int64": ("bigint", "decimal(38,0)", "decimal(38,18)"),
    "uint32": ("bigint", "double"),
    "float": ("float",),
    "double": ("double",),
    "bool": ("boolean",),
    "null": KINDS,
    "decimal128(10, 2)": ("decimal(18,4)", "decimal(38,18)"),
    "decimal128(9, 0)": ("int", "bigint", "decimal(10,0)", "decimal(38,0)"),
    "decimal128(3, 2)": ("decimal(3,2)",),
    "date64": ("date", "timestamp", "timestamp_ntz"),
    "timestamp[ns]": ("timestamp", "timestamp_ntz"),
    "timestamp[ns, tz=UTC]": ("timestamp", "timestamp_ntz"),
    "timestamp[ns, tz=+05:30]": ("timestamp", "timestamp_ntz"),
    "string": ("string", "binary"),
    "large_binary": ("string", "binary"),
}


@pytest.mark.parametrize("name", WIDENED)
def test_parquet_values_of_a_narrower_type_are_cast_without_text(name: str) -> None:
    table = as_table(written(pa.table({"v": EDGES[name]})))
    for kind in WIDENED[name]:
        assert rows_of_table(DeclaredContent({"v": kind}), table).columns["v"].type == arrow_type(kind), kind


def test_parquet_values_outside_the_declared_type_are_kept_as_text() -> None:
    columns = {
        "bigint": [pa.array([1e20]), pa.array([float("nan")]), pa.array([2**63], pa.uint64()), pa.array([3.0])],
        "int": [pa.array([2**31]), pa.array([True])],
        "double": [pa.array([2**53 + 1]), pa.array([0.1], pa.float32())],
        "float": [pa.array([0.1]), pa.array([2**24 + 1])],
        "decimal(18,4)": [pa.array([Decimal("0.00001")]), pa.array([10**15])],
        "date": [pa.array([datetime(2026, 10, 1, 7, 15)]), pa.array([3_000_000], pa.int32()).cast(pa.date32())],
        "timestamp": [pa.array([2**62]).view(pa.timestamp("us")), pa.array([5])],
    }
    for kind, arrays in columns.items():
        for array in arrays:
            assert (
                rows_of_table(DeclaredContent({"v": kind}), pa.table({"v": array})).columns["v"].type == pa.string()
            ), array


def test_small_decimals_are_written_to_text_without_an_exponent() -> None:
    # With one, `Feed.exact` would take its digits for lost.
    values = pa.array([Decimal("0.0000000150"), None, Decimal(0), Decimal("1.5")], pa.decimal128(18, 10))
    texts = rows_of_table(DeclaredContent({"v": "string"}), pa.table({"v": values})).columns["v"]
    assert texts.to_pylist() == ["0.0000000150", None, "0.0000000000", "1.5000000000"]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_floats_are_written_to_text_as_java_formats_them(kind: type[np.floating[Any]]) -> None:
    random = np.random.default_rng(2)
    numbers = np.concatenate(
        [
            random.standard_normal(5000).astype(kind) * np.power(10.0, random.integers(-6, 10, 5000)).astype(kind),
            np.arange(-2000, 2000).astype(kind) / kind(8),
            np.array([0.0, -0.0, 1e-3, 1e7, np.nan, np.inf, -np.inf], kind),
        ]
    )
    texts = rows_of_table(DeclaredContent({"v": "string"}), pa.table({"v": numbers})).columns["v"].to_pylist()
    arrow = pa.from_numpy_dtype(kind)
    assert texts == [_number(number, arrow) for number in pa.array(numbers, arrow).to_pylist()]


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_and_times_of_far_years_are_written_to_text_in_full(unit: str) -> None:
    arrow = pa.date32() if unit == "D" else pa.timestamp(unit)
    bits = 31 if unit == "D" else 63
    numbers = [n * sign for bit in range(bits) for n in (2**bit, 3 * 2**bit // 2) for sign in (1, -1)]
    column = pa.array(numbers, pa.int32() if unit == "D" else pa.int64()).view(arrow)
    for kind in ("string", "bigint"):
        texts = rows_of_table(DeclaredContent({"v": kind}), pa.table({"v": column})).columns["v"].to_pylist()
        assert texts == [text_of(column.slice(n, 1), kind) for n in range(len(column))]


def test_int96_timestamps_keep_years_from_1_to_9999() -> None:
    times = [
        datetime(1, 1, 1),
        datetime(1582, 10, 4, 1, 2, 3, 456789),
        datetime(2300, 1, 1),
        datetime(9999, 12, 31),
        None,
    ]
    body = written(pa.table({"v": pa.array(times, pa.timestamp("us"))}), use_deprecated_int96_timestamps=True)
    assert whole(list(rows_of(DeclaredContent({"v": "timestamp_ntz"}), None, Stored(body))), "v") == times


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        (pa.list_(pa.timestamp("us")), [-62135596800000000], '["0001-01-01 00:00:00.000000"]'),
        (pa.list_(pa.timestamp("us", "Mars/Olympus")), [0], '["1970-01-01 00:00:00.000000"]'),
        (pa.list_(pa.time64("ns")), [5, None], '["00:00:00.000000005",null]'),
        (pa.list_(pa.time64("us")), [5], '["00:00:00.000005"]'),
        (pa.list_(pa.duration("ns")), [5], "[5]"),
        (pa.map_(pa.binary(), pa.int64()), [(b"k", 1)], '{"k":1}'),
        (pa.map_(pa.bool_(), pa.time64("ns")), [(True, 1)], '{"true":"00:00:00.000000001"}'),
        (pa.struct([("at", pa.timestamp("ns"))]), {"at": 1_001}, '{"at":"1970-01-01 00:00:00.000001001"}'),
    ],
)
def test_nested_value_is_written_as_text_without_loss(kind: pa.DataType, values: object, text: str) -> None:
    body = written(pa.table({"v": pa.array([values, None], kind)}))
    assert whole(list(rows_of(DeclaredContent({"v": "string"}), None, Stored(body))), "v") == [text, None]


def test_view_of_bytes_that_are_no_text_rejects_only_its_row() -> None:
    body = written(pa.table({"v": pa.array([b"\xff", b"a"], pa.binary_view())}))
    (rows,) = rows_of(DeclaredContent({"v": "string"}), None, Stored(body))
    assert rows.columns["v"].to_pylist() == [None, "a"]
    assert rows.faults is not None and rows.faults.to_pylist() == [NO_TEXT, None]


def not_text(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


BYTES = [b"a", b"\xff", None, b"", b" \xc3"]


@pytest.mark.parametrize(
    "column",
    [
        not_text(BYTES),
        pa.array(BYTES, pa.large_binary()),
        pa.array(BYTES, pa.binary()),
        pa.array(BYTES, pa.binary_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 3]), not_text([b for b in BYTES if b is not None])),
    ],
    ids=lambda column: str(column.type),
)
def test_binary_column_takes_bytes_that_are_no_text(column: pa.Array) -> None:
    found = rows_of_table(DeclaredContent({"v": "binary", "n": "bigint"}), pa.table({"v": column, "n": range(5)}))
    assert found.columns["v"].to_pylist() == BYTES and found.columns["v"].type == pa.binary()
    assert found.faults is None
    fixed = pa.table({"v": pa.array([b"\xff\0", None], pa.binary(2))})
    assert rows_of_table(DeclaredContent({"v": "binary"}), fixed).columns["v"].to_pylist() == [b"\xff\0", None]


def test_bytes_that_are_no_text_are_shown_in_hexadecimal_beside_a_text_that_is_cast_exactly() -> None:
    declared = DeclaredContent({"v": "binary", "n": "bigint"})
    rows = rows_of_table(declared, pa.table({"v": pa.array([b"\xff\0", b"ab", None]), "n": ["x", "y", "z"]}))
    assert typed_columns(declared, rows)["_texts"].to_pylist() == [["FF00", "x"], ["ab", "y"], [None, "z"]]


UNDECODABLE = [
    not_text([b"a", b"\xff", None, b"M\xfcller \xed\xa0\x80", b""]),
    pa.array([b"a", b"\xff", None, b" \xc3", b" "], pa.binary()),
    pa.array([b"a", b"\xff", None, b"\xc3", b""], pa.large_binary()),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1, 0]), not_text([b"a", b"\xfc"])),
    pa.ListArray.from_arrays([0, 1, 2, 2, 4, 4], not_text([b"a", b"\xfc", b"a", b"\xff"])),
]


@pytest.mark.parametrize(
    ("column", "kind"),
    [(c, k) for c in UNDECODABLE for k in ("string", "bigint", "binary") if k != "binary" or pa.types.is_list(c.type)],
    ids=lambda given: str(getattr(given, "type", given)),
)
def test_undecodable_parquet_bytes_reject_only_their_row(column: pa.Array, kind: str) -> None:
    table = pa.table(
        {
            "v": column,
            "n": pa.array([1, 2, 3, 4, 5]),
            "d": pa.array([0.1, 1e20, None, float("nan"), 1.0]),
            "t": pa.array([0, 1, 2, 3, 4], pa.timestamp("ns")),
            "empty": ["", "", "", "x", ""],
        }
    )
    columns = {"v": kind, "n": "bigint", "d": "double", "t": "timestamp", "empty": "string", "none": "int"}
    found = rows_of_table(DeclaredContent(columns), table)
    assert found.faults is not None
    assert found.records is not None
    records = found.records.to_pylist()
    at_fault = [False, True, False, True, False]
    assert [why is not None for why in found.faults.to_pylist()] == at_fault
    assert found.faults[1].as_py() == NO_TEXT
    assert [record is not None for record in records] == at_fault
    bad = "\\xfc" if "\\xfc" in records[1] else "\\xff"
    shown = json.loads(records[1].replace("\\", "\\\\"))
    assert bad in shown.pop("v")
    assert shown == {"n": "2", "d": "1e+20", "t": "1970-01-01 00:00:00.000000001Z", "empty": ""}
    assert found.columns["none"].to_pylist() == [None] * 5
    for name in table.column_names:
        values, as_declared = found.columns[name], columns[name]
        values.validate(full=True)
        for row, value in enumerate(values.to_pylist()):
            if at_fault[row]:
                assert value is None
                continue
            text = text_of(table[name].slice(row, 1).combine_chunks(), as_declared)
            if values.type == pa.string() and as_declared != "string":
                assert value == text
            else:
                assert is_same(value, meaning(text, as_declared))


TWENTY = pa.table(
    {
        "n": pa.array(range(2000)),
        "text": [None if n % 7 == 0 else f"text {n % 50}" * (n % 3) for n in range(2000)],
        "at": pa.array(range(2000), pa.timestamp("ns")),
        "more": [f"{n} not asked for" for n in range(2000)],
    }
)
COLUMNS = {"n": "bigint", "text": "string", "at": "timestamp", "missing": "int"}


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_parquet_file_read_in_parts_has_the_same_rows(count: int) -> None:
    source = Stored(written(TWENTY, row_group_size=100))
    every = list(rows_of(DeclaredContent(COLUMNS), None, source))
    assert whole(every, "n") == list(range(2000))
    for parts in (equal_parts(source.size, source.size // count), list(cut(source.size, count))):
        assert len(parts) == count
        found = [rows for part in parts for rows in rows_of(DeclaredContent(COLUMNS), None, source, part)]
        for column in COLUMNS:
            assert whole(found, column) == whole(every, column), column


def test_parquet_file_without_rows_gives_no_rows() -> None:
    assert sum(rows.count for rows in rows_of(DeclaredContent(COLUMNS), None, Stored(written(TWENTY.slice(0, 0))))) == 0


def test_only_declared_parquet_columns_of_the_part_are_fetched() -> None:
    source = Stored(
        written(
            TWENTY.append_column("noise", pa.array(np.random.default_rng(1).bytes(n) for n in [99] * 2000)),
            row_group_size=100,
            use_dictionary=False,
        )
    )
    part = Part(source.size // 2, source.size // 2 + source.size // 20)
    assert [rows.count for rows in rows_of(DeclaredContent({"n": "bigint"}), None, source, part)] == [100]
    behind_footer = [length for begin, length in source.requests if begin < source.size - (64 << 10)]
    assert sum(behind_footer) < 2000


def test_parquet_rows_without_any_declared_column_are_counted() -> None:
    found = list(rows_of(DeclaredContent({"other": "int"}), None, Stored(written(TWENTY))))
    assert sum(rows.count for rows in found) == 2000
    assert whole(found, "other") == [None] * 2000


LONG = "long " * 2000


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (pa.array([LONG] * 500), {}),
        (pa.array([LONG] * 500).cast(pa.large_string()), {}),
        (pa.array([LONG] * 500).dictionary_encode(), {}),
        (pa.array([LONG] * 500), {"use_dictionary": False, "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}),
        (pa.array([[LONG]] * 500), {}),
        (pa.array([LONG.encode()[:1000]] * 5000, pa.binary(1000)), {}),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_repeated_long_parquet_value_is_read_with_bounded_memory(
    column: pa.Array, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (typed_rows, parquet):
        monkeypatch.setattr(module, "MOST_BYTES", 200_000)
    source = Stored(written(pa.table({"v": column}), **options))
    assert source.size < 100_000
    found = list(rows_of(DeclaredContent({"v": "string"}), None, source))
    assert max(rows.columns["v"].nbytes for rows in found) < 250_000
    assert sum(rows.count for rows in found) == len(column)


BODY = written(TWENTY, row_group_size=500)
DAMAGED = {
    "empty": b"",
    "junk": b"\x00\x01junk",
    "mark": b"PAR1",
    "cut": BODY[:-200],
    "holed": BODY[:200] + b"\0" * 4000 + BODY[4200:],
    "second half gone": BODY[: len(BODY) // 2] + BODY[-3000:],
    "footer": BODY[:-1500] + bytes(1000) + BODY[-500:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_parquet_file_is_refused_as_unreadable(name: str) -> None:
    with pytest.raises(Unusable, match="not a valid Parquet file, or damaged") as raised:
        list(rows_of(DeclaredContent(COLUMNS), None, Stored(DAMAGED[name])))
    assert raised.value.reason == "unreadable"


def test_randomly_damaged_parquet_is_refused_or_fully_read() -> None:
    random = np.random.default_rng(5)
    refused = 0
    for _ in range(300):
        body = bytearray(BODY)
        at = int(random.integers(4, len(body)))
        body[at : at + 8] = random.bytes(8)
        try:
            rows = list(rows_of(DeclaredContent(COLUMNS), None, Stored(bytes(body))))
        except Unusable:
            refused += 1
        else:
            assert sum(found.count for found in rows) == 2000
    assert refused > 50


def test_parquet_reader_raises_storage_errors_unchanged() -> None:
    source = Stored(BODY)
    list(rows_of(DeclaredContent(COLUMNS), None, source))
    assert len(source.requests) > 3
    for refused in range(len(source.requests)):
        with pytest.raises(Refused, match=f"request {refused}"):
            list(rows_of(DeclaredContent(COLUMNS), None, Stored(BODY, refused)))


WORKER = """
import pickle, sys
sys.modules["dagster_tidemark"] = None
rows_of, declared, source = pickle.load(sys.stdin.buffer)
print(sum(rows.count for rows in rows_of(declared, None, source)))
"""


def test_parsers_and_rules_sent_to_a_worker_run_without_the_project() -> None:
    cloudpickle = shipping._cloudpickle
    packages = [sys.modules["dagster_tidemark"], sys.modules["tests"]]
    for package in packages:
        cloudpickle.register_pickle_by_value(package)
    try:
        shipped = cloudpickle.dumps((rows_of, DeclaredContent(COLUMNS), Stored(BODY)))
    finally:
        for package in packages:
            cloudpickle.unregister_pickle_by_value(package)
    done = subprocess.run([sys.executable, "-c", WORKER], input=shipped, capture_output=True, check=False)
    assert done.stdout.split() == [b"2000"], done.stderr.decode()
