"""The oracle on cases small enough to be worked out by hand: every expected number here was."""

import gzip
import io
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto import mock_aws

from tests.oracle import Expected, Landed, assert_same, download, expected_of_messages, expected_tables

HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
HOUR_7 = "orders/dt=2026-11-20/hour=07/"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
D = Decimal

Judge = Callable[..., Expected]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """The expected tables of some files, given as key to content; they arrive a minute after each other."""

    def expected(files: Mapping[str, str | bytes], **options: Any) -> Expected:
        landed = []
        for number, (key, content) in enumerate(files.items()):
            path = tmp_path / f"{number}{''.join(Path(key).suffixes[-2:])}"
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            landed.append(Landed(key, path, NOON + timedelta(minutes=number), etag=f"e{number}"))
        return expected_tables(landed, **options)

    return expected


def rows(expected: Expected, table: str, *columns: str) -> list[tuple[Any, ...]]:
    chosen = expected.tables[f"{table}"].select(list(columns)) if columns else expected.tables[table]
    return sorted((tuple(row.values()) for row in chosen.to_pylist()), key=repr)


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_oracle_does_not_import_the_code_under_test() -> None:
    program = "import sys, tests.oracle; assert not any(name.split('.')[0] == 'pipelines' for name in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_oracle_rounds_revenue_half_up_once(judge: Judge) -> None:
    lines = (
        "1,1,1,1,1,1,0.0001,0.5,2026-11-20T07:00:00\n"  # 0.00005
        "1,2,1,1,1,-1,0.0001,0.5,2026-11-20T07:00:00\n"
        "1,3,1,1,1,1,0.0001,0.50000001,2026-11-20T07:00:00\n"  # 0.000049999999
        "1,4,1,1,1,3,1.1111,0.00005,2026-11-20T07:00:00\n"  # 3.333133335
        "1,5,1,1,1,999999999,99999.9999,0.99999999,2026-11-20T07:00:00\n"  # 999999.997999000001
    )
    result = judge({f"{HOUR_7}a.csv": HEADER + lines})
    assert rows(result, "core.orders", "line_number", "revenue_usd") == [
        (1, D("0.0001")),
        (2, D("-0.0001")),
        (3, D("0.0000")),
        (4, D("3.3331")),
        (5, D("999999.9980")),
    ]


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-20T07:12:33.5",
        "2026-11-20 07:12:33.500",
        "2026-11-20T07:12:33.5Z",
        "2026-11-20 08:12:33.500000+01:00",
        "2026-11-20T02:12:33.5-05:00",
    ],
)
def test_oracle_parses_each_common_time_format(judge: Judge, written: str) -> None:
    result = judge({f"{HOUR_7}a.csv": f"{HEADER}1,1,1,1,1,1,1,0,{written}\n"})
    expected = (datetime(2026, 11, 20, 7, 12, 33, 500_000), datetime(2026, 11, 20, 7))
    assert rows(result, "core.orders", "ordered_at", "hour") == [expected]


def test_oracle_reads_the_same_row_from_all_formats(judge: Judge) -> None:
    csv = "store_id,quantity,unit_price_usd,discount,ordered_at,order_id,line_number,customer_id,product_id\n"
    csv += "5,-2,3.49,0.15,2026-11-20T07:00:01.000001,1,1,3,4\n"
    json = (
        '{"order_id": "1", "line_number": 1, "customer_id": 3, "product_id": "4", "store_id": 5, "quantity": "-2", '
        '"unit_price_usd": 3.49, "discount": "0.150", "ordered_at": "2026-11-20 07:00:01.000001", "note": "new"}\n'
    )
    common = {
        "order_id": pa.array([1], pa.int64()),
        "line_number": pa.array([1], pa.int8()),
        "customer_id": pa.array([3], pa.int32()),
        "product_id": pa.array([4], pa.uint16()),
        "store_id": pa.array([5], pa.int16()),
        "quantity": pa.array([-2], pa.int16()),
    }
    doubles = common | {
        "unit_price_usd": pa.array([3.49]),
        "discount": pa.array([0.15]),
        "ordered_at": pa.array([1_795_158_001_000_001_999], pa.timestamp("ns", "UTC")),
    }
    decimals = common | {
        "unit_price_usd": pa.array([D("3.490000")], pa.decimal128(12, 6)),
        "discount": pa.array([D("0.15")], pa.decimal128(4, 2)),
        "ordered_at": pa.array([1_795_158_001_000_001], pa.timestamp("us")),
    }
    bodies = {
        "a.csv": csv,
        "a.csv.gz": gzip.compress(csv.encode()),
        "a.jsonl": json,
        "a.parquet": parquet(**doubles),
        "b.parquet": parquet(**decimals),
    }
    for name, body in bodies.items():
        result = judge({HOUR_7 + name: body})
        assert result.rejected_files == {}
        values = (1, 1, 3, 4, 5, -2, D("3.4900"), D("0.15000000"), datetime(2026, 11, 20, 7, 0, 1, 1))
        computed = (datetime(2026, 11, 20, 7), D("-5.9330"))
        assert [row[:11] for row in rows(result, "core.orders")] == [values + computed], name


def test_oracle_prefers_the_later_file_and_the_later_row(judge: Judge) -> None:
    result = judge(
        {
            f"{HOUR_7}z.csv": f"{HEADER}1,1,1,1,1,10,1,0,2026-11-20T07:00:00\n2,1,1,1,1,1,1,0,2026-11-20T07:00:00\n",
            f"{HOUR_7}a.csv": f"{HEADER}1,1,1,1,1,20,1,0,2026-11-20T07:00:00\n1,1,1,1,1,30,1,0,2026-11-20T07:00:00\n",
        }
    )
    assert rows(result, "core.orders", "order_id", "quantity", "source_file") == [
        (1, 30, f"{HOUR_7}a.csv"),
        (2, 1, f"{HOUR_7}z.csv"),
    ]


def test_oracle_prefers_the_later_name_of_files_with_equal_time(tmp_path: Path) -> None:
    landed = []
    for name, quantity in (("ä", 3), ("b", 2), ("a", 1)):
        path = tmp_path / f"{quantity}.csv"
        path.write_text(f"{HEADER}1,1,1,1,1,{quantity},1,0,2026-11-20T07:00:00\n")
        landed.append(Landed(f"{HOUR_7}{name}.csv", path, NOON))
    assert rows(expected_tables(landed), "core.orders", "quantity") == [(3,)]


def test_oracle_rejects_bad_rows_and_files_and_keeps_the_others(judge: Judge) -> None:
    lines = (
        "1,1,1,1,1,1,1,0,2026-11-20T07:00:00\n"
        "2,1,1,1,1,1,1,0,2026-11-20T08:00:00\n"  # another hour
        "3,1,1,1,1,1,1,1.01,2026-11-20T07:00:00\n"
        "4,1,1,1,1,1,1,-0.01,2026-11-20T07:00:00\n"
        "5,1,,1,1,1,1,0,2026-11-20T07:00:00\n"
        "6,1,1,1,1,x,1,0,2026-11-20T07:00:00\n"
        "7,1,1,1,1,1000000000,1,0,2026-11-20T07:00:00\n"
        "8,1,1,1,1,1,1,1,2026-11-20T07:59:59.999999\n"
    )
    result = judge(
        {
            f"{HOUR_7}a.csv": HEADER + lines,
            f"{HOUR_7}empty.csv": "",
            f"{HOUR_7}junk.parquet": b"PAR1 junk",
            f"{HOUR_7}cut.csv.gz": gzip.compress((HEADER + lines).encode())[:40],
            f"{HOUR_7}other.csv": "a,b\n1,2\n",
            "orders/dt=2026-11-20/hour=24/a.csv": HEADER,
            "orders/dt=2026-09-27/hour=23/a.csv": HEADER,
            "elsewhere/a.csv": HEADER,
        },
        start_date=date(2026, 9, 28),
    )
    assert rows(result, "core.orders", "order_id") == [(1,), (8,)]
    assert len(result.rejected_files) == 7
    assert f"{HOUR_7}a.csv" not in result.rejected_files


def test_oracle_computes_the_marts_of_two_days(judge: Judge) -> None:
    def order(order_id: int, line: int, customer: int, product: int, quantity: int, price: str, at: str) -> str:
        return f"{order_id},{line},{customer},{product},1,{quantity},{price},0.1,{at}\n"

    result = judge(
        {
            f"{HOUR_7}a.csv": HEADER
            + order(1, 1, 1, 101, 2, "1.5", "2026-11-20T07:10:00")  # 2.70
            + order(1, 2, 1, 102, 1, "10", "2026-11-20T07:10:00")  # 9.00
            + order(2, 1, 2, 101, 1, "1.5", "2026-11-20T07:20:00"),  # 1.35
            "orders/dt=2026-11-21/hour=00/a.csv": HEADER
            + order(3, 1, 1, 101, -3, "1.5", "2026-11-21T00:00:00"),  # -4.05
            "orders/dt=2026-11-22/hour=00/a.csv": HEADER + order(4, 1, 9, 101, 1, "1", "2026-11-22T00:00:00"),  # 0.90
            "customers/latest.csv": "customer_id,name,email,segment,nation,signed_up_at\n"
            "1,Old,o@example.com,office,DE,2026-01-01\n2,B,b@example.com,,DE,2026-01-01\n"
            "1,A,a@example.com,family,DE,2026-01-01 10:00:00+01:00\n,C,c@example.com,office,DE,2026-01-01\n",
            "prices/dt=2026-11-20/prices.csv": "product_id,cost_usd\n101,1.0001\n",
            "prices/dt=2026-11-21/prices.csv": "product_id,cost_usd\n101,9\n",
            "prices/dt=2026-11-21/update.csv": "cost_usd,product_id\n0.5,101\n",
        }
    )
    friday, saturday, sunday = date(2026, 11, 20), date(2026, 11, 21), date(2026, 11, 22)
    seven, midnight = datetime(2026, 11, 20, 7), datetime(2026, 11, 21)
    assert rows(result, "marts.sales_hourly") == [
        (seven, 1, 2, 3, 4, D("13.0500")),
        (midnight, 1, 1, 1, -3, D("-4.0500")),
        (datetime(2026, 11, 22), 1, 1, 1, 1, D("0.9000")),
    ]
    assert rows(result, "marts.sales_daily") == [
        (friday, 101, 3, D("4.0500")),
        (friday, 102, 1, D("9.0000")),
        (saturday, 101, -3, D("-4.0500")),
        (sunday, 101, 1, D("0.9000")),
    ]
    assert rows(result, "marts.order_stats") == [
        (friday, "family", 1, 2, 1, D("11.7000")),
        (friday, "unknown", 1, 1, 1, D("1.3500")),
        (saturday, "family", 1, 1, 1, D("-4.0500")),
        (sunday, "unknown", 1, 1, 1, D("0.9000")),
    ]
    # Product 102 has no price on Friday; Sunday has no price file at all.
    assert set(rows(result, "marts.margin_hourly")) == {
        (seven, 101, D("4.0500"), D("3.0003"), D("1.0497")),
        (seven, 102, D("9.0000"), None, None),
        (midnight, 101, D("-4.0500"), D("-1.5000"), D("-2.5500")),
    }
    # A margin that is not known counts as none; Sunday has none at all, and so no row.
    assert rows(result, "marts.executive_rollup") == [
        (friday, 2, D("13.0500"), D("1.0497"), 1),
        (saturday, 1, D("-4.0500"), D("-2.5500"), 1),
    ]
    assert rows(result, "marts.weekly_review") == [(date(2026, 11, 16), 1, 4, D("9.9000"), None)]
    assert rows(result, "marts.offer_reach") == [
        (friday, "family", 1, 1),
        (friday, "unknown", 1, 1),
        (saturday, "family", 1, 1),
        (saturday, "unknown", 1, 1),
    ]
    assert rows(result, "core.customers", "customer_id", "name", "segment", "signed_up_at") == [
        (1, "A", "family", datetime(2026, 1, 1, 9)),
        (2, "B", None, datetime(2026, 1, 1)),
    ]
    assert rows(result, "core.prices", "day", "product_id", "cost_usd") == [
        (friday, 101, D("1.0001")),
        (saturday, 101, D("0.5000")),
    ]


def test_oracle_compares_weeks_and_prefers_the_smaller_store_on_ties(judge: Judge) -> None:
    def file(day: str, *lines: str) -> dict[str, str | bytes]:
        told = "".join(f"{n},1,1,101,{line},0,{day}T07:10:00\n" for n, line in enumerate(lines))
        return {f"orders/dt={day}/hour=07/a.csv": HEADER + told}

    result = judge(
        # Store, quantity, price: a week with 3.00, 3.00 and a return; the next with 2.00, 4.5001 and 1.00.
        file("2026-11-11", "1,1,3", "2,3,1", "3,-1,1")
        | file("2026-11-18", "1,2,1", "2,1,4.5001", "3,1,1")
        | {"prices/dt=2026-11-11/p.csv": "product_id,cost_usd\n101,1\n"}
    )
    second = date(2026, 11, 16)
    assert [row for row in rows(result, "marts.weekly_review") if row[0] == second] == [
        (second, 1, 1, D("2.0000"), D("-0.3333")),
        (second, 2, 1, D("4.5001"), D("0.5000")),
        (second, 3, 1, D("1.0000"), None),
    ]
    assert rows(result, "marts.executive_rollup", "day", "top_store_id") == [(date(2026, 11, 11), 1)]


def test_oracle_computes_demand_features_from_14_days_with_orders(judge: Judge) -> None:
    def file(day: str, *lines: str) -> dict[str, str | bytes]:
        told = "".join(f"{n},1,1,{line},0,{day}T07:10:00\n" for n, line in enumerate(lines))
        return {f"orders/dt={day}/hour=07/a.csv": HEADER + told}

    # Product, store, quantity, price: six and thirteen days before the 20th, and a return that day.
    result = judge(
        file("2026-11-07", "101,1,10,3")
        | file("2026-11-14", "101,1,5,2", "102,1,4,9")
        | file("2026-11-20", "101,1,2,1.5", "101,1,4,2.5", "101,1,-3,7")
    )
    friday = date(2026, 11, 20)
    features = rows(result, "ml.demand_features")
    assert [row for row in features if row[0] == friday] == [
        (friday, 1, 101, 6, 5, 10, 5.5, 7.0, D("7.0000")),
        (friday, 1, 102, 0, 4, 0, 2.0, 4 / 3, D("9.0000")),
    ]
    saturday = date(2026, 11, 21)
    assert [row for row in features if row[0] == saturday] == [
        (saturday, 1, 101, None, None, None, 6.0, 5.5, D("7.0000")),
        (saturday, 1, 102, None, None, None, 0.0, 2.0, D("9.0000")),
    ]
    assert max(row[0] for row in features) == date(2026, 12, 3)


def test_oracle_has_no_order_stats_without_customers(judge: Judge) -> None:
    result = judge({f"{HOUR_7}a.csv": f"{HEADER}1,1,1,1,1,1,1,0,2026-11-20T07:00:00\n"})
    assert rows(result, "marts.order_stats") == []


def test_oracle_row_has_its_file_version_and_arrival(judge: Judge) -> None:
    body = f"{HEADER}1,1,1,1,1,1,1,0,2026-11-20T07:00:00\n"
    result = judge({f"{HOUR_7}Köln + Süd.csv": body})
    version = f"e0-{len(body)}-1795176000000"
    assert rows(result, "core.orders", "source_file", "source_version", "arrived_at") == [
        (f"{HOUR_7}Köln + Süd.csv", version, NOON.replace(tzinfo=None))
    ]


def test_bucket_copy_keeps_keys_etags_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
        s3.create_bucket(Bucket="landing")
        put = s3.put_object(Bucket="landing", Key=f"{HOUR_7}a b+ö.csv.gz", Body=b"content")
        (landed,) = download(s3, "landing", tmp_path / "copy")
    assert landed.key == f"{HOUR_7}a b+ö.csv.gz"
    assert landed.path.name.endswith(".csv.gz") and landed.path.read_bytes() == b"content"
    assert landed.etag == put["ETag"].strip('"')
    assert abs(landed.last_modified - datetime.now(UTC)) < timedelta(minutes=5)


def test_table_comparison_shows_the_rows_that_differ() -> None:
    def table(*values: str) -> pa.Table:
        return pa.table({"day": pa.array([date(2026, 11, 20)] * len(values)), "usd": [D(value) for value in values]})

    assert_same("marts.x", table("1.10", "2.20"), table("2.20", "1.10"))
    with pytest.raises(AssertionError) as caught:
        assert_same("marts.x", table("1.10", "2.20", "2.20"), table("1.10", "2.21", "2.20"))
    assert "1 missing\n  (2026-11-20, 2.20) x1" in str(caught.value)
    assert "1 not expected\n  (2026-11-20, 2.21) x1" in str(caught.value)


def test_table_comparison_refuses_other_columns_and_float_money() -> None:
    exact = pa.table({"hour": pa.array([NOON], pa.timestamp("us", "UTC")), "usd": [D("1.5")]})
    naive = exact.set_column(0, "hour", exact.column("hour").cast(pa.timestamp("us")))
    assert_same("core.x", naive, exact.append_column("loaded_by", [["1"]]))
    with pytest.raises(AssertionError, match="types differ"):
        assert_same("core.x", exact, exact.set_column(1, "usd", [[1.5]]))
    with pytest.raises(AssertionError, match="columns"):
        assert_same("core.x", exact, exact.append_column("more", [["1"]]))


def test_oracle_computes_readings_and_hot_spots_from_messages() -> None:
    def message(id: str, device: str, at: datetime, degrees: float, sent: int, store: int = 1) -> dict[str, Any]:
        sent_at = NOON + timedelta(seconds=sent)
        said = {"device_id": device, "store_id": store, "read_at": at, "temperature_c": degrees, "door_open": None}
        return said | {"message_id": id, "sent_at": sent_at}

    eleven_50, noon_10 = NOON - timedelta(minutes=10), NOON + timedelta(minutes=10)
    messages = [
        message("1", "a", eleven_50, 9.0, 1),  # 15 minutes: 10 in its hour, 5 in the next
        message("2", "a", noon_10, 30.0, 3),
        message("3", "a", noon_10, 7.0, 4, store=2),  # sent last
        message("4", "a", noon_10, 31.0, 2),
        message("5", "b", NOON, 8.5, 1),  # 10 minutes
        message("6", "b", noon_10, 8.0, 1),
        message("7", "b", noon_10, 8.0, 1),
    ]
    schema = pa.schema(
        {
            "device_id": pa.string(),
            "store_id": pa.int64(),
            "read_at": pa.timestamp("us", "UTC"),
            "temperature_c": pa.float64(),
            "door_open": pa.bool_(),
            "message_id": pa.string(),
            "sent_at": pa.timestamp("us", "UTC"),
        }
    )
    result = Expected(expected_of_messages(pa.Table.from_pylist(messages, schema)), {})
    eleven, noon = datetime(2026, 11, 20, 11), datetime(2026, 11, 20, 12)
    assert rows(result, "core.readings", "hour", "device_id", "store_id", "temperature_c") == [
        (eleven, "a", 1, 9.0),
        (noon, "a", 2, 7.0),
        (noon, "b", 1, 8.0),
        (noon, "b", 1, 8.5),
    ]
    assert rows(result, "marts.hot_spots") == [
        (eleven, "a", 1, 600.0, 9.0),
        (noon, "a", 2, 300.0, 9.0),
        (noon, "b", 1, 600.0, 8.5),
    ]
