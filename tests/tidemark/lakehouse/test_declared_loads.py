"""Files in declared forms, small and above a megabyte, in one load: the same rows and the same rejected rows.

Does not belong here: each form of a file once, without Spark (`parsing/test_declared_files.py`).
"""

import json
from datetime import date
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Csv, Feed, Grain, Json, Table
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers.small_files import SMALL
from tests.parquet_files import parquet_of
from tests.tidemark.lakehouse.conftest import Loading, Put, renamed

DAY = "2025-12-08"
COLUMNS = {"n": "bigint", "booked_on": "date", "amount": "decimal(18,2)", "at": "timestamp", "remark": "string"}
HEAD = "Umsatzanzeige;Datei erstellt am: 01.12.2025\n\nNr;Buchung;Betrag;at;Text\n"
ODD = [
    ("{n};8.12.25;1,00;2025-12-08 12:00:00;x", "booked_on: expected date written as dd.MM.yy, found 8.12.25"),
    ("{n};08.12.25;2.647;2025-12-08 12:00:00;x", "amount: expected decimal(18,2) written as 1.234,56, found 2.647"),
    ("{n};08.12.25;1,005;2025-12-08 12:00:00;x", "cannot hold 1,005"),
    (
        "{n};08.12.25;1,00;2025-03-30 02:30:00;x",
        "at: expected timestamp written as ISO 8601, found 2025-03-30 02:30:00",
    ),
    ("{n};08.12.25;1,00;2025-12-08 12:00:00", "it has 4 values, the header 5"),
]


def bookings(begin: int, count: int) -> str:
    """Return a bank export whose first lines are odd."""
    lines = [odd.format(n=begin + n) for n, (odd, _) in enumerate(ODD)]
    lines += [
        f"{n};08.12.25;-{n % 9 + 1}.{n % 900 + 100},50;2025-12-08 12:00:00;-" for n in range(begin, begin + count)
    ]
    return HEAD + "\n".join(lines) + "\n"


def test_small_and_large_bank_export_load_the_same_rows_and_rejections(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    feed = Feed(
        "bookings",
        "bookings/",
        Grain.DAY,
        COLUMNS,
        required=("n",),
        exact=True,
        names={"n": ["Nr"], "booked_on": ["Buchung"], "amount": ["Betrag"], "remark": ["Text"]},
        suffixes=(".txt",),
        format=Csv(
            separator=";",
            header="Nr;",
            decimal=",",
            thousands=".",
            nulls=("-",),
            times={"booked_on": "dd.MM.yy"},
            timezone="Europe/Berlin",
        ),
    )
    table = Table("core.bookings", {"day": "date"} | COLUMNS | LINEAGE, ("day", "n"), partitioned_by="day")
    load = renamed(Load(feed, table, lambda landed: landed, code_version="1"))
    sizes = {"small.TXT": (1000, 50), "large.txt": (100_000, 30_000)}
    for name, (begin, count) in sizes.items():
        body = bookings(begin, count)
        assert (len(body) > SMALL) is (name == "large.txt")
        put(load.feed.prefix_of(DAY) + name, body)
    loading(load, DAY)
    for name, (begin, count) in sizes.items():
        of_file = spark.table(load.table.identifier).where(f"source_file LIKE '%{name}'")
        rows = {tuple(row) for row in of_file.selectExpr("n", "booked_on", "amount", "hour(at)", "remark").collect()}
        assert rows == {
            (n, date(2025, 12, 8), Decimal(f"-{n % 9 + 1}{n % 900 + 100}.50"), 11, None)
            for n in range(begin, begin + count)
        }
        entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}' AND source_file LIKE '%{name}'")
        found = [(row.row_number, row.reason, row.message) for row in entries.orderBy("row_number").collect()]
        assert [(n, reason) for n, reason, _ in found] == [*((n, "bad_type") for n in range(1, 5)), (5, "malformed")]
        assert all(said in message for (_, said), (_, _, message) in zip(ODD, found, strict=True)), found


def test_small_and_large_json_array_load_the_same_rows_and_rejections(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    columns = {"event_id": "string", "user_type": "string", "at": "timestamp"}
    feed = Feed(
        "trail",
        "trail/",
        Grain.DAY,
        columns,
        required=("event_id",),
        names={"event_id": ["eventID"], "user_type": ["user.type"]},
        format=Json(rows="Records", times={"at": "epoch millis"}),
    )
    table = Table("core.trail", {"day": "date"} | columns | LINEAGE, ("day", "event_id"), partitioned_by="day")
    load = renamed(Load(feed, table, lambda landed: landed, code_version="1"))
    sizes = {"small.json": 20, "large.json": 20_000}
    for name, count in sizes.items():
        events = [{"eventID": f"{name}-{n}", "user": {"type": f"t{n}"}, "at": 1765195200000} for n in range(count)]
        body = json.dumps({"Records": [*events, {"eventID": f"{name}-late", "at": "noon"}]})
        assert (len(body) > SMALL) is (name == "large.json")
        put(load.feed.prefix_of(DAY) + name, body)
    loading(load, DAY)
    for name, count in sizes.items():
        of_file = spark.table(load.table.identifier).where(f"source_file LIKE '%{name}'")
        rows = {tuple(row) for row in of_file.selectExpr("event_id", "user_type", "hour(at)").collect()}
        assert rows == {(f"{name}-{n}", f"t{n}", 12) for n in range(count)}
        entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}' AND source_file LIKE '%{name}'")
        (entry,) = entries.collect()
        assert entry.message == "at: expected timestamp written as epoch millis, found noon"
        assert json.loads(entry.content) == {"event_id": f"{name}-late", "at": "noon"}


def test_small_and_large_logs_are_read_by_their_own_names_or_refused(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    columns = {"n": "bigint", "path": "string"}
    form = Csv(separator=" ", header=False, fields=("n", "path"), comment="#")
    feed = Feed("requests", "requests/", Grain.DAY, columns, required=("n",), suffixes=(".log",), format=form)
    table = Table("core.requests", {"day": "date"} | columns | LINEAGE, ("day", "n"), partitioned_by="day")
    load = renamed(Load(feed, table, lambda landed: landed, code_version="1"))
    sizes = {"small.log": (0, 20), "large.log": (1000, 60_000)}
    for name, (begin, count) in sizes.items():
        body = "#Fields: path status n\n" + "".join(f"/some/page/{n} 200 {n}\n" for n in range(begin, begin + count))
        assert (len(body) > SMALL) is (name == "large.log")
        put(load.feed.prefix_of(DAY) + name, body)
        put(load.feed.prefix_of(DAY) + f"changed-{name}", f"{body}#Fields: n path\n1 /\n")
    loading(load, DAY)
    rows = {tuple(row) for row in spark.table(load.table.identifier).select("n", "path").collect()}
    assert rows == {(n, f"/some/page/{n}") for begin, count in sizes.values() for n in range(begin, begin + count)}
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").collect()
    assert {(e.source_file.rpartition("/")[2], e.reason) for e in entries} == {
        ("changed-small.log", "columns_change"),
        ("changed-large.log", "columns_change"),
    }


def test_bytes_that_are_no_text_are_loaded_and_shown_in_the_quarantine(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    columns = {"n": "bigint", "raw": "binary"}
    feed = Feed("blobs", "blobs/", Grain.DAY, columns, required=("n",))
    table = Table("core.blobs", {"day": "date"} | columns | LINEAGE, ("day", "n"), partitioned_by="day")
    load = renamed(Load(feed, table, lambda landed: landed, code_version="1"))
    put(load.feed.prefix_of(DAY) + "typed.parquet", parquet_of(pa.table({"n": [1, None], "raw": [b"\xff\0", b"\xfe"]})))
    put(load.feed.prefix_of(DAY) + "texts.parquet", parquet_of(pa.table({"n": ["2", "x"], "raw": [b"\xfd", b"\xfc"]})))
    loading(load, DAY)
    rows = {tuple(row) for row in spark.table(load.table.identifier).selectExpr("n", "hex(raw)").collect()}
    assert rows == {(1, "FF00"), (2, "FD")}
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").collect()
    assert {(e.reason, e.content) for e in entries} == {
        ("null_value", '{"raw":"FE"}'),
        ("bad_type", '{"n":"x","raw":"FC"}'),
    }
