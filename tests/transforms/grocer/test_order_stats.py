"""marts/order_stats."""

from datetime import date
from decimal import Decimal

from pipelines.schemas.marts import ORDER_STATS
from pipelines.transforms.order_stats import order_stats
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, at, rows_of


def test_order_stats_count_distinct_orders_and_buyers_per_segment(orders: MakeFrame, customers: MakeFrame) -> None:
    result = order_stats(
        orders(
            {"order_id": 1, "line_number": 1, "customer_id": 1, "revenue_usd": Decimal("1.5")},
            {"order_id": 1, "line_number": 2, "customer_id": 1, "revenue_usd": Decimal("2")},
            {"order_id": 2, "customer_id": 2, "hour": at(23), "revenue_usd": Decimal("-0.5")},
            {"order_id": 3, "customer_id": 1, "hour": at(0, day=21), "revenue_usd": None},
        ),
        customers({"customer_id": 1, "segment": "office"}, {"customer_id": 2, "segment": "office"}),
    )
    assert_declared(result, ORDER_STATS)
    assert rows_of(result) == [
        (date(2026, 11, 20), "office", 2, 3, 2, Decimal("3.0000")),
        (date(2026, 11, 21), "office", 1, 1, 1, None),
    ]


def test_missing_customer_or_segment_counts_as_unknown(orders: MakeFrame, customers: MakeFrame) -> None:
    result = order_stats(
        orders({"order_id": 1, "customer_id": 1}, {"order_id": 2, "customer_id": 999}),
        customers({"customer_id": 1, "segment": None}, {"customer_id": 3, "segment": "office"}),
    )
    assert rows_of(result) == [(date(2026, 11, 20), "unknown", 2, 2, 2, Decimal("2.0000"))]
