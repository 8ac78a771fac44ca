"""marts/offer_reach."""

from datetime import date

from pipelines.schemas.marts import OFFER_REACH
from pipelines.transforms.offers import offer_reach
from tests.transforms.conftest import MakeFrame
from tests.transforms.grocer.expect import assert_declared, rows_of

MONDAY, TUESDAY = date(2026, 11, 23), date(2026, 11, 24)


def test_offer_reach_combines_each_priced_day_with_each_segment(prices: MakeFrame, customers: MakeFrame) -> None:
    result = offer_reach(
        prices({"day": MONDAY}, {"day": MONDAY, "product_id": 2}, {"day": TUESDAY}),
        customers({"customer_id": 1}, {"customer_id": 2}, {"customer_id": 3, "segment": None}),
    )
    assert_declared(result, OFFER_REACH)
    assert rows_of(result) == [
        (MONDAY, "household", 2, 2),
        (MONDAY, "unknown", 1, 2),
        (TUESDAY, "household", 2, 1),
        (TUESDAY, "unknown", 1, 1),
    ]


def test_offer_reach_is_empty_without_customers(prices: MakeFrame, customers: MakeFrame) -> None:
    assert rows_of(offer_reach(prices({"day": MONDAY}), customers({}).limit(0))) == []
