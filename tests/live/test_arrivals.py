"""What lands later reaches its tables without a click: a new file, and a file that is written again."""

import csv
import io
import time
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from tests.live.conftest import Judge, Loaded
from tests.live.platform import Platform
from tests.live.ui import values
from tests.live.waiting import eventually

CUSTOMERS = "customers/latest.csv"
OF_ORDERS = ("core.orders", "marts.sales_hourly", "marts.sales_daily", "marts.order_stats", "marts.margin_hourly")


def order_file(day: date, hour: int, *, order_id: int) -> str:
    """Three lines of one order, with amounts that have to be rounded half up."""
    head = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
    lines = [(1, 1, 3, "1.3333", "0.15"), (2, 2, 1, "0.0001", "0.5"), (3, 3, 7, "19.99", "0")]
    at = f"{day}T{hour:02}:30:00Z"
    return head + "".join(f"{order_id},{n},1,{product},1,{q},{usd},{off},{at}\n" for n, product, q, usd, off in lines)


def test_uploaded_file_is_loaded_into_core_and_marts(loaded: Loaded, judge: Judge, note: Callable[[str], None]) -> None:
    platform, day = loaded.platform, loaded.days[2]
    before = {name: platform.table(name).num_rows for name in ("core.orders", "core.customers", "core.prices")}
    key = f"orders/dt={day}/hour=03/by hand+1.csv"
    platform.put(key, order_file(day, 3, order_id=990_000_001))
    for name, seconds in judge(*OF_ORDERS).items():
        note(f"put -> {name}: {seconds:.1f} s")
    judge("core.customers", "core.prices")
    assert platform.table("core.orders").num_rows == before["core.orders"] + 3
    assert platform.table("core.prices").num_rows == before["core.prices"]
    arrived_at = platform.s3.head_object(Bucket="landing", Key=key)["LastModified"].timestamp()
    for name in OF_ORDERS:
        newest = platform.ui.materializations(name.replace(".", "/"))[0]
        assert values(newest)["incorporates arrivals through"] == arrived_at, newest


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("", id="beside the days"),
        pytest.param("dt={}/hour=05/too deep/", id="in an hour without files", marks=pytest.mark.proof),
    ],
)
def test_misplaced_file_is_in_the_quarantine_until_it_is_deleted(
    loaded: Loaded, judge: Judge, note: Callable[[str], None], place: str
) -> None:
    platform = loaded.platform
    key = f"orders/{place.format(loaded.days[2] + timedelta(days=3))}lost on the way.csv"

    def entered() -> list[str]:
        entries = platform.table("ops.quarantine").to_pylist()
        return [entry["reason"] for entry in entries if entry["source_file"] == key]

    def becomes(reasons: list[str]) -> None:
        assert entered() == reasons

    begun = time.monotonic()
    platform.put(key, order_file(loaded.days[2], 10, order_id=990_000_002))
    eventually(lambda: becomes(["outside_layout"]), seconds=60)
    note(f"put -> ops.quarantine, of {key}: {time.monotonic() - begun:.1f} s")
    platform.s3.delete_object(Bucket="landing", Key=key)
    eventually(lambda: becomes([]), seconds=60)
    judge()


@pytest.mark.proof  # a minute and a half; how far a change ripples is tested in the simulator too
def test_new_customers_file_rebuilds_only_the_last_seven_days(
    loaded: Loaded, judge: Judge, note: Callable[[str], None]
) -> None:
    platform = loaded.platform
    original = platform.get(CUSTOMERS)
    before, built_before = stats_by_day(platform), built_by_day(platform)
    begun = time.monotonic()
    platform.put(CUSTOMERS, with_segments_moved(original))
    reached = {day for day in loaded.days if (arrived_on(platform) - day).days < 7}
    assert 0 < len(reached) < 3, "one of the three days is to be older than seven days, another younger"

    def recomputed() -> None:
        now = stats_by_day(platform)
        assert {day for day in loaded.days if now[day] != before[day]} == reached

    eventually(recomputed, seconds=60)
    note(f"put -> marts.order_stats after new customers: {time.monotonic() - begun:.1f} s")
    judge("core.customers", "core.orders", "marts.sales_daily")
    platform.quiet()
    built = built_by_day(platform)
    assert {day for day in loaded.days if built[day] != built_before[day]} == reached
    # Back as it was, so that one oracle is right for all days again.
    platform.put(CUSTOMERS, original)
    judge()
    assert stats_by_day(platform) == before


def with_segments_moved(customers: str) -> str:
    """The same customers, each in the segment of the one before."""
    rows = list(csv.DictReader(io.StringIO(customers)))
    segments = [row["segment"] for row in rows]
    assert len(set(segments)) > 1
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {**row, "segment": segment} for row, segment in zip(rows, segments[-1:] + segments[:-1], strict=True)
    )
    return out.getvalue()


def arrived_on(platform: Platform) -> date:
    """The UTC day on which the customers file was last written."""
    modified: Any = platform.s3.head_object(Bucket="landing", Key=CUSTOMERS)["LastModified"]
    found: date = modified.date()
    return found


def stats_by_day(platform: Platform) -> dict[date, list[tuple[Any, ...]]]:
    """The rows of order_stats, by day."""
    days: dict[date, list[tuple[Any, ...]]] = {}
    for row in platform.table("marts.order_stats").to_pylist():
        days.setdefault(row["day"], []).append(tuple(row.values()))
    return {day: sorted(rows) for day, rows in days.items()}


def built_by_day(platform: Platform) -> dict[date, str]:
    """When each day of order_stats was last built."""
    newest_first = platform.ui.materializations("marts/order_stats")
    return {date.fromisoformat(event["partition"]): event["timestamp"] for event in reversed(newest_first)}
