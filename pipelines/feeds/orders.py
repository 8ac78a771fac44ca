"""Order lines in every format: one folder per hour."""

from datetime import timedelta

from dagster_tidemark import Feed, Grain, OnRemoval

from pipelines.schemas.core import ORDERS_LANDING

ORDERS = Feed(
    name="orders",
    prefix="orders/",
    grain=Grain.HOUR,
    columns=ORDERS_LANDING,
    required=tuple(ORDERS_LANDING),
    rules={
        "wrong_hour": "date_trunc('HOUR', ordered_at) = hour",
        "discount_out_of_range": "discount BETWEEN 0 AND 1",
        "quantity_out_of_range": "quantity BETWEEN -999999999 AND 999999999",
        "amount_out_of_range": "abs(quantity * unit_price_usd) < 100000000000000",
    },
    quarantine_share=0.01,
    removals=OnRemoval.FOLLOW,
    follow_for=timedelta(days=90),
)
