"""What the sample feed plans: the same world for the same seed, in the declared layout."""

import csv
import gzip
import io
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.demo.plan import FileToWrite, live_file, mishaps, plan_between, plan_hours
from pipelines.feeds.customers import CUSTOMERS
from pipelines.feeds.orders import ORDERS
from pipelines.feeds.prices import PRICES
from tests.oracle import Landed, expected_tables
from tests.sampling import sample

START = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def three_days() -> list[FileToWrite]:
    return plan_hours(START, 72, seed=7)


def order_files(files: list[FileToWrite]) -> list[FileToWrite]:
    return [file for file in files if file.key.startswith(ORDERS.prefix)]


def rows_of(file: FileToWrite) -> list[dict[str, object]]:
    """The rows of an order file as its format gives them."""
    body = file.content()
    if file.key.endswith(".parquet"):
        rows: list[dict[str, object]] = pq.read_table(io.BytesIO(body)).to_pylist()
        return rows
    text = (gzip.decompress(body) if file.key.endswith(".gz") else body).decode()
    if file.key.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(io.StringIO(text)))


def row_keys(file: FileToWrite) -> list[tuple[int, int]]:
    return [(int(str(row["order_id"])), int(str(row["line_number"]))) for row in rows_of(file)]


def test_same_demo_seed_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib; from datetime import UTC, datetime; from pipelines.demo.plan import plan_hours\n"
        "for file in plan_hours(datetime(2026, 11, 18, tzinfo=UTC), 8, 7):\n"
        "    print(hashlib.sha256(file.key.encode() + file.content()).hexdigest())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": str(hash_seed), "TZ": zone},
        ).stdout
        for hash_seed, zone in ((1, "UTC"), (2, "Asia/Tokyo"))
    }
    assert len(outputs) == 1
    assert len(outputs.pop().split()) >= 8 * 3


def test_planned_demo_hour_does_not_depend_on_other_hours(three_days: list[FileToWrite]) -> None:
    alone = order_files(plan_hours(START + timedelta(hours=30, minutes=59), 1, seed=7))
    within = {file.key: file.content() for file in order_files(three_days)}
    assert [(file.key, file.content()) for file in alone] == [(file.key, within[file.key]) for file in alone]


def test_another_demo_seed_gives_other_files() -> None:
    one, other = ([file.content() for file in plan_hours(START, 1, seed)] for seed in (7, 8))
    assert one != other


def test_planned_demo_files_match_the_layout_and_cover_every_window(three_days: list[FileToWrite]) -> None:
    hours = Counter(ORDERS.partition_of(file.key) for file in order_files(three_days))
    assert len(hours) == 72
    assert set(hours.values()) == {3, 4}  # the fourth is a correction
    days = [PRICES.partition_of(file.key) for file in three_days if file.key.startswith(PRICES.prefix)]
    assert days == ["2026-11-18", "2026-11-19", "2026-11-20"]
    assert [CUSTOMERS.partition_of(file.key) for file in three_days if file.key.startswith("customers")] == [None]
    assert len({file.key for file in three_days}) == len(three_days)


def test_planned_demo_files_include_every_format_and_name_style(three_days: list[FileToWrite]) -> None:
    names = [file.key.rsplit("/", 1)[1] for file in order_files(three_days)]
    assert {name.partition(".")[2] for name in names} == {"csv", "csv.gz", "jsonl", "parquet"}
    assert any(" " in name for name in names)
    assert any("+" in name for name in names)
    assert any(not name.isascii() for name in names)
    headers = {tuple(rows_of(file)[0]) for file in order_files(three_days) if file.key.endswith(".csv")}
    assert len(headers) > 5


def test_demo_parquet_files_have_varying_types(three_days: list[FileToWrite]) -> None:
    schemas = [
        pq.read_schema(io.BytesIO(file.content())) for file in order_files(three_days) if file.key.endswith(".parquet")
    ]
    assert len({str(schema.field("quantity").type) for schema in schemas}) > 2
    money = {str(schema.field("unit_price_usd").type) for schema in schemas}
    assert "double" in money and len(money) > 1
    precisions = {schema.field("ordered_at").type.unit for schema in schemas}
    assert precisions == {"ms", "us", "ns"}


def test_demo_orders_belong_to_their_hour_with_unique_row_keys(
    three_days: list[FileToWrite],
) -> None:
    ordinary = [file for file in order_files(three_days) if not file.is_correction]
    keys = Counter(key for file in ordinary for key in row_keys(file))
    assert set(keys.values()) == {1}
    corrections = [file for file in three_days if file.is_correction]
    assert corrections
    for file in corrections:
        assert all(keys[key] == 1 for key in row_keys(file))
        siblings = [other.key for other in ordinary if other.key.rsplit("/", 1)[0] == file.key.rsplit("/", 1)[0]]
        assert file.key > max(siblings)
    for file in order_files(three_days):
        partition = ORDERS.partition_of(file.key)
        assert partition is not None
        begin, end = ORDERS.layout.times.window(partition)
        for row in rows_of(file):
            at = row["ordered_at"]
            at = datetime.fromisoformat(at) if isinstance(at, str) else at
            assert isinstance(at, datetime)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            assert begin <= at < end


def test_demo_prices_of_a_day_include_every_product_sold(three_days: list[FileToWrite]) -> None:
    prices = next(file for file in three_days if file.key.startswith(PRICES.prefix))
    priced = {row["product_id"] for row in csv.DictReader(io.StringIO(prices.content().decode()))}
    sold = {str(row["product_id"]) for file in order_files(three_days)[:72] for row in rows_of(file)}
    assert sold <= priced


def test_demo_customers_change_daily_and_some_buyers_are_unknown(three_days: list[FileToWrite]) -> None:
    today, tomorrow = (
        {
            row["customer_id"]: row["segment"]
            for file in plan_hours(START + timedelta(days=day), 1, seed=7)
            if file.key == CUSTOMERS.prefix
            for row in csv.DictReader(io.StringIO(file.content().decode()))
        }
        for day in (0, 1)
    )
    assert 300 < len(today) < len(tomorrow) < len(today) + 10
    changed = sum(tomorrow[customer] != segment for customer, segment in today.items())
    assert 0 < changed < 20
    buyers = {str(row["customer_id"]) for file in order_files(three_days) for row in rows_of(file)}
    assert buyers & today.keys() and buyers - tomorrow.keys()


def test_demo_evening_has_more_orders_than_the_night(three_days: list[FileToWrite]) -> None:
    def lines(hour: int) -> int:
        return sum(len(rows_of(file)) for file in order_files(three_days) if f"/hour={hour:02d}/" in file.key)

    assert lines(18) > 3 * lines(3)


def test_demo_files_are_due_once_each() -> None:
    end = START + timedelta(hours=26)
    of_the_hours = order_files(plan_hours(START, 26, seed=7)) + mishaps(START, 26, seed=7)
    planned = {(file.key, file.due) for file in of_the_hours}
    instants = [START + timedelta(minutes=13 * step) for step in range(26 * 60 // 13 + 1)] + [end]
    became_due = [
        (file.key, file.due)
        for since, until in pairwise(instants)
        for file in order_files(plan_between(since, until, seed=7))
        if file.due <= end and file.key.startswith("orders/dt=2026-11-1")
    ]
    last_hour_before = {(file.key, file.due) for file in plan_hours(START - timedelta(hours=1), 1, seed=7)}
    assert sorted(set(became_due) - last_hour_before) == sorted(planned)
    assert len(became_due) == len(set(became_due))


def test_new_demo_day_includes_its_prices_and_customers() -> None:
    midnight = START + timedelta(days=1)
    keys = [file.key for file in plan_between(midnight - timedelta(seconds=5), midnight + timedelta(seconds=5), seed=7)]
    assert "prices/dt=2026-11-19/prices.csv" in keys
    assert keys.count(CUSTOMERS.prefix) == 1


def test_live_demo_files_belong_to_the_current_hour() -> None:
    now = START + timedelta(hours=9, seconds=30)
    file = live_file(now, seed=7)
    assert ORDERS.partition_of(file.key) == "2026-11-18-09:00"
    assert file.content() == live_file(now, seed=7).content()
    assert live_file(now + timedelta(seconds=1), seed=7).key != file.key
    assert rows_of(file)


@pytest.mark.parametrize("seed", sample(range(5), 0, 1))
def test_demo_plan_has_one_bad_file_and_three_bad_rows_in_three_days(seed: int) -> None:
    for hour in range(0, 72, 5):
        whole, rows = mishaps(START + timedelta(hours=hour), 72, seed)
        assert ORDERS.partition_of(whole.key) == ORDERS.partition_of(rows.key)
        assert "unit_price_usd" not in rows_of(whole)[0] and rows_of(whole)
        assert [row["discount"] for row in rows_of(rows) if float(str(row["discount"])) > 1] == ["25"]
        assert [row["quantity"] for row in rows_of(rows) if not str(row["quantity"]).lstrip("-").isdigit()] == ["three"]
        assert len(rows_of(rows)) > 3


def test_bad_demo_files_are_reproducible_and_affect_no_other_rows(
    three_days: list[FileToWrite], tmp_path: Path
) -> None:
    again, files = mishaps(START, 72, seed=7), mishaps(START, 72, seed=7)
    assert [file.content() for file in again] == [file.content() for file in files]
    assert not {file.key for file in files} & {file.key for file in three_days}
    landed = []
    for number, file in enumerate(files + three_days):
        path = tmp_path / f"{number}.{file.key.rsplit('/', 1)[1].partition('.')[2]}"
        path.write_bytes(file.content())
        landed.append(Landed(file.key, path, file.due))
    found, clean = expected_tables(landed), expected_tables(landed[2:])
    assert set(found.rejected_files) == {files[0].key}
    assert not clean.rejected_files
    assert found.tables["core.orders"].num_rows == clean.tables["core.orders"].num_rows + len(rows_of(files[1])) - 3
