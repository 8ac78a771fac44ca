"""ml/demand_features."""

from datetime import date
from decimal import Decimal

from pipelines.schemas.ml import DEMAND_FEATURES
from pipelines.transforms.demand import demand_features
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, at, rows_of

FRIDAY, SATURDAY = date(2026, 11, 20), date(2026, 11, 21)
LAST_SATURDAY, SATURDAY_BEFORE = at(9, day=14), at(9, day=7)


def test_demand_features_of_a_day_include_weekday_and_means_of_order_days(orders: MakeFrame) -> None:
    result = demand_features(
        orders(
            {"hour": at(7), "quantity": 2, "unit_price_usd": Decimal("3"), "ordered_at": at(7, 10)},
            {"hour": at(8), "order_id": 2, "quantity": 4, "unit_price_usd": Decimal("2.5"), "ordered_at": at(8, 10)},
            {"hour": LAST_SATURDAY, "order_id": 3, "quantity": 5, "ordered_at": LAST_SATURDAY},
            {"hour": SATURDAY_BEFORE, "order_id": 4, "quantity": 10, "ordered_at": SATURDAY_BEFORE},
            {"hour": at(9, day=6), "order_id": 5, "quantity": 1_000},
            # A return is no demand, and a missing quantity none either.
            {"order_id": 6, "quantity": -2, "ordered_at": at(7)},
            {"order_id": 7, "quantity": None, "ordered_at": at(7)},
        ),
        days=[FRIDAY],
    )
    assert_declared(result, DEMAND_FEATURES)
    assert rows_of(result) == [(FRIDAY, 1, 1, 6, 5, 10, 11 / 2, 21 / 3, Decimal("2.5000"))]


def test_demand_is_zero_without_product_orders_and_null_without_any_orders(orders: MakeFrame) -> None:
    result = demand_features(
        orders(
            {"hour": at(7), "product_id": 2, "quantity": 1},
            {"hour": at(7, day=19), "product_id": 1, "quantity": 3, "unit_price_usd": None},
        ),
        days=[FRIDAY, SATURDAY],
    )
    assert rows_of(result) == [
        (FRIDAY, 1, 1, 0, None, None, 3 / 2, 3 / 2, None),
        (FRIDAY, 1, 2, 1, None, None, 1 / 2, 1 / 2, Decimal("1.0000")),
        (SATURDAY, 1, 1, None, None, None, 3 / 2, 3 / 2, None),
        (SATURDAY, 1, 2, None, None, None, 1 / 2, 1 / 2, Decimal("1.0000")),
    ]
