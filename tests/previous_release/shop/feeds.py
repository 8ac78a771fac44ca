"""What lands."""

from dagster_tidemark import Feed, Grain

SALES = Feed(
    name="sales",
    prefix="sales/",
    grain=Grain.HOUR,
    columns={"sale_id": "bigint", "amount_usd": "decimal(10,2)"},
    required=("sale_id", "amount_usd"),
    rules={"negative": "amount_usd >= 0"},
    quarantine_share=0.5,
)

FEEDS = (SALES,)
