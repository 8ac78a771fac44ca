"""The toy's landing columns and tables, and the one transform that makes rows of a file rows of a table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark import LINEAGE, Table

ORDERS_LANDING = {
    "order_id": "bigint",
    "line_number": "bigint",
    "customer_id": "bigint",
    "product_id": "bigint",
    "store_id": "bigint",
    "quantity": "bigint",
    "unit_price_usd": "decimal(18,4)",
    "discount": "decimal(18,8)",
    "ordered_at": "timestamp",
}
CUSTOMERS_LANDING = {
    "customer_id": "bigint",
    "name": "string",
    "email": "string",
    "segment": "string",
    "nation": "string",
    "signed_up_at": "timestamp",
}
PRICES_LANDING = {"product_id": "bigint", "cost_usd": "decimal(18,4)"}

ORDERS = Table(
    name="core.orders",
    columns=ORDERS_LANDING | {"hour": "timestamp", "revenue_usd": "decimal(18,4)"} | LINEAGE,
    partitioned_by="hour",
    row_key=("hour", "order_id", "line_number"),
    comment="An order line",
)
CUSTOMERS = Table(
    name="core.customers",
    columns=CUSTOMERS_LANDING | LINEAGE,
    row_key=("customer_id",),
    comment="A customer",
)
PRICES = Table(
    name="core.prices",
    columns={"day": "date"} | PRICES_LANDING | LINEAGE,
    partitioned_by="day",
    row_key=("day", "product_id"),
    comment="A product's price on a day",
)


def order_lines(rows: DataFrame) -> DataFrame:
    """`hour` and `revenue_usd` beside the landing columns: exact, rounded once, null where it fits no column."""
    quantity = F.col("quantity").try_cast("decimal(9,0)")
    share_paid = (F.lit(1) - F.col("discount")).try_cast("decimal(9,8)")
    revenue = F.round(quantity * F.col("unit_price_usd") * share_paid, 4).try_cast("decimal(18,4)")
    return rows.withColumns({"hour": F.date_trunc("hour", F.col("ordered_at")), "revenue_usd": revenue})
