"""marts/sales_hourly and marts/sales_daily."""

from datetime import date
from decimal import Decimal

from pipelines.schemas.marts import SALES_DAILY, SALES_HOURLY
from pipelines.transforms.sales import sales_daily, sales_hourly
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, at, rows_of


def test_sales_hourly_counts_an_order_of_two_lines_once(orders: MakeFrame) -> None:
    result = sales_hourly(
        orders(
            {"order_id": 1, "line_number": 1, "quantity": 2, "revenue_usd": Decimal("0.0001")},
            {"order_id": 1, "line_number": 2, "quantity": 3, "revenue_usd": Decimal("10.5")},
            {"order_id": 2, "quantity": -1, "revenue_usd": Decimal("-4")},
            {"order_id": 3, "hour": at(8), "store_id": 2, "revenue_usd": None},
        )
    )
    assert_declared(result, SALES_HOURLY)
    assert rows_of(result) == [
        (at(7), 1, 2, 3, 4, Decimal("6.5001")),
        (at(8), 2, 1, 1, 1, None),
    ]


def test_sales_daily_splits_days_at_midnight_utc(orders: MakeFrame) -> None:
    result = sales_daily(
        orders(
            {"hour": at(23), "quantity": 2, "revenue_usd": Decimal("1.1111")},
            {"hour": at(0), "quantity": 1, "revenue_usd": Decimal("2.2222")},
            {"hour": at(0, day=21), "quantity": 5, "revenue_usd": Decimal("3")},
            {"hour": at(1), "product_id": 2, "quantity": None, "revenue_usd": None},
        )
    )
    assert_declared(result, SALES_DAILY)
    assert rows_of(result) == [
        (date(2026, 11, 20), 1, 3, Decimal("3.3333")),
        (date(2026, 11, 20), 2, None, None),
        (date(2026, 11, 21), 1, 5, Decimal("3.0000")),
    ]


def test_sales_are_empty_without_orders(orders: MakeFrame) -> None:
    nothing = orders({}).limit(0)
    assert rows_of(sales_hourly(nothing)) == []
    assert rows_of(sales_daily(nothing)) == []
