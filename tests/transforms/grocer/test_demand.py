"""ml/demand_features."""

from datetime import date, datetime, timedelta
from decimal import Decimal

from pipelines.schemas.ml import DEMAND_FEATURES
from pipelines.transforms.demand import demand_features
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, at, rows_of

FRIDAY = date(2026, 11, 20)
LAST_SATURDAY, SATURDAY_BEFORE = at(9, day=14), at(9, day=7)


def test_a_day_knows_itself_the_weekday_to_come_and_the_means_of_the_days_that_had_orders(orders: MakeFrame) -> None:
    result = demand_features(
        orders(
            {"hour": at(7), "quantity": 2, "unit_price_usd": Decimal("3"), "ordered_at": at(7, 10)},
            {"hour": at(8), "order_id": 2, "quantity": 4, "unit_price_usd": Decimal("2.5"), "ordered_at": at(8, 10)},
            {"hour": LAST_SATURDAY, "order_id": 3, "quantity": 5, "ordered_at": LAST_SATURDAY},
            {"hour": SATURDAY_BEFORE, "order_id": 4, "quantity": 10, "ordered_at": SATURDAY_BEFORE},
            {"hour": at(9, day=6), "order_id": 5, "quantity": 1_000},
        ),
        days=[FRIDAY],
    )
    assert_declared(result, DEMAND_FEATURES)
    assert rows_of(result) == [(FRIDAY, 1, 1, 6, 5, 10, 11 / 2, 21 / 3, Decimal("2.5000"))]


def test_no_orders_of_a_product_are_zero_and_no_orders_at_all_are_not_known(orders: MakeFrame) -> None:
    result = demand_features(
        orders(
            {"hour": at(7), "product_id": 2, "quantity": 1},
            {"hour": at(7, day=19), "product_id": 1, "quantity": 3, "unit_price_usd": None},
        ),
        days=[FRIDAY],
    )
    assert rows_of(result) == [
        (FRIDAY, 1, 1, 0, None, None, 3 / 2, 3 / 2, None),
        (FRIDAY, 1, 2, 1, None, None, 1 / 2, 1 / 2, Decimal("1.0000")),
    ]


def test_a_day_without_orders_knows_what_was_before_it(orders: MakeFrame) -> None:
    result = demand_features(orders({"hour": at(7, day=19), "quantity": 3}), days=[FRIDAY])
    assert rows_of(result) == [(FRIDAY, 1, 1, None, None, None, 3.0, 3.0, Decimal("1.0000"))]


def test_a_return_is_no_demand_and_a_missing_quantity_none_either(orders: MakeFrame) -> None:
    result = demand_features(
        orders({"quantity": -2}, {"order_id": 2, "quantity": 5}, {"order_id": 3, "quantity": None}), days=[FRIDAY]
    )
    assert [row[3] for row in rows_of(result)] == [5]


def test_several_days_at_once_are_as_each_alone(orders: MakeFrame) -> None:
    days = [FRIDAY - timedelta(days=back) for back in range(15)]
    hours = [datetime(2026, 11, 20, 7) - timedelta(days=back, hours=back) for back in (0, 1, 3, 6, 7, 13, 14, 20)]
    sold = orders(
        *(
            {"hour": hour, "order_id": n, "product_id": n % 3, "store_id": n % 2, "quantity": n + 1}
            for n, hour in enumerate(hours)
        )
    )
    together = rows_of(demand_features(sold, days=days))
    assert together == sorted((row for day in days for row in rows_of(demand_features(sold, days=[day]))), key=repr)
    assert {row[0] for row in together} == set(days)
