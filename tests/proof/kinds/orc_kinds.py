"""Kinds of ORC: written by pyarrow with the types and codecs of old and new writers."""

import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import orc

from tests.proof.kinds.kind import Kind, beside_number_and_text
from tests.proof.kinds.parquet_kinds import AT, LOCAL, same

D = Decimal
BASE = {"n": "bigint", "text": "string"}


def file_of(columns: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.table(columns), sink, **{"stripe_size": 400_000} | options)
    return sink.getvalue()


def typed(
    name: str,
    values: Callable[[int], pa.Array],
    kind: str,
    value: object,
    *,
    refused: str = "",
    key: str = "f.orc",
    options: dict[str, Any] | None = None,
    patch: Callable[[bytes], bytes] = bytes,
    **writing: Any,
) -> Kind:
    """A column of one type, beside the number and the pad."""
    write = beside_number_and_text(file_of, values, patch, **writing)
    columns = {"n": "bigint", "value": kind, "text": "string"}
    return Kind(name, columns, write, lambda n, pad: (n, value, pad), options or {}, key, refused=refused)


KINDS = [
    typed("numbers and texts", same(1.5, pa.float64()), "double", 1.5),
    typed("endings in capitals", same(1.5, pa.float64()), "double", 1.5, key="f.ORC"),
    typed(
        "another ending",
        same(1.5, pa.float64()),
        "double",
        1.5,
        key="part-0",
        options={"format": "orc", "suffixes": ("part-0",)},
    ),
    *(typed(codec, same(1, pa.int64()), "bigint", 1, compression=codec) for codec in ("zlib", "snappy", "zstd", "lz4")),
    typed("one large stripe", same(1, pa.int64()), "bigint", 1, stripe_size=64 << 20),
    typed("texts in dictionaries (Hive)", same("abc", pa.string()), "string", "abc", dictionary_key_size_threshold=1.0),
    typed("times without a zone", same(LOCAL, pa.timestamp("us")), "timestamp", AT),
    typed("times of a zone", same(AT, pa.timestamp("us", "America/New_York")), "timestamp", AT),
    typed("times with nanoseconds", same(LOCAL, pa.timestamp("ns")), "timestamp", AT),
    typed(
        "times before 1900",
        same(datetime(1700, 1, 1), pa.timestamp("us")),
        "timestamp",
        datetime(1700, 1, 1, tzinfo=UTC),
    ),
    typed(
        "times before 1678",
        same(datetime(1500, 1, 1), pa.timestamp("us")),
        "timestamp",
        None,
        refused="a time is not between the years 1678 and 2261; write it as a text",
    ),
    typed("days", same(date(2026, 1, 2), pa.date32()), "date", date(2026, 1, 2)),
    typed("days before 1900", same(date(1, 1, 1), pa.date32()), "date", date(1, 1, 1)),
    typed("decimals", same(D("1.50"), pa.decimal128(10, 2)), "decimal(18,2)", D("1.50")),
    typed("decimals of 38 digits", same(D("1.50"), pa.decimal128(38, 2)), "decimal(18,2)", D("1.50")),
    typed("places that a decimal lacks", same(D("1.500"), pa.decimal128(20, 3)), "decimal(18,2)", D("1.50")),
    typed("small numbers", same(7, pa.int8()), "bigint", 7),
    typed("numbers as texts", same("7", pa.string()), "bigint", 7),
    typed("numbers in a text column", same(7, pa.int64()), "string", "7"),
    typed("truth", same(True, pa.bool_()), "boolean", True),
    typed("floats as decimals", same(0.1, pa.float32()), "decimal(18,4)", D("0.1")),
    typed("bytes", same(b"\x00\x01", pa.binary()), "binary", b"\x00\x01"),
    typed("empty texts", same("", pa.string()), "string", None),
    typed("a column of nulls", same(None, pa.int64()), "bigint", None),
    typed("lists", same([1, None], pa.list_(pa.int64())), "string", "[1,null]"),
    typed(
        "structs",
        same({"a": 1, "b": None}, pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "string",
        '{"a":1,"b":null}',
    ),
    typed("maps", same([("k", 1.5)], pa.map_(pa.string(), pa.float64())), "string", '{"k":1.5}'),
    Kind(
        "columns without names (old Hive)",
        BASE,
        lambda count, pad: file_of({"_col0": range(count), "_col1": [pad(n) for n in range(count)]}),
        lambda n, pad: (n, pad),
        {"names": {"n": ["_col0"], "text": ["_col1"]}},
        "f.orc",
    ),
    Kind(
        "names in capitals",
        {"n": "bigint"},
        lambda count, pad: file_of({"N": range(count), "TEXT": [pad(n) for n in range(count)]}),
        key="f.orc",
        refused="none of the declared columns",
    ),
    typed(
        "a file that ends early",
        same(1, pa.int64()),
        "bigint",
        1,
        patch=lambda b: b[:-20],
        refused="not a valid ORC file, or damaged",
    ),
    typed(
        "the first two thirds of a file",
        same(1, pa.int64()),
        "bigint",
        1,
        patch=lambda b: b[: len(b) * 2 // 3],
        refused="not a valid ORC file, or damaged",
    ),
    typed(
        "an empty file",
        same(1, pa.int64()),
        "bigint",
        1,
        patch=lambda b: b"" if len(b) < 1 << 20 else b"\0" * len(b),
        refused="the file is empty or not a valid ORC file, or damaged",
    ),
    typed(
        "CSV called .orc",
        same(1, pa.int64()),
        "bigint",
        1,
        patch=lambda b: b"n,text,value\n" + b"1,x,1\n" * (len(b) // 6),
        refused="not a valid ORC file, or damaged",
    ),
]
