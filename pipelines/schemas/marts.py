"""The mart tables."""

from pipelines.lakehouse.tables import Table

SALES_HOURLY = Table(
    name="marts.sales_hourly",
    columns={
        "hour": "timestamp",
        "store_id": "bigint",
        "orders": "bigint",
        "lines": "bigint",
        "quantity": "bigint",
        "revenue_usd": "decimal(18,4)",
    },
    partitioned_by="hour",
    row_key=("hour", "store_id"),
    comment="A store's hour",
)

SALES_DAILY = Table(
    name="marts.sales_daily",
    columns={"day": "date", "product_id": "bigint", "quantity": "bigint", "revenue_usd": "decimal(18,4)"},
    partitioned_by="day",
    row_key=("day", "product_id"),
    comment="A product's day",
)

ORDER_STATS = Table(
    name="marts.order_stats",
    columns={
        "day": "date",
        "segment": "string",
        "orders": "bigint",
        "lines": "bigint",
        "buyers": "bigint",
        "revenue_usd": "decimal(18,4)",
    },
    partitioned_by="day",
    row_key=("day", "segment"),
    comment="A customer segment's day",
)

MARGIN_HOURLY = Table(
    name="marts.margin_hourly",
    columns={
        "hour": "timestamp",
        "product_id": "bigint",
        "revenue_usd": "decimal(18,4)",
        "cost_usd": "decimal(18,4)",
        "margin_usd": "decimal(18,4)",
    },
    partitioned_by="hour",
    row_key=("hour", "product_id"),
    comment="A product's hour",
)
