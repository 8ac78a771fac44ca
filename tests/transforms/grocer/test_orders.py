"""core/orders: the hour of a line and its revenue, rounded once."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pipelines.schemas.core import ORDERS_LANDING
from pipelines.transforms.orders import order_lines
from tests.transforms.conftest import MakeFrame


@pytest.mark.parametrize(
    ("quantity", "unit_price_usd", "discount", "revenue_usd"),
    [
        (3, "2.5000", "0", "7.5000"),
        (1, "0.0001", "0.5", "0.0001"),  # 0.00005: half up
        (-1, "0.0001", "0.5", "-0.0001"),  # away from zero for a return as well
        (1, "0.0001", "0.50000001", "0.0000"),  # 0.000049999999; rounded to 6 places first it would go up
        (-1, "0.0001", "0.50000001", "0.0000"),
        (1, "0.0003", "0.83333333", "0.0001"),  # 0.000050000001
        (3, "1.1111", "0.00005", "3.3331"),  # 3.333133335: each unit rounded alone would give 3.3330
        (7, "0.9999", "0.33333333", "4.6662"),  # 4.666200023331
        (999_999_999, "99999.9999", "0.99999999", "999999.9980"),  # 999999.997999000001: all 38 digits are needed
        (-999_999_999, "99999.9999", "0.99999999", "-999999.9980"),
        (5, "3.0000", "1", "0.0000"),
    ],
)
def test_order_revenue_is_exact_and_rounded_half_up_once(
    orders: MakeFrame, quantity: int, unit_price_usd: str, discount: str, revenue_usd: str
) -> None:
    row = {"quantity": quantity, "unit_price_usd": Decimal(unit_price_usd), "discount": Decimal(discount)}
    result = order_lines(orders(row).select(*ORDERS_LANDING)).collect()
    assert [row["revenue_usd"] for row in result] == [Decimal(revenue_usd)]


def test_order_revenue_is_null_if_a_factor_is_missing_or_it_overflows(orders: MakeFrame) -> None:
    rows = orders(
        {"quantity": None},
        {"unit_price_usd": None},
        {"discount": None},
        {"quantity": 1_000_000_000},
        {"quantity": 999_999_999, "unit_price_usd": Decimal("99999999999999")},
    )
    assert [row["revenue_usd"] for row in order_lines(rows).collect()] == [None] * 5


def test_order_hour_is_in_utc_and_other_columns_are_unchanged(orders: MakeFrame) -> None:
    rows = orders(
        {"ordered_at": datetime(2026, 11, 20, 23, 59, 59, 999_999, tzinfo=UTC), "source_file": "a b+ö.csv"},
        {"ordered_at": datetime(2026, 11, 21, 0, 0, tzinfo=UTC)},
        {"ordered_at": None},
    ).drop("hour", "revenue_usd")
    result = order_lines(rows)
    assert result.columns == [*rows.columns, "hour", "revenue_usd"]
    assert dict(result.dtypes)["revenue_usd"] == "decimal(18,4)"
    assert [(row["hour"], row["source_file"]) for row in result.collect()] == [
        (datetime(2026, 11, 20, 23), "a b+ö.csv"),
        (datetime(2026, 11, 21, 0), None),
        (None, None),
    ]
