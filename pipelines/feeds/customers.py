"""The accounts file, which the shop overwrites."""

from pipelines.schemas.core import CUSTOMERS_LANDING
from pipelines.tidemark import Feed, Grain, OnRemoval

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
