"""The mart tables."""

from dagster_tidemark import Table

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
    column_comments={
        "hour": "The hour, UTC: the partition",
        "store_id": "The store",
        "orders": "Number of orders with a line in the hour",
        "lines": "Number of order lines",
        "quantity": "Units sold",
        "revenue_usd": "Revenue after discounts, USD",
    },
)

SALES_DAILY = Table(
    name="marts.sales_daily",
    columns={"day": "date", "product_id": "bigint", "quantity": "bigint", "revenue_usd": "decimal(18,4)"},
    partitioned_by="day",
    row_key=("day", "product_id"),
    comment="A product's day",
    column_comments={
        "day": "The day, UTC: the partition",
        "product_id": "The product",
        "quantity": "Units sold",
        "revenue_usd": "Revenue after discounts, USD",
    },
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
    column_comments={
        "day": "The day, UTC: the partition",
        "segment": "The customers' segment",
        "orders": "Number of orders",
        "lines": "Number of order lines",
        "buyers": "Number of customers who bought",
        "revenue_usd": "Revenue after discounts, USD",
    },
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
    column_comments={
        "hour": "The hour, UTC: the partition",
        "product_id": "The product",
        "revenue_usd": "Revenue after discounts, USD",
        "cost_usd": "Purchase cost of the units sold, USD",
        "margin_usd": "Revenue less cost, USD",
    },
)

EXECUTIVE_ROLLUP = Table(
    name="marts.executive_rollup",
    columns={
        "day": "date",
        "orders": "bigint",
        "revenue_usd": "decimal(18,4)",
        "margin_usd": "decimal(18,4)",
        "top_store_id": "bigint",
    },
    partitioned_by="day",
    row_key=("day",),
    comment="A day",
    column_comments={
        "day": "The day, UTC: the partition",
        "orders": "Number of orders",
        "revenue_usd": "Revenue after discounts, USD",
        "margin_usd": "Revenue less cost, USD",
        "top_store_id": "The store with the highest revenue",
    },
)

WEEKLY_REVIEW = Table(
    name="marts.weekly_review",
    columns={
        "week": "date",
        "store_id": "bigint",
        "orders": "bigint",
        "revenue_usd": "decimal(18,4)",
        # A share, not money: to the week before.
        "revenue_change": "decimal(18,4)",
    },
    partitioned_by="week",
    row_key=("week", "store_id"),
    comment="A store's week",
    column_comments={
        "week": "The Monday it begins on: the partition",
        "store_id": "The store",
        "orders": "Number of orders",
        "revenue_usd": "Revenue after discounts, USD",
        "revenue_change": "Change from the week before, as a share of its revenue",
    },
)

OFFER_REACH = Table(
    name="marts.offer_reach",
    columns={"day": "date", "segment": "string", "customers": "bigint", "products": "bigint"},
    partitioned_by="day",
    row_key=("day", "segment"),
    comment="A customer segment's day of offers",
    column_comments={
        "day": "The day, UTC: the partition",
        "segment": "The customers' segment",
        "customers": "Number of customers in the segment",
        "products": "Number of products with a price that day",
    },
)

HOT_SPOTS = Table(
    name="marts.hot_spots",
    columns={
        "hour": "timestamp",
        "device_id": "string",
        "store_id": "bigint",
        "seconds_above_limit": "double",
        "max_temperature_c": "double",
    },
    partitioned_by="hour",
    row_key=("hour", "device_id"),
    comment="A sensor's hour",
    column_comments={
        "hour": "The hour, UTC: the partition",
        "device_id": "The sensor",
        "store_id": "The store of the last reading that is valid in the hour",
        "seconds_above_limit": "Seconds of the hour above 8.0 degrees Celsius, as far as readings cover it",
        "max_temperature_c": "The highest reading that is valid in the hour, degrees Celsius",
    },
)
