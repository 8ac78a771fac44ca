"""Purchase prices: one folder per day."""

from datetime import timedelta

from dagster_tidemark import Feed, Grain, OnRemoval

from pipelines.schemas.core import PRICES_LANDING

PRICES = Feed(
    name="prices",
    prefix="prices/",
    grain=Grain.DAY,
    columns=PRICES_LANDING,
    suffixes=(".csv",),
    required=("product_id", "cost_usd"),
    quarantine_share=0.01,
    removals=OnRemoval.FOLLOW,
    follow_for=timedelta(days=90),
)
