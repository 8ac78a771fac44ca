"""A file means the same whether it is small and read in the process, or large and read by Spark's workers, in parts."""

import gzip
import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import zip_longest

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.judged_rows import judge_rows
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.rejected_rows import Tally
from dagster_tidemark.lakehouse.parsing.rows import equal_parts
from dagster_tidemark.lakehouse.parsing.spark_tasks import TASK_BYTES
from dagster_tidemark.lakehouse.readers import batch, probe, small_files, text_files
from dagster_tidemark.lakehouse.readers import parquet as parquet_file
from dagster_tidemark.lakehouse.readers.batch import reading_of
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.s3 import S3Bucket
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import HEADER, HOUR, Put, line, renamed
from tests.toys import feeds

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


JSON_GOOD = "{" + ", ".join(f'"{c}": 1' for c in feeds.ORDERS.columns) + "}"


QUOTED += [
    '1,2,3,4,5,3,1.25,0.1,"x',
    '1,2,3,4,5,3,1.25,0.1,"x ""',
    '1,2,3,4,5,3,1.25,0.1,"x" ',
    '1,2,3,4,5,3,1.25,0.1,x"',
    '1,2,3,4,5,3,1.25,0.1,"',
    '1,2,3,4,5,3,1.25,0.1,""',
    '1,2,3,4,5,3,1.25,0.1,"""',
    "1,2,3,4,5,3,1.25,0.1,\x01\ufffd\u2028\x85",
    "\x00,2,3,4,5,3,1.25,0.1,\x00",
]
JSON += [
    '{"order_id": 1} {"order_id": 2}',
    '{"order_id": 1}{"order_id": 2}',
    '{"order_id": 1},',
    '{"order_id": 1} trailing',
    '{"order_id": {"a": "}"}, "quantity": 19.9900000000000000001}',
    '{"order_id": "}", "quantity": 1e3, "discount": -0.10}',
    '{"order_id": "say \\"x\\": 5, [6,7]", "quantity": 1.50}',
    '[{"order_id": 1.10}, {"order_id": 2}]',
    '[{"order_id": 1}, 5]',
    '[{"order_id": 1}] [{"order_id": 2}]',
    '[{"order_id": 1}',
    '{"order_id": "\\ud83d", "quantity": 1}',
    '{"order_id": "\\ud83d\\ude00", "quantity": 1}',
    '{"order_id": "\\ude00\\ud83d", "quantity": 1}',
    '{"order_id": "\\\\ud83d", "quantity": 1}',
    '{"surplus": "\\ud83d", "quantity": 1}',
    '{"order_id": "\x01"}',
    '{"order_id": 1, 2}',
    "{1: 2}",
    "null",
    '"{}"',
]
NESTED = [
    '{"order_id": {"a": [1.50, 2,  "\\u00fc", true, null, 1e5], "b" : {"c": "x\\"y\\/\\n"}}, "quantity": []}',
    '{"order_id": [1,{"z":-0.0}], "quantity": 1.50, "discount": {"order_id": [7]}}',
    '{"order_id": ["a,1]", "say \\"5\\", 6"], "quantity": {}}',
]
NOT_UTF8 = [
    b"\xff",
    b"M\xfcller",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    b"\xc3\xbc\xfc",
]


def a_line(product: bytes) -> bytes:
    return b"1,1,3," + product + b",5,3,1.25,0.1,x"


def a_json(product: bytes) -> bytes:
    return b'{"order_id": 1.10, "product_id": "' + product + b'"}'


INVENTED = random.Random(3)
MIXED = ["".join(INVENTED.choices("1,\"a '\\;\t", k=INVENTED.randint(1, 30))) for _ in range(300)]
OVER_LINES = [
    HEADER,
    '1,"two',
    "",
    '  lines",3,4,5,3,1.25,0.1,x',
    line(1),
    '2,2,3,4,5,3,1.25,0.1,"the last"',
    '3,"a ""quoted""',
    'word"" and",3,4,5,3,1.25,0.1,x',
    '4,"a',
    '"b,3,4,5,3,1.25,0.1,x',
    '5,2,3,4,5,3,1.25,0.1,"ends',
    'here"',
    "",
    '6,x"y,3,4,5,3,1.25,0.1,x',
    line(7),
]
DOCUMENTS = [
    "{",
    '  "order_id": 1.10,',
    "",
    '  "product_id": "a } brace"',
    "}",
    '{"order_id": 2} ',
    '{"order_id": 3} {"order_id": 4}',
    "words",
    "}",
    '{"order_id": 5,',
    '"discount": {"a": [1, 2]}}',
    "[",
    '{"order_id": 6}, {"order_id": 7}',
    "]",
]
ELEMENTS = [
    "",
    " [",
    '{"order_id": 1.10}, {"order_id":',
    "2},",
    '{"order_id": 3}',
    ", 4,",
    "{",
    '"order_id": 5}',
    "]",
    "",
]
Bodies = dict[str, bytes]


def parquet(*columns: pa.Array) -> bytes:
    """A file whose columns are called like the first of an order."""
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(zip(feeds.ORDERS.columns, columns, strict=False))), sink)
    return sink.getvalue()


def nested(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    return pa.array([values, [], None], pa.list_(kind))


AT = datetime(2026, 1, 2, 3, 4, 5, 678000)
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
PARQUET = {
    "numbers.parquet": parquet(
        pa.array([1.0, 0.1, 1e10]),
        pa.array([float("nan"), -0.0, -float("inf")]),
        pa.array([0.001, 1e-7, -12345678.5]),
        pa.array([0.1, 1e10, 3], pa.float32()),
        pa.array([Decimal("1.50"), None, Decimal("0.00")], pa.decimal128(10, 2)),
        pa.array([Decimal("0.0000001")] * 3),
        pa.array([200, None, 0], pa.uint8()),
        pa.array([True, False, None]),
        pa.array(["x", "y", "x"]).dictionary_encode(),
    ),
    "times.parquet": parquet(
        pa.array([AT, AT.replace(microsecond=0), None], pa.timestamp("us")),
        pa.array([AT, AT.replace(microsecond=1), None], pa.timestamp("us", "UTC")),
        pa.array([AT, AT.replace(microsecond=999000, second=0), None], pa.timestamp("ns")),
        pa.array([date(2026, 1, 2), None, date(1, 1, 1)]),
        nested([AT, None], pa.timestamp("us")),
        nested([AT, None], pa.timestamp("ms", "UTC")),
        nested([date(2026, 1, 2)], pa.date32()),
    ),
    "nested.parquet": parquet(
        nested([1, None], pa.int32()),
        nested([1.5, 1e10, float("nan")], pa.float64()),
        nested([0.1, None], pa.float32()),
        nested([Decimal("1.50")], pa.decimal128(10, 2)),
        nested(['a"b\\\n/ü', ""], pa.string()),
        nested([b"abc"], pa.binary()),
        pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, None], PAIR),
        pa.array([[("k", True)], [], None], pa.map_(pa.string(), pa.bool_())),
        nested([{"a": 1, "b": "x"}, None], PAIR),
    ),
}


def in_groups() -> bytes:
    """Numbers, times and texts in many row groups, a few of them no value of their type."""
    count, sink = 40, io.BytesIO()
    at = datetime(2026, 10, 1, 7, 15, tzinfo=UTC)
    columns = [pa.array(range(n, n + count), pa.int32()) for n in range(6)]
    columns[3] = pa.array([2.5 if n == 30 else n for n in range(count)])
    columns += [pa.array([Decimal(n) / 8 for n in range(count)], pa.decimal128(20, 8)), pa.array([0.5] * count)]
    columns.append(pa.array([None if n == 7 else at for n in range(count)], pa.timestamp("ns", "Europe/Berlin")))
    pq.write_table(pa.table(dict(zip(feeds.ORDERS.columns, columns, strict=True))), sink, row_group_size=3)
    return sink.getvalue()


GROUPS = in_groups()
FEEDS: dict[str, tuple[dict[str, object], Bodies]] = {
    "as it is": (
        {},
        {
            "unix.csv": "\n".join([HEADER, line(1), *QUOTED, *MIXED]).encode() + b"\n",
            "dos.csv": "\r\n".join([HEADER, line(1), *QUOTED]).encode(),
            "mac.csv": "\r".join([HEADER, line(1), line(2)]).encode(),
            "every.csv": f"{HEADER}\r\n{line(1)}\n{line(2)}\r{line(3)}\r\r\n{line(4)}".encode(),
            "marked.csv": b"\xef\xbb\xbf" + "\n".join([HEADER, line(1)]).encode(),
            "late.csv": ("\n\n" + "\n".join([HEADER, line(1)])).encode(),
            "bytes.csv": b"\n".join([HEADER.encode(), line(1).encode(), *map(a_line, NOT_UTF8), line(2).encode()]),
            "bytes.csv.gz": gzip.compress(b"\n".join([HEADER.encode(), *map(a_line, NOT_UTF8)])),
            "members.csv.gz": gzip.compress(f"{HEADER}\n1,1,3,".encode()) + gzip.compress("ü,5,3,1,0,x\n".encode()),
            "turned.csv": "\n".join([",".join(HEADER.split(",")[::-1]), "1,2,3,4,5,6,7,8,9"]).encode(),
            "lines.jsonl": "\n".join([JSON_GOOD, *JSON]).encode(),
            "lines.json": "\r\n".join([JSON_GOOD, *JSON]).encode(),
            "lines.jsonl.gz": gzip.compress("\n".join([JSON_GOOD, *JSON]).encode()),
            "good.json.gz": gzip.compress("\n".join([JSON_GOOD, JSON_GOOD]).encode()),
            "marked.jsonl": b"\xef\xbb\xbf" + JSON_GOOD.encode() + b"\n{}",
            "bytes.jsonl": b"\n".join([JSON_GOOD.encode(), *map(a_json, NOT_UTF8), JSON_GOOD.encode()]),
            "list.json": b'[{"order_id": 1.10}, {"order_id": 2}]',
            "nested.jsonl": "\n".join([JSON_GOOD, *NESTED]).encode(),
            "nested by line.jsonl": "\n".join(
                [*NESTED, '{"order_id": 1} {"order_id": 2}', f"[{', '.join(NESTED)}]"]
            ).encode(),
            "several late.jsonl": f"{JSON_GOOD}\n".encode() * 1000
            + b'{"order_id": 1} {"order_id": 2}\n{"order_id": 3}]\n',
            "half late.jsonl": f"{JSON_GOOD}\n".encode() * 1000
            + b'{"order_id": "\\ud83d"}\n{"order_id": "\\ud83d\\ude00"}',
            "groups.parquet": GROUPS,
            "late.jsonl": (b"words " * 200 + b"\n") * 60 + b'{"order_id": 1}\n',
        },
    ),
    "latin-1": (
        {"encoding": "latin-1"},
        {
            "a.csv": "\n".join(
                [HEADER, line(1), *map("1,1,3,{},5,3,1.25,0.1,x".format, ("Müller", "é\xff", "\x85"))]
            ).encode("latin-1"),
            "a.jsonl.gz": gzip.compress((JSON_GOOD + '\n{"order_id": 1.10, "product_id": "Müller"}').encode("latin-1")),
        },
    ),
    "cp1252": (
        {"encoding": "cp1252"},
        {
            "a.csv": "\n".join([HEADER, line(1), "1,1,3,€ „x“,5,3,1.25,0.1,x", "1,1,3,4,5,3,1.25,0.1,y"]).encode(
                "cp1252"
            )
            + b"\n1,1,\x81 \x80,4,5,3,1.25,0.1,x",
            "a.csv.gz": gzip.compress("\n".join([HEADER, "1,1,3,€,5,3,1.25,0.1,x"]).encode("cp1252")),
            "a.json": (JSON_GOOD + '\n{"order_id": "€"}\n{"order_id": "').encode("cp1252") + b'\x81 \x80"}',
        },
    ),
    **{
        f"{encoding}{' over lines' if over else ''}": (
            {"encoding": encoding, "multiline": over},
            {
                "a.csv": "\r\n".join([HEADER, line(1), *QUOTED, "1,1,3,€ ü 漢 😀 \u0a0a,5,3,1.25,0.1,x"]).encode(
                    encoding
                ),
                "b.csv.gz": gzip.compress("\n".join([HEADER, *OVER_LINES[1:], "x\ry"]).encode(encoding)),
                "cut.csv": "\n".join([HEADER, line(1), line(2)]).encode(encoding)[:-1],
                "half.csv": "\n".join([HEADER, line(1)]).encode(encoding)
                + "\n1,\ud83d,3,4,5,3,1,0,x\n".encode(whole, errors="surrogatepass")
                + line(2).encode(whole),
                "a.jsonl": "\n".join([JSON_GOOD, '{"order_id": "€ ü 漢 😀", "quantity": 1.10}']).encode(encoding),
            },
        )
        for encoding, whole in (("utf-16", "utf-16-le"), ("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be"))
        for over in (False, True)
    },
    "over lines": (
        {"multiline": True},
        {
            "a.csv": "\n".join(OVER_LINES).encode(),
            "dos.csv": "\r\n".join(OVER_LINES).encode(),
            "a.csv.gz": gzip.compress("\n".join(OVER_LINES).encode()),
            "open.csv": "\n".join([*OVER_LINES, '8,"never', line(9), "", line(10)]).encode(),
            "mixed.csv": "\n".join([HEADER, line(1), *MIXED]).encode(),
            "quoted.csv": "\n".join([HEADER, line(1), *QUOTED]).encode(),
            "header.csv": ("\n\n" + HEADER + ',"a\nnote"\n' + line(1) + ",x\n" + line(2) + ',"x\ny"').encode(),
            "bytes.csv": HEADER.encode() + b'\n1,"a \xfc\nb",3,4,5,3,1,0,x\n' + line(1).encode(),
            "long.csv": (
                f"{HEADER}\n{line(1)}\n" + '2,"' + "\n".join("abc" for _ in range(10_500)) + '"\n' + line(3)
            ).encode(),
            "a.json": "\n".join(DOCUMENTS).encode(),
            "a.json.gz": gzip.compress("\r\n".join(DOCUMENTS).encode()),
            "open.json": "\n".join([*DOCUMENTS, "{", '"order_id": 1', *DOCUMENTS]).encode(),
            "list.json": "\n".join(ELEMENTS).encode(),
            "cut.json": "\n".join(ELEMENTS[:-2]).encode(),
            "more.json": "\n".join([*ELEMENTS, "[", '{"order_id": 8}', "]"]).encode(),
            "lines.jsonl": "\n".join([JSON_GOOD, JSON_GOOD]).encode(),
            "bytes.json": b'{"order_id":\n "\xfc"}\n' + JSON_GOOD.encode(),
        },
    ),
    "JSON over lines, which no feed says": (
        {},
        {
            "a.json": "\n".join(DOCUMENTS).encode(),
            "a.json.gz": gzip.compress("\r\n".join(DOCUMENTS).encode()),
            "list.json": "\n".join(ELEMENTS).encode(),
            "cut.json": "\n".join(ELEMENTS[:-2]).encode(),
            "long.json": json.dumps([{"order_id": n, "product_id": 40 * "x"} for n in range(300)], indent=2).encode(),
            "one.json": json.dumps([{"order_id": n} for n in range(30)]).encode(),
            "lines.json": "\n".join(["[", *DOCUMENTS[5:7]]).encode(),
            "words.jsonl": "\n".join([JSON_GOOD, "{", JSON_GOOD, "["]).encode(),
        },
    ),
    "texts": (
        {
            "columns": dict.fromkeys(feeds.ORDERS.columns, "string"),
            "required": ("order_id", "line_number"),
            "rules": {},
        },
        PARQUET,
    ),
    "ascii": ({"encoding": "ascii"}, {"a.csv": f"{HEADER}\n{line(1)}\n1,ü,3,4,5,3,1,0,x".encode()}),
}


SMALL, LARGE, IN_PARTS = (small_files.SMALL, TASK_BYTES), (0, TASK_BYTES), (0, 150)
"""Up to how many bytes a file is read in the process, and how many of a larger one a task reads."""


def read(
    spark: SparkSession,
    landing: S3Bucket,
    load: Load,
    files: Sequence[SourceFile],
    sizes: tuple[int, int],
    patch: pytest.MonkeyPatch,
) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each file in their order, with their numbers and verdicts."""
    patch.setattr(small_files, "SMALL", sizes[0])
    patch.setattr(batch, "TASK_BYTES", sizes[1])
    # Each part is some requests, so a long file is cut into larger ones.
    for module in (text_files, parquet_file):
        patch.setattr(module, "equal_parts", lambda size, about: equal_parts(size, max(about, size // 30)))
    inspected = probe.inspect(landing, load.feed, files)
    values = load.table.partition_values_sql("_partition")
    asked = reading_of(spark, landing, load.feed, inspected, code_version="1", partition_values=values)
    assert len(asked.large) == (0 if sizes[0] else len(files))
    reading, judged = judge_rows(load, asked)
    try:
        assert not reading.faults and reading.files
        columns = [*load.feed.columns, "_reason", "_message"]
        contents = {
            (row.source_file, row["_block"], row["_row"]): row["_content"]
            for row in judged.rejected_frame.select("source_file", "_block", "_row", "_content").collect()
        }
        rows = judged.rows.orderBy("source_file", "_block", "_row").collect()
    finally:
        judged.forget()
    found: dict[str, list[tuple[object, ...]]] = {file.key: [] for file in files}
    for row in rows:
        place = row.source_file, row["_block"], row["_row"]
        found[row.source_file].append((*(row[c] for c in columns), contents.get(place)))
        assert (place in contents) == (row["_reason"] is not None)
    for key, of_file in found.items():
        assert judged.tally.get(key, Tally()).rows == len(of_file)
        # Row numbers of the quarantine are made of these.
        blocks = [(row["_block"], row["_row"]) for row in rows if row.source_file == key]
        numbers = [
            row - first.row + first.rows_before
            for first in judged.tally.get(key, Tally()).first_rows
            for block, row in blocks
            if block == first.block
        ]
        assert numbers == list(range(len(of_file)))
    return found


@pytest.mark.parametrize("feed", sample(FEEDS, "utf-16-le over lines"))
def test_file_gives_the_same_rows_read_whole_or_in_parts_by_workers(
    spark: SparkSession, landing: S3Bucket, put: Put, orders: Load, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    declared, bodies = FEEDS[feed]
    orders = renamed(orders, **declared)
    for name, body in bodies.items():
        put(orders.feed.prefix_of(HOUR) + name, body)
    at = datetime(2026, 10, 1, tzinfo=UTC)
    listed = landing.list(orders.feed.prefix).objects
    files = [SourceFile(o.key, "v", at, HOUR, o.size, o.etag) for o in listed]
    small = read(spark, landing, orders, files, SMALL, monkeypatch)
    assert sum(map(len, small.values())) > 0
    for sizes in (LARGE, IN_PARTS):
        large = read(spark, landing, orders, files, sizes, monkeypatch)
        different = {}
        for file in files:
            pairs = zip_longest(small[file.key], large[file.key])
            if unlike := [pair for pair in pairs if pair[0] != pair[1]]:
                different[file.key] = unlike[:3]
        assert not different
