"""The accounts file, which the shop overwrites."""

from dagster_tidemark import Feed, Grain, OnRemoval

from pipelines.schemas.core import CUSTOMERS_LANDING

CUSTOMERS = Feed(
    name="customers",
    prefix="customers/latest.csv",
    grain=Grain.NONE,
    columns=CUSTOMERS_LANDING,
    suffixes=(".csv",),
    required=("customer_id",),
    quarantine_share=0.01,
    removals=OnRemoval.FOLLOW,
)
