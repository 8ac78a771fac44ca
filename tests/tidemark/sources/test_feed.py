"""Keys to partitions and back."""

import re

import pytest

from dagster_tidemark.sources.feed import Feed, Grain, OnRemoval, OutsideLayout, refuse_overlaps, require_readable
from tests.toys.feeds import CUSTOMERS, FEEDS, ORDERS, PRICES


def test_order_file_belongs_to_its_hourly_partition() -> None:
    key = "orders/dt=2026-10-01/hour=07/a b+ü.csv"
    assert ORDERS.partition_of(key) == "2026-10-01-07:00"
    assert key.startswith(ORDERS.prefix_of("2026-10-01-07:00"))


def test_price_file_belongs_to_its_daily_partition() -> None:
    assert PRICES.partition_of("prices/dt=2026-10-01/p.csv") == "2026-10-01"
    assert PRICES.prefix_of("2026-10-01") == "prices/dt=2026-10-01/"


def test_customers_file_has_no_partition() -> None:
    assert CUSTOMERS.partition_of("customers/latest.csv") is None


@pytest.mark.parametrize(
    "key",
    [
        "orders/a.csv",
        "orders/dt=2026-13-01/hour=07/a.csv",
        "orders/dt=2026-10-01/hour=24/a.csv",
        "orders/dt=2026-10-01/hour=07/deeper/a.csv",
        "prices/dt=2026-10-01/a.csv",
        "customers/latest.csv",
    ],
)
def test_key_outside_the_layout_is_refused(key: str) -> None:
    with pytest.raises(OutsideLayout, match="orders"):
        ORDERS.partition_of(key)


@pytest.mark.parametrize("suffixes", [("*.csv",), (".csv", "2026/*")])
def test_pattern_in_place_of_an_ending_is_refused(suffixes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"feed notes: expected suffixes as endings of names such as '.csv', found '"):
        Feed("notes", "notes/", Grain.DAY, {"n": "int"}, suffixes=suffixes)


@pytest.mark.parametrize("ending", [".tsv", ".txt", ".ndjson"])
def test_unknown_ending_is_refused_with_the_setting_that_names_its_format(ending: str) -> None:
    feed = Feed("notes", "notes/", Grain.DAY, {"n": "int"}, suffixes=(ending,))
    with pytest.raises(ValueError, match=rf"end in '\{ending}'; let the feed say format=Csv\(...\), Json\(...\) or "):
        require_readable(feed)


@pytest.mark.parametrize("name", ["a.csv.tmp", "a.CSV.TMP", "a.csv.PART", "a.CSV._COPYING_", "A.CSV.Filepart"])
def test_unfinished_upload_is_not_meant_as_data_whatever_its_case(name: str) -> None:
    assert not ORDERS.is_meant_as_data(f"orders/dt=2026-10-01/hour=07/{name}")


@pytest.mark.parametrize("grain", [Grain.HOUR, Grain.DAY])
def test_partitioned_feed_prefix_without_trailing_slash_is_refused(grain: Grain) -> None:
    with pytest.raises(ValueError, match="feed notes: expected prefix to end in '/', found 'notes'"):
        Feed("notes", "notes", grain, {})


@pytest.mark.parametrize("prefix", ["notes//", "/notes/", "notes//new/"])
def test_feed_prefix_with_an_empty_folder_name_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="feed notes: Spark finds nothing below an empty folder name"):
        Feed("notes", prefix, Grain.DAY, {})


@pytest.mark.parametrize("name", ["unit.price", "a`b"])
def test_column_name_with_a_dot_or_backtick_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"feed notes: the column name {name} contains '.' or '`'"):
        Feed("notes", "notes/", Grain.DAY, {name: "string"})


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("grain", "fortnight", "expected grain as one of quarter_hour, hour, day"),
        ("removals", "never", "expected removals as one of follow, keep"),
        ("columns", [("a", "bigint")], "expected columns as a mapping"),
        ("rules", ["a > 1"], "expected rules as a mapping"),
        ("quarantine_share", "1%", "expected quarantine_share as a number"),
        ("follow_for", 90, "expected follow_for as a timedelta"),
        ("multiline", "no", "expected multiline as a bool"),
        ("exact", "no", "expected exact as a bool"),
    ],
)
def test_feed_setting_of_a_wrong_type_is_refused(setting: str, value: object, said: str) -> None:
    good = {"name": "x", "prefix": "x/", "grain": Grain.DAY, "columns": {"a": "bigint"}}
    with pytest.raises(ValueError, match=f"feed x: {said}.*, found {re.escape(repr(value))}"):
        Feed(**good | {setting: value})  # type: ignore[arg-type]


def test_feed_setting_may_be_given_as_text() -> None:
    feed = Feed("x", "x/", "day", {"a": "bigint"}, removals="keep")  # type: ignore[arg-type]
    assert feed.grain is Grain.DAY and feed.removals is OnRemoval.KEEP


def test_folder_prefix_is_refused_for_a_feed_of_one_object() -> None:
    with pytest.raises(ValueError, match="feed notes: expected prefix to be the key of its one object, found 'notes/'"):
        Feed("notes", "notes/", Grain.NONE, {})


@pytest.mark.parametrize("inner", ["orders/", "orders/returns/"])
def test_feeds_with_overlapping_prefixes_are_refused(inner: str) -> None:
    other = Feed("returns", inner, Grain.HOUR, {})
    between = Feed("older", "orders-2025/", Grain.HOUR, {})
    with pytest.raises(ValueError, match=r"(orders and returns|returns and orders): "):
        refuse_overlaps([other, between, ORDERS])
    refuse_overlaps([between, *FEEDS])
