"""Whatever lands, the good rows beside it are committed, and what was turned away is named with its reason."""

import gzip
import io
from collections import Counter
from collections.abc import Collection
from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.execution.load_check import quarantine_result
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.sources.partition_listing import look_beside, look_beside_all
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import (
    HEADER,
    HOUR,
    Delete,
    Loading,
    Put,
    both_sizes,
    csv,
    key,
    line,
    quantities,
    quarantined,
)

NAMES = HEADER.split(",")
CORE_ORDERS = dg.AssetKey(["core", "orders"])


def parquet(count: int = 3, **changed: pa.Array) -> bytes:
    columns = {c: pa.array(range(1, count + 1)) for c in NAMES[:6]}
    columns |= {"unit_price_usd": pa.array([1.25] * count), "discount": pa.array([0.1] * count)}
    columns |= {"ordered_at": pa.array(["2026-10-01T07:15:00Z"] * count)}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns | changed), sink)
    return sink.getvalue()


JSON_LINE = b"{" + b", ".join(f'"{c}": 6'.encode() for c in NAMES[:6])
JSON_LINE += b', "unit_price_usd": 1.25, "discount": 0.1, "ordered_at": "2026-10-01T07:15:00Z"}'
LONG_CSV = csv(*(line(n) for n in range(1000, 3000))).encode()
LONG_PARQUET = parquet(5000)

FILES: dict[str, tuple[bytes, str, str]] = {
    "empty.csv": (b"", "empty", "the file is empty"),
    "blank.csv": (b"\n \n\n", "empty", "the file is empty"),
    "empty.parquet": (b"", "empty", "the file is empty"),
    "empty.csv.gz": (gzip.compress(b""), "empty", "the file is empty"),
    "empty.jsonl": (b"", "empty", "the file is empty"),
    "cut.csv.gz": (gzip.compress(LONG_CSV)[:-500], "unreadable", "truncated"),
    "cut in its header.csv.gz": (gzip.compress(LONG_CSV)[:30], "unreadable", "truncated"),
    "no.csv.gz": (LONG_CSV, "unreadable", "no gzip file"),
    "cut.parquet": (LONG_PARQUET[:-200], "unreadable", "not a valid Parquet file"),
    "holed.parquet": (LONG_PARQUET[:200] + b"\0" * 4000 + LONG_PARQUET[4200:], "unreadable", "Parquet file"),
    "junk.parquet": (b"\x00\x01junk", "unreadable", "not a valid Parquet file"),
    "junk.csv": (bytes(range(256)) * 8, "unreadable", "not UTF-8 text"),
    "zeros.csv": (b"\0" * 4000, "unreadable", "binary"),
    "junk.jsonl": (b"\x00\xff\xfe" * 50, "unreadable", "UTF-8"),
    "prose.jsonl": (b"hello\nworld\n", "unreadable", "no line of it is a JSON object"),
    "other.csv": (b"a,b\n1,2\n", "missing_column", "found a, b"),
    "short.csv": (csv("7,1", header="order_id,line_number").encode(), "missing_column", "no column customer_id"),
    "short.parquet": (parquet()[:0] or b"PAR1", "unreadable", "not a valid Parquet file"),
    "twice.csv": (csv(header=HEADER + ",quantity").encode(), "duplicate_column", "quantity is in the header twice"),
    "header.csv": (csv().encode(), "no rows", "none of its rows"),
    "quoted.csv": (b'"order_id,line\n7,1\n', "missing_column", "found order_id,line"),
    "orders.xlsx": (b"PK", "outside_layout", "a different ending"),
    "deeper/a.csv": (csv(line(77)).encode(), "outside_layout", "in a subfolder"),
}


def test_invalid_files_are_quarantined_and_other_files_are_committed(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load, size: str
) -> None:
    for name, (body, _, _) in FILES.items():
        put(key(orders, name), body)
    put(key(orders, "good.csv"), csv(line(1)))
    put(key(orders, "good.parquet"), parquet(1, order_id=pa.array([2])))

    loaded = loading(orders, HOUR)

    assert quantities(spark, orders) == {1: 3, 2: 1}
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{orders.asset}'").collect()
    found = {e.source_file.removeprefix(key(orders, "")): (e.reason, e.message) for e in entries}
    assert {name: reason for name, (reason, _) in found.items()} == {n: reason for n, (_, reason, _) in FILES.items()}
    wrong = {name: found[name][1] for name, (_, _, words) in FILES.items() if words not in found[name][1]}
    assert not wrong
    check = quarantine_result(orders.feed, CORE_ORDERS, loaded)
    assert not check.passed
    assert check.description is not None
    assert all(key(orders, n) in check.description or n > "o" for n, (_, r, _) in FILES.items() if r != "no rows")
    again = loading(orders, HOUR)
    assert (again.read_again, again.added_to) == ((), ()), "all of them are known now"
    assert again.backlog == loaded.backlog

    for name in FILES:
        delete(key(orders, name))
    put(key(orders, "cut.csv.gz"), gzip.compress(csv(line(5)).encode()))
    fixed = loading(orders, HOUR)
    assert fixed.backlog == []
    assert quarantined(spark, orders) == [], "what is fixed or gone leaves the quarantine by itself"
    assert quantities(spark, orders) == {1: 3, 2: 1, 5: 3}


ROWS = {
    "1,2,3,4,5,many,1.25,0.1,2026-10-01T07:15:00Z": ("bad_type", "quantity: expected bigint, found many"),
    "1,2,3,4,5,2.7,1.25,0.1,2026-10-01T07:15:00Z": ("bad_type", "quantity: expected bigint, found 2.7"),
    "1,2,3,4,5,1e-1000000000,1.25,0.1,2026-10-01T07:15:00Z": (
        "bad_type",
        "quantity: expected bigint, found 1e-1000000000",
    ),
    "1,2,3,4,5,3,1e1000000000,0.1,2026-10-01T07:15:00Z": ("bad_type", "unit_price_usd: expected decimal(18,4), found"),
    "1,2,3,4,5,9223372036854775808,1.25,0.1,2026-10-01T07:15:00Z": ("bad_type", "quantity: expected bigint, found"),
    "1,2,3,4,5,-9223372036854775808,1.25,0.1,2026-10-01T07:15:00Z": ("quantity_out_of_range", "it breaks the rule"),
    "1,2,3,4,5,3,1e30,0.1,2026-10-01T07:15:00Z": ("bad_type", "unit_price_usd: expected decimal(18,4), found 1e30"),
    "1,2,3,4,5,3,NaN,0.1,2026-10-01T07:15:00Z": ("bad_type", "unit_price_usd: expected decimal(18,4), found NaN"),
    "1,2,3,4,5,3,1.25,0.1,yesterday": ("bad_type", "ordered_at: expected timestamp, found yesterday"),
    "1,2,3,4,5,3,1.25,0.1,07:15": ("bad_type", "ordered_at: expected timestamp, found 07:15"),
    "1,2,3,4,5,3,1.25,0.1,2026-10-01T25:15:00Z": ("bad_type", "ordered_at: expected timestamp, found"),
    "1,2,,4,5,3,1.25,0.1,2026-10-01T07:15:00Z": ("null_value", "customer_id is missing"),
    ",2,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z": ("null_value", "order_id is missing"),
    "1,2,3,4,5,3,1.25, ,2026-10-01T07:15:00Z": ("null_value", "discount is missing"),
    "1,2,3,4,5,3,1.25,0.1,2026-10-01T08:00:00Z": ("wrong_hour", "it breaks the rule"),
    "1,2,3,4,5,3,1.25,0.1,2026-10-01T07:15:00+02:00": ("wrong_hour", "it breaks the rule"),
    "1,2,3,4,5,3,1.25,1.1,2026-10-01T07:15:00Z": ("discount_out_of_range", "discount BETWEEN 0 AND 1"),
    "1,2,3,4,5,3,1.25,-0.1,2026-10-01T07:15:00Z": ("discount_out_of_range", "discount BETWEEN 0 AND 1"),
    "1,2,3,4,5,999999999,99999999999999,0.1,2026-10-01T07:15:00Z": ("amount_out_of_range", "it breaks the rule"),
    "1,2,3": ("malformed", "no row of this file"),
    "1,2,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z,surplus": ("malformed", "no row of this file"),
    '1,2,3,"4"5,5,3,1.25,0.1,2026-10-01T07:15:00Z': ("bad_type", 'product_id: expected bigint, found "4"5'),
    '1,2,3,4,"5,3,1.25,0.1,2026-10-01T07:15:00Z': ("malformed", "unterminated quote"),
    '1,2,3,4,5,3,1.25,0.1,"2026-10-01T07:15:00Z': ("malformed", "unterminated quote"),
    "\x00binary\x02": ("malformed", "no row of this file"),
}


@pytest.mark.usefixtures("size")
@both_sizes
def test_invalid_rows_are_quarantined_with_content_reason_and_row_number(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    lines = [row for bad in ROWS for row in (bad, line(100 + list(ROWS).index(bad)))]
    put(key(orders, "a.csv"), csv(*lines))

    loaded = loading(orders, HOUR)

    assert loaded.rows_rejected == len(ROWS)
    assert set(quantities(spark, orders)) == {100 + n for n in range(len(ROWS))}
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{orders.asset}'").orderBy("row_number").collect()
    assert [e.row_number for e in entries] == [2 * n + 1 for n in range(len(ROWS))]
    for entry, (bad, (reason, words)) in zip(entries, ROWS.items(), strict=True):
        assert (entry.reason, words in entry.message) == (reason, True), (bad, entry.reason, entry.message)
        assert entry.content == bad if reason == "malformed" else entry.content.startswith("{"), bad
    share = quarantine_result(orders.feed, CORE_ORDERS, loaded)
    assert share.description is not None
    assert "50.00% of a partition: above the feed's limit of 1.00%" in share.description


@pytest.mark.usefixtures("size")
def test_text_with_invalid_encoding_is_never_written_to_a_table(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    ids = pa.array([b"1", b"2", b"\xff3"]).view(pa.string())
    put(key(orders, "a.parquet"), parquet(3, order_id=ids))
    put(key(orders, "b.csv"), csv(line(4)).encode() + line(5).encode().replace(b",3,4,", b",3,M\xfcller,"))
    put(key(orders, "c.jsonl"), JSON_LINE + b"\n" + JSON_LINE.replace(b"6", b'"\xfc"'))

    loading(orders, HOUR)

    assert set(quantities(spark, orders)) == {1, 2, 4, 6}
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{orders.asset}'").orderBy("source_file").collect()
    assert [(e.reason, "not valid UTF-8" in e.message, e.row_number) for e in entries] == [
        ("malformed", True, 3),
        ("malformed", True, 2),
        ("malformed", True, 2),
    ]
    assert all(shown in e.content for e, shown in zip(entries, ("xff3", "M\\xfcller", "\\xfc"), strict=True))


@pytest.mark.usefixtures("size")
def test_late_json_key_rejects_only_the_rows_without_it(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    lines = [b'{"order_id": %d, "surplus": "%s"}' % (n, b"x" * 1000) for n in range(80)]
    put(key(orders, "late.jsonl"), b"\n".join([*lines, JSON_LINE]))
    put(key(orders, "prose.jsonl"), (b"words " * 200 + b"\n") * 80)

    loading(orders, HOUR)

    assert set(quantities(spark, orders)) == {6}
    found = Counter((name, reason) for name, _, reason in quarantined(spark, orders))
    assert found == {("late.jsonl", "null_value"): 80, ("prose.jsonl", "unreadable"): 1}


def test_undeclared_column_is_ignored_and_reported_by_the_load(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1) + ",web", header=HEADER + ",channel"))
    put(key(orders, "b.parquet"), parquet(1, order_id=pa.array([2]), colour=pa.array(["red"])))
    put(
        key(orders, "c.jsonl"),
        '{"colour": [1], '
        + ", ".join(f'"{c}": 3' for c in NAMES[:6])
        + (', "unit_price_usd": 1.25, "discount": "0", "ordered_at": "2026-10-01 07:15:00"}\n'),
    )
    loaded = loading(orders, HOUR)
    assert loaded.new_columns == {
        "channel": [key(orders, "a.csv")],
        "colour": [key(orders, "b.parquet"), key(orders, "c.jsonl")],
    }
    assert quantities(spark, orders) == {1: 3, 2: 1, 3: 3}
    check = quarantine_result(orders.feed, CORE_ORDERS, loaded)
    assert (check.passed, check.description) == (True, "new columns, ignored: channel, colour")


def test_misplaced_files_are_reported_until_they_are_deleted(
    landing: S3Bucket, spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    start, prefix = date(2026, 9, 28), orders.feed.prefix

    def seen() -> Collection[Misplaced]:
        return look_beside_all(landing, orders.feed, start=start).values()

    strays = {
        f"{prefix}a.csv": "outside_layout",
        f"{prefix}dt=2026-13-01/hour=00/a.csv": "outside_layout",
        f"{prefix}dt=2026-10-01/a.csv": "outside_layout",
        f"{prefix}dt=2026-10-01/hour=24/a.csv": "outside_layout",
        f"{prefix}dt=2026-09-27/hour=23/a.csv": "before_start_date",
    }
    for stray in strays:
        put(stray, csv(line(1)))
    put(f"{prefix}dt=2026-10-01/_SUCCESS", "")
    put(f"{prefix}half.csv.tmp", "x")
    put(key(orders, "good.csv"), csv(line(1)))
    loaded = loading(orders, HOUR, misplaced=seen())
    assert {key: b.reason for b in loaded.backlog for key in b.files} == strays
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{orders.asset}'").collect()
    assert {e.source_file: e.reason for e in entries} == strays
    assert loading(orders, "2026-10-02-00:00").backlog == loaded.backlog, "known nothing new, they stay"
    assert loading(orders, HOUR, misplaced=seen()).backlog == loaded.backlog
    for stray in strays:
        delete(stray)
    assert loading(orders, "2026-10-02-00:00", misplaced=seen()).backlog == []
    assert quarantined(spark, orders) == []


def test_folder_of_misplaced_files_is_one_quarantine_entry_with_its_count(
    landing: S3Bucket, spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    folder = f"{orders.feed.prefix}backup/"
    for n in range(3):
        put(f"{folder}deep/{n}/a.csv", csv(line(1)))
    found = look_beside(landing, orders.feed, folder, start=date(2026, 9, 28), now=datetime.now(UTC))
    loading(orders, HOUR, misplaced=found.values())
    (entry,) = spark.table(QUARANTINE.identifier).where(f"asset = '{orders.asset}'").collect()
    assert (entry.source_file, entry.reason) == (folder, "outside_layout")
    assert entry.message.startswith(f"3 files in '{folder}'")


def test_file_with_an_unknown_suffix_is_quarantined_until_it_is_deleted(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    put(key(orders, "b.xlsx"), "x")
    put(key(orders, "too/deep.csv"), csv(line(2)))
    loading(orders, HOUR)
    assert [name for name, _, _ in quarantined(spark, orders)] == ["b.xlsx", "deep.csv"]
    delete(key(orders, "b.xlsx"))
    delete(key(orders, "too/deep.csv"))
    assert loading(orders, HOUR).read_again == []
    assert quarantined(spark, orders) == []
    assert quantities(spark, orders) == {1: 3}


def test_invalid_bytes_late_in_a_large_json_file_are_detected(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    known = '"line_number": 1, "customer_id": 1, "product_id": 1, "store_id": 1, "quantity": 1, "unit_price_usd": 1'
    rest = f'{known}, "discount": 0, "ordered_at": "2026-10-01T07:15:00Z"'
    lines = [f'{{"order_id": {n}, {rest}}}'.encode() for n in range(1000)]
    assert len(b"\n".join(lines)) > 100_000
    wrong = lines[-1].replace(b'"quantity": 1', b'"quantity": "1\xfc"')
    put(key(orders, "a.jsonl"), b"\n".join([*lines[:-1], wrong]))
    loading(orders, HOUR)
    assert len(quantities(spark, orders)) == 999
    assert quarantined(spark, orders) == [("a.jsonl", 1000, "malformed")]
