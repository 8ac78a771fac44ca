"""Kinds of Avro: rows encoded by fastavro, in container files that are written here with each codec."""

import bz2
import io
import json
import lzma
import struct
import uuid
import zlib
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

from tests.proof.kinds.kind import Kind
from tests.proof.kinds.parquet_kinds import AT

D = Decimal
SYNC = bytes(range(16))


def deflated(body: bytes) -> bytes:
    stream = zlib.compressobj(1, wbits=-15)
    return stream.compress(body) + stream.flush()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "snappy": lambda body: pa.compress(body, "snappy", asbytes=True) + struct.pack(">I", zlib.crc32(body)),
    "zstandard": lambda body: pa.compress(body, "zstd", asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def number(value: int) -> bytes:
    found, rest = b"", value << 1
    while rest > 127:
        found, rest = found + bytes([rest & 127 | 128]), rest >> 7
    return found + bytes([rest])


def file_of(
    schema: Any, rows: list[dict[str, Any]], *, codec: str = "deflate", of_block: int = 500, declares: Any = None
) -> bytes:
    """Return a container file. Its blocks have `of_block` rows.

    Args:
        declares: Another schema for the header. It has the same bytes.
    """
    parsed = fastavro.parse_schema(schema)
    header = {b"avro.codec": codec.encode(), b"avro.schema": json.dumps(declares or schema).encode()}
    body = b"Obj\x01" + number(len(header))
    body += b"".join(number(len(text)) + text for pair in header.items() for text in pair) + b"\0" + SYNC
    for begin in range(0, len(rows), of_block):
        block = io.BytesIO()
        for row in rows[begin : begin + of_block]:
            fastavro.schemaless_writer(block, parsed, row)
        packed = CODECS[codec](block.getvalue())
        body += number(len(rows[begin : begin + of_block])) + number(len(packed)) + packed + SYNC
    return body


def typed(
    name: str,
    of: Any,
    given: object,
    kind: str,
    value: object,
    *,
    refused: str = "",
    key: str = "f.avro",
    options: dict[str, Any] | None = None,
    patch: Callable[[bytes], bytes] = bytes,
    odd: tuple[str, ...] = (),
    before: tuple[object, ...] = (),
    declares: Any = None,
    name_of_value: str = "value",
    **writing: Any,
) -> Kind:
    """A member of one type, beside the number and the pad.

    Args:
        before: Values of rows that are rejected, each for a reason in `odd`.
        declares: The type in the header if it differs from the type by which values are encoded.
        name_of_value: The member's name in the header.
    """

    def schema_of(name: str, of: Any) -> dict[str, Any]:
        members = [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}, {"name": name, "type": of}]
        return {"type": "record", "name": "Row", "namespace": "shop", "fields": members}

    schema, in_header = schema_of("value", of), schema_of(name_of_value, declares or of)

    def write(count: int, pad: Callable[[int], str]) -> bytes:
        rows = [{"n": -1, "text": "x", "value": each} for each in before]
        rows += [{"n": n, "text": pad(n), "value": given} for n in range(count)]
        return patch(file_of(schema, rows, declares=in_header, **writing))

    columns = {"n": "bigint", "value": kind, "text": "string"}
    return Kind(name, columns, write, lambda n, pad: (n, value, pad), options or {}, key, odd, refused)


def logical(kind: str, named: str, /, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": named, **more}


FAR = 253_402_300_800_000_000  # microseconds up to the year 10000
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "Node"]}],
}
DAMAGED = "not a valid Avro file, or damaged"

KINDS = [
    *(typed(f"codec {codec}", "long", 1, "bigint", 1, codec=codec) for codec in CODECS),
    typed("endings in capitals", "double", 1.5, "double", 1.5, key="f.AVRO"),
    typed(
        "another ending", "double", 1.5, "double", 1.5, key="f.bin", options={"format": "avro", "suffixes": (".bin",)}
    ),
    typed("small blocks", "long", 1, "bigint", 1, of_block=3),
    typed("one block", "long", 1, "bigint", 1, of_block=1 << 30),
    typed("values that may be null", ["null", "long"], None, "bigint", None),
    typed("null as the second type", ["long", "null"], 7, "bigint", 7),
    typed("int", "int", -7, "bigint", -7),
    typed("floats as decimals", "float", 0.1, "decimal(18,4)", D("0.1")),
    typed("truth", "boolean", True, "boolean", True),
    typed("truth in a text column", "boolean", True, "string", "true"),
    typed("numbers as texts", "string", "7", "bigint", 7),
    typed("empty texts", "string", "", "string", None),
    typed("bytes", "bytes", b"\x00\x01", "binary", b"\x00\x01"),
    typed("fixed bytes", {"type": "fixed", "name": "F", "size": 2}, b"ab", "binary", b"ab"),
    typed("enums", {"type": "enum", "name": "Size", "symbols": ["S", "M"]}, "M", "string", "M"),
    typed("days", logical("int", "date"), date(2026, 1, 2), "date", date(2026, 1, 2)),
    typed("days beyond 9999 as texts", "int", 3_000_000, "string", "+10183-09-21", declares=logical("int", "date")),
    typed("times in milliseconds", logical("long", "timestamp-millis"), AT, "timestamp", AT),
    typed("times in microseconds", logical("long", "timestamp-micros"), AT, "timestamp", AT),
    typed(
        "times in nanoseconds",
        "long",
        1_767_359_100 * 10**9,
        "timestamp",
        AT,
        declares=logical("long", "timestamp-nanos"),
    ),
    typed("times without a zone", logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), "timestamp", AT),
    typed(
        "times beyond 9999 as texts",
        "long",
        FAR,
        "string",
        "+10000-01-01 00:00:00",
        declares=logical("long", "timestamp-micros"),
    ),
    typed(
        "times of day",
        logical("long", "time-micros"),
        datetime(2026, 1, 1, 1, 2, 3).time(),
        "string",
        "01:02:03.000000",
    ),
    typed(
        "decimals as bytes", logical("bytes", "decimal", precision=10, scale=2), D("19.99"), "decimal(18,2)", D("19.99")
    ),
    typed(
        "negative decimals", logical("bytes", "decimal", precision=10, scale=2), D("-0.05"), "decimal(18,2)", D("-0.05")
    ),
    typed(
        "decimals as fixed bytes",
        logical("fixed", "decimal", name="Money", size=12, precision=20, scale=2),
        D("1.50"),
        "decimal(18,2)",
        D("1.50"),
    ),
    typed(
        "decimals of 60 digits",
        logical("bytes", "decimal", precision=60, scale=2),
        D("1.50"),
        "decimal(18,2)",
        D("1.50"),
    ),
    typed(
        "decimals with more digits than their type",
        "bytes",
        struct.pack(">i", 123456789),
        "decimal(18,2)",
        D("1234567.89"),
        declares=logical("bytes", "decimal", precision=5, scale=2),
    ),
    typed("UUIDs", logical("string", "uuid"), uuid.UUID(int=5), "string", str(uuid.UUID(int=5))),
    typed(
        "UUIDs as fixed bytes",
        {"type": "fixed", "name": "Id", "size": 16},
        uuid.UUID(int=5).bytes,
        "string",
        str(uuid.UUID(int=5)),
        declares=logical("fixed", "uuid", name="Id", size=16),
    ),
    typed(
        "records",
        {
            "type": "record",
            "name": "City",
            "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
        },
        {"a": 1, "b": None},
        "string",
        '{"a":1,"b":null}',
    ),
    typed(
        "records that may be null",
        ["null", {"type": "record", "name": "City", "fields": [{"name": "a", "type": "long"}]}],
        None,
        "string",
        None,
    ),
    typed("arrays", {"type": "array", "items": ["null", "long"]}, [1, None], "string", "[1,null]"),
    typed(
        "arrays of records with decimals and days",
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Line",
                "fields": [
                    {"name": "price", "type": logical("bytes", "decimal", precision=9, scale=2)},
                    {"name": "day", "type": logical("int", "date")},
                ],
            },
        },
        [{"price": D("1.50"), "day": date(2026, 1, 2)}],
        "string",
        '[{"price":1.50,"day":"2026-01-02"}]',
    ),
    typed("maps", {"type": "map", "values": "double"}, {"k": 1.5}, "string", '{"k":1.5}'),
    typed("int or long", ["int", "long"], 2**40, "bigint", 2**40),
    typed("a number or a text", ["null", "long", "string"], "x", "string", "x"),
    typed("a double or a text", ["null", "double", "string"], 1e9, "string", "1.0E9"),
    typed(
        "invalid UTF-8 in a text",
        "bytes",
        b"ok",
        "string",
        "ok",
        before=(b"\xff",),
        odd=("not valid UTF-8",),
        declares="string",
    ),
    typed("text in a number column", "string", "7", "bigint", 7, before=("many",), odd=("found many",)),
    typed("columns renamed", "long", 1, "bigint", 1, options={"names": {"value": ["amount"]}}, name_of_value="amount"),
    typed(
        "a record inside of itself",
        NODE,
        {"id": 1, "next": {"id": 2, "next": None}},
        "string",
        None,
        refused="column value is a record with a record shop.Node that has itself as a member",
    ),
    typed(
        "a union of records",
        ["long", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}],
        5,
        "string",
        None,
        refused="column value is a union of long, record, which is not read; write it as a text",
    ),
    typed("a file that ends early", "long", 1, "bigint", 1, patch=lambda b: b[:-20], refused=DAMAGED),
    typed(
        "the first two thirds of a file", "long", 1, "bigint", 1, patch=lambda b: b[: len(b) * 2 // 3], refused=DAMAGED
    ),
    typed(
        "a byte that was changed",
        "long",
        1,
        "bigint",
        1,
        codec="snappy",
        patch=lambda b: b[:-30] + bytes([b[-30] ^ 1]) + b[-29:],
        refused=DAMAGED,
    ),
    typed(
        "a codec that is not read",
        "long",
        1,
        "bigint",
        1,
        codec="null",
        patch=lambda b: b.replace(b"\x08null", b"\x08LZ4x"),
        refused="its codec 'LZ4x' is not read",
    ),
    typed(
        "CSV called .avro",
        "long",
        1,
        "bigint",
        1,
        patch=lambda b: b"n,text,value\n" + b"1,x,1\n" * (len(b) // 6),
        refused=DAMAGED,
    ),
    typed(
        "an empty file",
        "long",
        1,
        "bigint",
        1,
        patch=lambda b: b"" if len(b) < 1 << 20 else b"\0" * len(b),
        refused="the file is empty or not a valid Avro file, or damaged",
    ),
]
