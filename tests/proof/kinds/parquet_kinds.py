"""Kinds of Parquet: written by pyarrow with the types and encodings of old and new writers, some footers by hand."""

import base64
import io
import struct
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption

from tests.proof.kinds.kind import Kind, Row, beside_number_and_text

AT = datetime(2026, 1, 2, 13, 5, tzinfo=UTC)
LOCAL = AT.replace(tzinfo=None)
D = Decimal


def file_of(columns: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **{"compression": "none", "row_group_size": 5000} | options)
    return sink.getvalue()


def typed(
    name: str,
    values: Callable[[int], pa.Array],
    kind: str,
    value: object,
    *,
    odd: Sequence[str] = (),
    refused: str = "",
    patch: Callable[[bytes], bytes] = bytes,
    options: dict[str, Any] | None = None,
    row: Row | None = None,
    **writing: Any,
) -> Kind:
    """A column of one type, beside the number and the pad."""
    write = beside_number_and_text(file_of, values, patch, **writing)
    columns = {"n": "bigint", "value": kind, "text": "string"}
    return Kind(name, columns, write, row or (lambda n, pad: (n, value, pad)), options or {}, "f.parquet", odd, refused)


def same(value: Any, kind: pa.DataType) -> Callable[[int], pa.Array]:
    return lambda count: pa.array([value] * count, kind)


def as_decimal(physical: int, scale: int, precision: int) -> Callable[[bytes], bytes]:
    """Return a function that makes the column `value` a decimal in the footer: Thrift's converted type 5."""

    def patch(body: bytes) -> bytes:
        (size,) = struct.unpack("<I", body[-8:-4])
        footer = body[-8 - size : -8]
        element = bytes([0x15, 2 * physical, 0x25, 2, 0x18, 5]) + b"value"
        assert footer.count(element) == 1
        footer = footer.replace(element, element + bytes([0x25, 10, 0x15, 2 * scale, 0x15, 2 * precision]))
        return body[: -8 - size] + footer + struct.pack("<I", len(footer)) + body[-4:]

    return patch


def numbers_as(kind: pa.DataType, view: pa.DataType, number: int) -> Callable[[int], pa.Array]:
    return lambda count: pa.array([number] * count, kind).view(view)


class KeysInMemory(encryption.KmsClient):
    """A key service that wraps a key by Base64."""

    def __init__(self, _: encryption.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


def encrypted(count: int, pad: Callable[[int], str], *, plaintext_footer: bool) -> bytes:
    """Return a file whose column `text` is encrypted."""
    keys = encryption.CryptoFactory(KeysInMemory)
    config = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["text"]}, plaintext_footer=plaintext_footer
    )
    properties = keys.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    table = pa.table({"n": range(count), "text": [pad(n) for n in range(count)]})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return sink.getvalue()


BYTES = {"store_schema": False, "use_dictionary": False}
FAR = 253_402_300_800_000_000  # microseconds up to the year 10000

KINDS = [
    typed("numbers and texts", same(1.5, pa.float64()), "double", 1.5),
    typed("old Spark: INT96", same(LOCAL, pa.timestamp("us")), "timestamp", AT, use_deprecated_int96_timestamps=True),
    typed(
        "INT96 before 1900",
        same(datetime(1700, 1, 1), pa.timestamp("us")),
        "timestamp",
        datetime(1700, 1, 1, tzinfo=UTC),
        use_deprecated_int96_timestamps=True,
    ),
    typed(
        "INT96 after 2262",
        same(datetime(2500, 1, 1), pa.timestamp("us")),
        "timestamp",
        datetime(2500, 1, 1, tzinfo=UTC),
        use_deprecated_int96_timestamps=True,
    ),
    typed(
        "decimals as bytes of any length (Impala, Hive)",
        same(struct.pack(">h", 1999), pa.binary()),
        "decimal(18,2)",
        D("19.99"),
        patch=as_decimal(6, 2, 10),
        **BYTES,
    ),
    typed(
        "negative decimals as bytes",
        same(struct.pack(">b", -5), pa.binary()),
        "decimal(18,2)",
        D("-0.05"),
        patch=as_decimal(6, 2, 10),
        **BYTES,
    ),
    typed(
        "decimals with more digits than their type",
        same(123456789, pa.int64()),
        "decimal(18,2)",
        D("1234567.89"),
        patch=as_decimal(2, 2, 5),
        **BYTES,
    ),
    typed(
        "decimals as int32",
        same(D("1.50"), pa.decimal128(5, 2)),
        "decimal(18,2)",
        D("1.50"),
        store_decimal_as_integer=True,
    ),
    typed("decimals as fixed bytes", same(D("1.50"), pa.decimal128(30, 2)), "decimal(18,2)", D("1.50")),
    typed("decimals of 60 digits", same(D("1.50"), pa.decimal256(60, 2)), "decimal(18,2)", D("1.50")),
    typed("places that a decimal lacks", same(D("1.500"), pa.decimal128(20, 3)), "decimal(18,2)", D("1.50")),
    typed("times in nanoseconds (pandas)", same(LOCAL, pa.timestamp("ns")), "timestamp", AT),
    typed("times in milliseconds", same(LOCAL, pa.timestamp("ms")), "timestamp", AT),
    typed("times in seconds", same(LOCAL, pa.timestamp("s")), "timestamp", AT),
    typed("times of a zone", same(AT, pa.timestamp("us", "America/New_York")), "timestamp", AT),
    typed(
        "times beyond 9999 as texts", numbers_as(pa.int64(), pa.timestamp("us"), FAR), "string", "+10000-01-01 00:00:00"
    ),
    typed(
        "times beyond 9999 in lists",
        lambda count: pa.ListArray.from_arrays(
            pa.array(range(count + 1), pa.int32()), pa.array([FAR] * count, pa.int64()).view(pa.timestamp("us"))
        ),
        "string",
        '["+10000-01-01 00:00:00.000000"]',
    ),
    typed("days beyond 9999 as texts", numbers_as(pa.int32(), pa.date32(), 3_000_000), "string", "+10183-09-21"),
    typed("times of day", same(time(1, 2, 3), pa.time64("us")), "string", "01:02:03.000000"),
    typed("times of day in milliseconds", same(time(1, 2, 3), pa.time32("ms")), "string", "01:02:03.000"),
    typed("durations", same(timedelta(seconds=5), pa.duration("us")), "bigint", 5_000_000),
    typed("half floats", lambda count: pa.array([np.float16(1.5)] * count, pa.float16()), "double", 1.5),
    typed("half floats as texts", lambda count: pa.array([np.float16(1.5)] * count, pa.float16()), "string", "1.5"),
    typed("floats as decimals", same(0.1, pa.float32()), "decimal(18,4)", D("0.1")),
    typed("unsigned numbers", same(2**63 + 1, pa.uint64()), "decimal(38,0)", D(2**63 + 1)),
    typed("small numbers", same(7, pa.int8()), "bigint", 7),
    typed("numbers as texts", same("7", pa.string()), "bigint", 7),
    typed("numbers in a text column", same(7, pa.int64()), "string", "7"),
    typed("truth in a text column", same(True, pa.bool_()), "string", "true"),
    typed("days", same(date(2026, 1, 2), pa.date32()), "date", date(2026, 1, 2)),
    typed("days as times", same(date(2026, 1, 2), pa.date32()), "timestamp", datetime(2026, 1, 2, tzinfo=UTC)),
    typed("texts without a type (Hive, Impala)", same(b"abc", pa.binary()), "string", "abc", store_schema=False),
    typed("large texts (polars)", same("abc", pa.large_string()), "string", "abc"),
    typed("views of texts (polars, DuckDB)", same("abc", pa.string_view()), "string", "abc"),
    typed("categories (pandas)", lambda count: pa.array(["abc"] * count).dictionary_encode(), "string", "abc"),
    typed("empty texts", same("", pa.string()), "string", None),
    typed("a column of nulls", lambda count: pa.nulls(count), "bigint", None),
    typed("lists", same([1, None], pa.list_(pa.int64())), "string", "[1,null]"),
    typed(
        "structs",
        same({"a": 1, "b": None}, pa.struct([("a", pa.int64()), ("b", pa.string())])),
        "string",
        '{"a":1,"b":null}',
    ),
    typed(
        "VARIANT",
        same({"metadata": b"\1\0\0", "value": b"\0"}, pa.struct([("metadata", pa.binary()), ("value", pa.binary())])),
        "string",
        None,
        refused="column value is a VARIANT, which is not read; write it as a text, such as to_json(value)",
    ),
    typed("maps", same([("k", 1.5)], pa.map_(pa.string(), pa.float64())), "string", '{"k":1.5}'),
    typed(
        "UUIDs",
        lambda count: pa.array([uuid.UUID(int=5).bytes] * count, pa.binary(16)),
        "binary",
        uuid.UUID(int=5).bytes,
    ),
    typed(
        "UUIDs with their type in a column of bytes",
        lambda count: pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([uuid.UUID(int=5).bytes] * count, pa.binary(16))
        ),
        "binary",
        uuid.UUID(int=5).bytes,
    ),
    typed(
        "zstd, data pages of version 2",
        same(1, pa.int64()),
        "bigint",
        1,
        compression="zstd",
        compression_level=1,
        data_page_version="2.0",
    ),
    typed("gzip", same(1, pa.int64()), "bigint", 1, compression="gzip", compression_level=1),
    typed("brotli", same(1, pa.int64()), "bigint", 1, compression="brotli", compression_level=1),
    typed("lz4", same(1, pa.int64()), "bigint", 1, compression="lz4"),
    typed(
        "delta encodings",
        same(1, pa.int64()),
        "bigint",
        1,
        use_dictionary=False,
        column_encoding={"n": "DELTA_BINARY_PACKED", "text": "DELTA_LENGTH_BYTE_ARRAY", "value": "DELTA_BINARY_PACKED"},
    ),
    typed(
        "bytes split by place",
        same(1.5, pa.float64()),
        "double",
        1.5,
        use_dictionary=False,
        column_encoding={"value": "BYTE_STREAM_SPLIT", "n": "PLAIN", "text": "PLAIN"},
    ),
    typed(
        "no statistics, many row groups", same(1, pa.int64()), "bigint", 1, write_statistics=False, row_group_size=700
    ),
    typed("a column renamed", same(1, pa.int64()), "bigint", 1, options={"names": {"n": ["Nr"]}}),
    Kind(
        "a column without a name (index of pandas)",
        {"n": "bigint", "text": "string"},
        lambda count, pad: file_of({"": range(count), "n": range(count), "text": [pad(n) for n in range(count)]}),
        lambda n, pad: (n, pad),
        key="f.PARQUET",
    ),
    Kind(
        "names in capitals",
        {"n": "bigint"},
        lambda count, pad: file_of({"N": range(count), "TEXT": [pad(n) for n in range(count)]}),
        key="f.parquet",
        refused="none of the declared columns",
    ),
    Kind(
        "a file that ends early",
        {"n": "bigint"},
        lambda count, pad: file_of({"n": range(count), "text": [pad(n) for n in range(count)]})[:-20],
        key="f.parquet",
        refused="not a valid Parquet file, or damaged",
    ),
    Kind(
        "encrypted columns, readable footer",
        {"n": "bigint"},
        lambda count, pad: encrypted(count, pad, plaintext_footer=True),
        key="f.parquet",
        refused="the file is encrypted, which is not read",
    ),
    Kind(
        "an encrypted footer",
        {"n": "bigint"},
        lambda count, pad: encrypted(count, pad, plaintext_footer=False),
        key="f.parquet",
        refused="the file is encrypted, which is not read",
    ),
    Kind(
        "CSV called .parquet",
        {"n": "bigint"},
        lambda count, pad: b"n,text\n" + b"".join(f"{n},{pad(n)}\n".encode() for n in range(count)),
        key="f.parquet",
        refused="not a valid Parquet file, or damaged",
    ),
]
