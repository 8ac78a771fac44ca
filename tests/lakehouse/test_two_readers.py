"""A file means the same whether it is small, and taken apart in memory, or large, and scanned by Spark."""

import random
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from pipelines import feeds
from pipelines.lakehouse import inspection
from pipelines.lakehouse.files import SourceFile
from pipelines.lakehouse.load import Load
from pipelines.lakehouse.reading import look_into
from pipelines.sources.s3 import S3Bucket
from tests.lakehouse.conftest import HEADER, HOUR, Put, line

QUOTED = [
    '"1","1",3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z',
    '1,"a ""b"" c",3,4,5,3,1.25,0.1,x',
    '1,a "b" c,3,4,5,3,1.25,0.1,x',
    '1,"a, b",3,4,5,3,1.25,0.1,x',
    '1,"a"b,3,4,5,3,1.25,0.1,x',
    '1,"a,3,4,5,3,1.25,0.1,x',
    '1,"",3,4,5,3,1.25,0.1,x',
    "1, ' ,3,4,5,3,1.25,0.1, x ",
    "1,\\,3,4,5,3,1.25,0.1,\\N",
    '1,\\",3,4,5,3,1.25,0.1,x',
    "1,2",
    "1,2,3,4,5,6,7,8,9,10",
    ",,,,,,,,",
    "#1,2,3,4,5,6,7,8,9",
    "ü,é,漢,4,5,6,7,8,9",
    "\t",
    "",
    "null,NULL,NaN,-,+,1e5,.5,5.,0x1",
]
JSON = [
    '{"order_id": 1, "line_number": 1.0, "discount": 0.10, "ordered_at": "x"}',
    '{"order_id": 12345678901234567890123, "quantity": 1e3, "discount": true}',
    '{"order_id": null, "customer_id": ""}',
    '{"order_id": 1, "order_id": 2}',
    '{"order_id": "a\\"b\\u00fc\\n"}',
    "{'order_id': 1}",
    '{"order_id": 1',
    '{"order_id": 01}',
    "{}",
    "[]",
    "5",
    "words",
    "",
    '{"surplus": 1}',
]


def read(
    spark: SparkSession, landing: S3Bucket, load: Load, keys: list[str], small: int, patch: pytest.MonkeyPatch
) -> list[tuple[object, ...]]:
    patch.setattr(inspection, "SMALL", small)
    sizes = {o.key: o.size for o in landing.list(load.feed.prefix).objects}
    at = datetime(2026, 10, 1, tzinfo=UTC)
    files = [SourceFile(key, "v", at, HOUR, sizes[key]) for key in keys]
    reading = look_into(spark, landing, load.feed, files, code_version="1")
    assert not reading.faults
    assert bool(reading.inspected.large) is not bool(small)
    found = reading.rows().orderBy("source_file", "_block", "_row").drop("_block", "_row").collect()
    # Of a line that is no row nothing is used but the line.
    return [(row.source_file, row["_malformed"]) if row["_malformed"] else tuple(row) for row in found]


def test_small_and_large_files_give_the_same_rows(
    spark: SparkSession, landing: S3Bucket, put: Put, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    invented = random.Random(3)
    mixed = ["".join(invented.choices("1,\"a '\\;\t", k=invented.randint(1, 30))) for _ in range(300)]
    bodies = {
        "unix.csv": "\n".join([HEADER, line(1), *QUOTED, *mixed]).encode() + b"\n",
        "dos.csv": "\r\n".join([HEADER, line(1), *QUOTED]).encode(),
        "mac.csv": "\r".join([HEADER, line(1), line(2)]).encode(),
        "marked.csv": b"\xef\xbb\xbf" + "\n".join([HEADER, line(1)]).encode(),
        "late.csv": ("\n\n" + "\n".join([HEADER, line(1)])).encode(),
        "bytes.csv": f"{HEADER}\n{line(1)}\n".encode() + b"\xff\xfe,2,3,4,5,6,7,8,9\n",
        "turned.csv": "\n".join([",".join(HEADER.split(",")[::-1]), "1,2,3,4,5,6,7,8,9"]).encode(),
        "lines.jsonl": "\n".join([JSON_GOOD, *JSON]).encode(),
        "lines.json": "\r\n".join([JSON_GOOD, *JSON]).encode(),
    }
    for name, body in bodies.items():
        put(orders.feed.prefix_of(HOUR) + name, body)
    keys = [orders.feed.prefix_of(HOUR) + name for name in bodies]
    small = read(spark, landing, orders, keys, inspection.SMALL, monkeypatch)
    large = read(spark, landing, orders, keys, 0, monkeypatch)
    for file in keys:
        assert [r for r in small if r[0] == file] == [r for r in large if r[0] == file], file


JSON_GOOD = "{" + ", ".join(f'"{c}": 1' for c in feeds.ORDERS.columns) + "}"
