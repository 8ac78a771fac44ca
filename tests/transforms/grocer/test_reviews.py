"""marts/executive_rollup and marts/weekly_review."""

from datetime import date
from decimal import Decimal

from pyspark.sql import SparkSession

from pipelines.schemas.marts import EXECUTIVE_ROLLUP, MARGIN_HOURLY, WEEKLY_REVIEW
from pipelines.transforms.reviews import executive_rollup, weekly_review
from tests.transforms.conftest import MakeFrame, frames_of
from tests.transforms.grocer.expect import assert_declared, at, rows_of

FRIDAY, SATURDAY = date(2026, 11, 20), date(2026, 11, 21)
WEEK, WEEK_BEFORE = date(2026, 11, 16), date(2026, 11, 9)


def margins(spark: SparkSession) -> MakeFrame:
    return frames_of(spark, MARGIN_HOURLY, {"product_id": 1})


def test_executive_rollup_sums_orders_and_known_margins_of_a_day(spark: SparkSession, orders: MakeFrame) -> None:
    result = executive_rollup(
        orders(
            {"order_id": 1, "store_id": 1, "revenue_usd": Decimal("2")},
            {"order_id": 1, "line_number": 2, "store_id": 1, "hour": at(8), "revenue_usd": Decimal("1.5")},
            {"order_id": 2, "store_id": 2, "revenue_usd": Decimal("3")},
            {"order_id": 3, "hour": at(0, day=21), "revenue_usd": Decimal("-1")},
        ),
        margins(spark)(
            {"hour": at(7), "margin_usd": Decimal("0.5001")},
            {"hour": at(8), "margin_usd": Decimal("1")},
            {"hour": at(8), "product_id": 2, "margin_usd": None},
        ),
    )
    assert_declared(result, EXECUTIVE_ROLLUP)
    assert rows_of(result) == [
        (FRIDAY, 2, Decimal("6.5000"), Decimal("1.5001"), 1),
        (SATURDAY, 1, Decimal("-1.0000"), None, 1),
    ]


def test_smaller_store_id_is_the_top_store_on_equal_revenue(spark: SparkSession, orders: MakeFrame) -> None:
    no_margins = margins(spark)({}).limit(0)
    result = executive_rollup(orders({"store_id": 9}, {"store_id": 2}, {"store_id": 30}), no_margins)
    assert [row[-1] for row in rows_of(result)] == [2]


def test_weekly_review_compares_with_the_previous_week_but_excludes_it(orders: MakeFrame) -> None:
    result = weekly_review(
        orders(
            {"order_id": 1, "hour": at(7, day=9), "revenue_usd": Decimal("3")},
            {"order_id": 2, "hour": at(23, day=15), "store_id": 2, "revenue_usd": Decimal("-1")},
            {"order_id": 3, "hour": at(0, day=16), "revenue_usd": Decimal("1")},
            {"order_id": 4, "hour": at(23, day=22), "revenue_usd": Decimal("1")},
            {"order_id": 5, "hour": at(7, day=17), "store_id": 2, "revenue_usd": Decimal("1")},
            {"order_id": 6, "hour": at(7, day=17), "store_id": 3, "revenue_usd": None},
        ),
        weeks=[WEEK],
    )
    assert_declared(result, WEEKLY_REVIEW)
    assert rows_of(result) == [
        (WEEK, 1, 2, Decimal("2.0000"), Decimal("-0.3333")),
        (WEEK, 2, 1, Decimal("1.0000"), None),
        (WEEK, 3, 1, None, None),
    ]


def test_weekly_review_of_two_weeks_equals_each_week_alone(orders: MakeFrame) -> None:
    sold = orders(
        {"order_id": 1, "hour": at(7, day=4), "revenue_usd": Decimal("1")},
        {"order_id": 2, "hour": at(7, day=11), "revenue_usd": Decimal("2")},
        {"order_id": 3, "hour": at(7, day=18), "revenue_usd": Decimal("1")},
    )
    both = rows_of(weekly_review(sold, weeks=[WEEK, WEEK_BEFORE]))
    assert both == [
        (WEEK, 1, 1, Decimal("1.0000"), Decimal("-0.5000")),
        (WEEK_BEFORE, 1, 1, Decimal("2.0000"), Decimal("1.0000")),
    ]
    assert both == rows_of(weekly_review(sold, weeks=[WEEK])) + rows_of(weekly_review(sold, weeks=[WEEK_BEFORE]))
