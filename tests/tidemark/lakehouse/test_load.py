"""Files of every format become the same rows; what cannot be taken is named; nothing is read twice."""

import dataclasses
import io
import json
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import load_plan, load_state
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.sources.feed import Feed, Grain, Partition
from dagster_tidemark.sources.listing import LandedObject
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import (
    HEADER,
    HOUR,
    Loading,
    Put,
    a_second,
    both_sizes,
    csv,
    key,
    line,
    quantities,
    quarantined,
    renamed,
    rows,
)
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines


def test_csv_file_loads_into_order_lines(spark: SparkSession, put: Put, loading: Loading, orders: Load) -> None:
    put(key(orders, "a b+ü.csv"), f"{HEADER}\n7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")

    loaded = loading(orders, HOUR)

    assert loaded.content[HOUR].rows == 1
    row = spark.table(orders.table.identifier).collect()[0]
    assert row.revenue_usd == Decimal("3.3750")
    assert row.source_file == key(orders, "a b+ü.csv")
    assert row.loaded_by == "1"
    assert quarantined(spark, orders) == []


def test_complete_partition_is_read_again_if_a_person_asks_for_it(put: Put, loading: Loading, orders: Load) -> None:
    put(key(orders, "a.csv"), f"{HEADER}\n7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")
    first = loading(orders, HOUR)
    assert loading(orders, HOUR).files_read == 0
    again = loading(dataclasses.replace(orders, read_again=frozenset([HOUR])), HOUR)
    assert (again.files_read, again.read_again) == (1, [HOUR])
    assert again.content == first.content


def test_same_rows_in_csv_json_and_parquet_load_identically(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    lines = [
        (1, 1, 3, 4, 5, 3, "1.25", "0.1", "2026-10-01T07:15:00Z"),
        (1, 2, 3, 9, 5, 1, "0.0001", "0", "2026-10-01 09:15:00.5+02:00"),
    ]
    names = HEADER.split(",")
    shuffled = names[::-1]
    records = [dict(zip(names, line, strict=True)) for line in lines]
    csv_text = ",".join(shuffled) + "\n" + "".join(",".join(str(r[c]) for c in shuffled) + "\n" for r in records)
    json_text = "".join(
        "{"
        + ",".join(
            f'"{c}":{v if isinstance(v, int) or c == "discount" else chr(34) + str(v) + chr(34)}' for c, v in r.items()
        )
        + "}\n"
        for r in records
    )
    times = [datetime.fromisoformat(str(r["ordered_at"])) for r in records]
    nanoseconds = [round(time.timestamp() * 1_000_000) * 1_000 + 999 for time in times]  # cut, never rounded up
    table = pa.table(
        {
            **{c: pa.array([r[c] for r in records], pa.int16()) for c in names[:6]},
            "unit_price_usd": pa.array([Decimal(str(r["unit_price_usd"])) for r in records], pa.decimal128(20, 6)),
            "discount": pa.array([float(str(r["discount"])) for r in records], pa.float64()),
            "ordered_at": pa.array(nanoseconds).cast(pa.timestamp("ns", tz="UTC")),
        }
    )
    parquet = io.BytesIO()
    pq.write_table(table, parquet)
    results = []
    for name, body in (("a.csv", csv_text), ("a.jsonl", json_text), ("a.parquet", parquet.getvalue())):
        load = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))
        put(key(load, name), body)
        loaded = loading(load, HOUR)
        assert quarantined(spark, load) == [], name
        results.append((rows(spark, load), loaded.content[HOUR]))
    assert results[0] == results[1] == results[2]
    assert len(results[0][0]) == 2


def test_load_quarantines_bad_rows_and_commits_the_rest(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    good = "7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z"
    bad = [
        "7,2,3,4,5,many,1.25,0.1,2026-10-01T07:15:00Z",
        "7,3,,4,5,3,1.25,0.1,2026-10-01T07:15:00Z",
        "7,4,3,4,5,3,1.25,0.1,2026-10-01T08:15:00Z",
        "7,5,3,4,5,3,1.25,1.1,2026-10-01T07:15:00Z",
    ]
    put(key(orders, "a.csv"), "\n".join([HEADER, good, *bad]) + "\n")

    loaded = loading(orders, HOUR)

    assert (loaded.content[HOUR].rows, loaded.rows_rejected) == (1, 4)
    assert quarantined(spark, orders) == [
        ("a.csv", 2, "bad_type"),
        ("a.csv", 3, "null_value"),
        ("a.csv", 4, "wrong_hour"),
        ("a.csv", 5, "discount_out_of_range"),
    ]


def test_unreadable_file_is_quarantined_and_other_files_are_loaded(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "good.csv"), f"{HEADER}\n7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")
    put(key(orders, "empty.csv"), "")
    put(key(orders, "header.csv"), f"{HEADER}\n")
    put(key(orders, "other.csv"), "a,b\n1,2\n")
    put(key(orders, "junk.parquet"), b"\x00\x01junk")

    loaded = loading(orders, HOUR)

    assert loaded.content[HOUR].rows == 1
    assert quarantined(spark, orders) == [
        ("empty.csv", 0, "empty"),
        ("header.csv", 0, "no rows"),
        ("junk.parquet", 0, "unreadable"),
        ("other.csv", 0, "missing_column"),
    ]
    assert loading(orders, HOUR).read_again == (), "all five files are known now"


def test_load_without_new_files_reads_and_commits_nothing(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), f"{HEADER}\n7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")
    first = loading(orders, HOUR)
    again = loading(orders, HOUR)
    assert (again.read_again, again.snapshot_id, again.content) == ((), first.snapshot_id, first.content)


def test_overwritten_and_deleted_files_leave_no_old_rows(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, landing: object
) -> None:
    put(key(orders, "a.csv"), f"{HEADER}\n7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")
    put(key(orders, "b.csv"), f"{HEADER}\n8,1,3,4,5,3,1.25,bad,2026-10-01T07:15:00Z\n")
    loading(orders, HOUR)
    put(key(orders, "a.csv"), f"{HEADER}\n9,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")
    landing._client.delete_object(Bucket=landing.name, Key=key(orders, "b.csv"))  # type: ignore[attr-defined]
    loading(orders, HOUR)
    assert [r[0] for r in rows(spark, orders)] == [9]
    assert quarantined(spark, orders) == []


@pytest.mark.parametrize(
    ("corrected", "expected", "files_read"),
    [
        pytest.param(
            [line(2, 21), line(3, 31)],
            {1: 1, 2: 21, 3: 31, 4: 4},
            1,
            id="all rows of the old version",
            marks=pytest.mark.proof,
        ),
        pytest.param([line(2, 21), line(3, 31), line(4, 41)], {1: 1, 2: 21, 3: 31, 4: 41}, 1, id="one more row"),
        # Row 2 of b.csv has lost to the old version. Now it is the latest row of its key.
        pytest.param([line(3, 31)], {1: 1, 2: 2, 3: 31, 4: 4}, 3, id="a row is missing"),
        pytest.param(
            [line(2).replace("0.1", "bad"), line(3, 31)], {1: 1, 2: 2, 3: 31, 4: 4}, 3, id="a row is rejected"
        ),
        pytest.param([], {1: 1, 2: 2, 4: 4}, 3, id="no row", marks=pytest.mark.proof),
    ],
)
def test_corrected_file_is_read_alone_if_it_has_all_rows_of_its_old_version(
    spark: SparkSession,
    put: Put,
    loading: Loading,
    orders: Load,
    corrected: list[str],
    expected: dict[int, int],
    files_read: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_plan, "FEW_FILES", 2)
    put(key(orders, "b.csv"), csv(line(1, 1), line(2, 2)))
    put(key(orders, "c.csv"), csv(line(4, 4)))
    a_second()
    put(key(orders, "a.csv"), csv(line(2, 20), line(3, 30)))
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 1, 2: 20, 3: 30, 4: 4}

    put(key(orders, "a.csv"), csv(*corrected))
    loaded = loading(orders, HOUR)

    assert quantities(spark, orders) == expected
    assert loaded.files_read == files_read
    assert [account for account in loaded.accounts if account.unaccounted] == []
    assert loading(orders, HOUR).files_read == 0


def test_correction_with_an_older_time_gives_way_to_rows_that_lost_to_the_old_version(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(key(orders, "b.csv"), csv(line(1, 1), line(2, 2)))
    put(key(orders, "c.csv"), csv(line(4, 4)))
    a_second()
    put(key(orders, "a.csv"), csv(line(2, 20)))
    loading(orders, HOUR)

    def hours_earlier(landed: LandedObject, partition: Partition) -> SourceFile:
        file = source_file(landed, partition)
        is_a = file.key == key(orders, "a.csv")
        return dataclasses.replace(file, arrived_at=file.arrived_at - timedelta(hours=is_a))

    source_file = load_state.source_file
    monkeypatch.setattr(load_plan, "FEW_FILES", 2)
    monkeypatch.setattr(load_state, "source_file", hours_earlier)
    put(key(orders, "a.csv"), csv(line(2, 21)))
    assert loading(orders, HOUR).files_read == 3
    assert quantities(spark, orders) == {1: 1, 2: 2, 4: 4}


def test_new_code_version_reads_the_partition_again(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), f"{HEADER}\n7,1,3,4,5,3,1.25,0.1,2026-10-01T07:15:00Z\n")
    first = loading(orders, HOUR)
    second = loading(dataclasses.replace(orders, code_version="2"), HOUR)
    assert second.read_again == [HOUR]
    assert second.content == first.content, "the same rows by other code are the same content"


def test_later_file_and_later_row_win_for_one_row_key(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    line = "7,1,3,4,5,{},1.25,0,2026-10-01T07:15:00Z\n"
    put(key(orders, "b.csv"), f"{HEADER}\n" + line.format(1) + line.format(2))
    put(key(orders, "a.csv"), f"{HEADER}\n" + line.format(3) + line.format(4))
    loading(orders, HOUR)
    # Both may have landed within one second, the resolution of LastModified: then the name decides.
    winner = rows(spark, orders)
    assert len(winner) == 1
    assert winner[0][5] in (2, 4)


def test_load_of_a_partition_range_is_one_commit(spark: SparkSession, put: Put, loading: Loading, orders: Load) -> None:
    hours = [f"2026-10-01-{h:02}:00" for h in range(5)]
    for h, hour in enumerate(hours):
        put(key(orders, "a.csv", hour), f"{HEADER}\n7,1,3,4,5,{h},1.25,0.1,2026-10-01T0{h}:15:00Z\n")
    loaded = loading(orders, *hours)
    assert [loaded.content[h].rows for h in hours] == [1] * 5
    assert spark.sql(f"SELECT * FROM {orders.table.identifier}.snapshots").count() == 1


def test_unpartitioned_load_replaces_the_whole_customers_table(spark: SparkSession, put: Put, loading: Loading) -> None:
    load = renamed(Load(feeds.CUSTOMERS, schemas.CUSTOMERS, lambda rows: rows, code_version="1"))
    header = "customer_id,name,email,segment,nation,signed_up_at\n"
    put(load.feed.prefix, header + "1,Ada,a@x,home,UK,2026-01-01\n2,Bob,,home,UK,\n")
    assert loading(load, None).content[None].rows == 2
    put(load.feed.prefix, header + "2,Bob,,corporate,UK,\n")
    assert loading(load, None).content[None].rows == 1


@pytest.mark.usefixtures("size")
def test_feed_columns_may_have_names_used_by_the_quarantine(spark: SparkSession, put: Put, loading: Loading) -> None:
    texts = [
        "reason",
        "message",
        "row",
        "block",
        "content",
        "partition",
        "malformed",
        "place",
        "asset",
        "values",
        "rows",
    ]
    columns = {"id": "bigint", **dict.fromkeys(texts, "string")}
    feed = Feed("notes", "notes.csv", Grain.NONE, columns, required=("id",))
    load = renamed(Load(feed, Table("core.notes", columns | LINEAGE, ("id",)), lambda rows: rows, "1"))
    said = [f"the {name}" for name in texts]
    put(load.feed.prefix, "\n".join(",".join(line) for line in (columns, ["1", *said], ["two", *said])))

    loading(load, None)

    assert rows(spark, load) == [(1, *said)]
    (entry,) = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'").collect()
    assert (entry.row_number, entry.reason) == (2, "bad_type")
    assert json.loads(entry.content) == {"id": "two", **dict(zip(texts, said, strict=True))}


@pytest.mark.usefixtures("size")
def test_column_names_may_be_sql_keywords_or_contain_special_characters(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    columns = {"order-id": "bigint", "unit price": "bigint", "größe": "string", "select": "string"}
    feed = Feed("odd", "odd/", Grain.HOUR, columns, required=("order-id",), rules={"dear": "`unit price` < 100"})
    by = {"the hour": "timestamp"}
    table = Table("core.odd", columns | by | LINEAGE, ("the hour", "order-id"), "the hour")
    load = renamed(Load(feed, table, lambda rows: rows, "1"))
    put(key(load, "a.csv"), "order-id,unit price,größe,select\n1,10,L,a\n9,100,L,a\n")
    loading(load, HOUR)
    put(key(load, "b.csv"), "select,größe,order-id,unit price\nb,M,2,20\n")
    put(key(load, "c.csv"), "order-id,unit price,größe,select\n3,30,S,c\n")
    put(key(load, "d.jsonl"), json.dumps({"order-id": 4, "unit price": 40, "größe": "XL", "select": "d"}))
    loading(load, HOUR)
    found = spark.table(load.table.identifier).select("order-id", "unit price", "größe", "select").collect()
    assert sorted(map(tuple, found)) == [(1, 10, "L", "a"), (2, 20, "M", "b"), (3, 30, "S", "c"), (4, 40, "XL", "d")]


@pytest.mark.usefixtures("size")
@both_sizes
def test_row_on_which_a_rule_cannot_be_evaluated_is_rejected_alone(
    spark: SparkSession, put: Put, loading: Loading
) -> None:
    columns = {"id": "bigint", "total": "decimal(18,4)", "n": "bigint", "code": "string"}
    rules = {
        "dear": "n IS NULL OR total / n < 1000",
        "dear_too": "n IS NULL OR total / n < 2000",
        "many": "id * 10 > 0",
        "code": "code IS NULL OR CAST(code AS INT) > 0",
    }
    feed = Feed("mini", "mini.csv", Grain.NONE, columns, required=("id",), rules=rules)
    load = renamed(Load(feed, Table("core.mini", columns | LINEAGE, ("id",)), lambda rows: rows, "1"))
    put(load.feed.prefix, "id,total,n,code\n1,10,2,7\n2,10,0,\n3,9,3,x\n9223372036854775807,1,1,\n5,,,\n")
    loading(load, None)
    assert sorted(r.id for r in spark.table(load.table.identifier).collect()) == [1, 5]
    assert quarantined(spark, load) == [("mini.csv", 2, "dear"), ("mini.csv", 3, "code"), ("mini.csv", 4, "many")]


def test_parquet_column_may_be_named_like_a_hidden_spark_column(
    spark: SparkSession, put: Put, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    feed = Feed("mini", "mini.parquet", Grain.NONE, {"id": "bigint"}, suffixes=(".parquet",), required=("id",))
    load = renamed(Load(feed, Table("core.mini", {"id": "bigint"} | LINEAGE, ("id",)), lambda rows: rows, "1"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "_metadata": ["x"]}), sink)
    put(load.feed.prefix, sink.getvalue())
    assert not loading(load, None).unavailable
    assert [r.source_file for r in spark.table(load.table.identifier).collect()] == [load.feed.prefix]


@pytest.mark.proof  # a minute
def test_feed_may_have_more_than_a_hundred_columns(
    spark: SparkSession, put: Put, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    columns = {"id": "bigint", **{f"c{n}": "bigint" for n in range(120)}}
    feed = Feed("wide", "wide.jsonl", Grain.NONE, columns, suffixes=(".jsonl",), required=("id",))
    load = renamed(Load(feed, Table("core.wide", columns | LINEAGE, ("id",)), lambda rows: rows, "1"))
    put(load.feed.prefix, json.dumps({name: n for n, name in enumerate(columns)}))
    loading(load, None)
    assert rows(spark, load) == [tuple(range(121))]


@pytest.mark.parametrize("name", ["_row", "source_file"])
def test_column_name_reserved_by_the_load_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"feed notes: '{name}': the names source_file, .* rename the column"):
        Feed("notes", "notes.csv", Grain.NONE, {name: "string"})


@pytest.mark.parametrize(
    ("body", "reason"),
    sample(
        [
            ("", "empty"),
            ("customer_id,name\n", "empty"),
            ("no such column\n1\n", "missing_column"),
            (b"\0\1", "unreadable"),
        ],
        ("customer_id,name\n", "empty"),
    ),
)
def test_object_version_without_rows_keeps_the_rows_of_the_last_version(
    spark: SparkSession, put: Put, loading: Loading, customers: Load, body: str | bytes, reason: str
) -> None:
    put(customers.feed.prefix, "customer_id,name\n1,Ada\n2,Bob\n")
    loading(customers, None)
    put(customers.feed.prefix, body)
    loaded = loading(customers, None)
    assert spark.table(customers.table.identifier).count() == 2
    ((_, row, said),) = quarantined(spark, customers)
    assert (row, said) == (0, reason)
    assert "the table keeps the rows of the last version" in loaded.files_rejected[0].message
    assert loading(customers, None).content[None].rows == 2
    put(customers.feed.prefix, "customer_id,name\n3,Cid\n")
    loading(customers, None)
    assert [r.customer_id for r in spark.table(customers.table.identifier).collect()] == [3]
    assert quarantined(spark, customers) == []


def test_feed_with_allow_empty_can_be_emptied(spark: SparkSession, put: Put, loading: Loading, customers: Load) -> None:
    customers = dataclasses.replace(customers, feed=dataclasses.replace(customers.feed, allow_empty=True))
    put(customers.feed.prefix, "customer_id,name\n1,Ada\n")
    loading(customers, None)
    put(customers.feed.prefix, "customer_id,name\n")
    loading(customers, None)
    assert spark.table(customers.table.identifier).count() == 0


def test_row_key_without_the_partition_column_is_refused() -> None:
    table = dataclasses.replace(schemas.ORDERS, row_key=("order_id", "line_number"))
    with pytest.raises(ValueError, match=r"table core\.orders: .*'hour' must be in row_key"):
        Load(feeds.ORDERS, table, order_lines, "1")
