"""marts/margin_hourly."""

from datetime import date
from decimal import Decimal

from pipelines.schemas.marts import MARGIN_HOURLY
from pipelines.transforms.margin import margin_hourly
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, at, rows_of

MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)


def test_margin_uses_the_product_cost_of_the_day_for_all_units(orders: MakeFrame, prices: MakeFrame) -> None:
    result = margin_hourly(
        orders(
            {"hour": at(23, day=23), "quantity": 2, "revenue_usd": Decimal("3")},
            {"hour": at(23, day=23), "quantity": 1, "revenue_usd": Decimal("1.0001")},
            {"hour": at(0, day=24), "quantity": -3, "revenue_usd": Decimal("-2")},
        ),
        prices({"day": MONDAY, "cost_usd": Decimal("0.3333")}, {"day": TUESDAY, "cost_usd": Decimal("0.5001")}),
    )
    assert_declared(result, MARGIN_HOURLY)
    assert rows_of(result) == [
        (at(23, day=23), 1, Decimal("4.0001"), Decimal("0.9999"), Decimal("3.0002")),
        (at(0, day=24), 1, Decimal("-2.0000"), Decimal("-1.5003"), Decimal("-0.4997")),
    ]


def test_product_without_a_price_has_revenue_but_no_margin(orders: MakeFrame, prices: MakeFrame) -> None:
    result = margin_hourly(
        orders({"hour": at(7, day=23), "product_id": 1}, {"hour": at(7, day=23), "product_id": 2}),
        prices({"day": MONDAY, "product_id": 2, "cost_usd": None}, {"day": TUESDAY, "product_id": 1}),
    )
    assert rows_of(result) == [
        (at(7, day=23), 1, Decimal("1.0000"), None, None),
        (at(7, day=23), 2, Decimal("1.0000"), None, None),
    ]
