"""The landing columns of each feed, and the core tables that are loaded from them."""

from pipelines.tidemark import LINEAGE, Table

ORDERS_LANDING = {
    "order_id": "bigint",
    "line_number": "bigint",
    "customer_id": "bigint",
    "product_id": "bigint",
    "store_id": "bigint",
    "quantity": "bigint",
    "unit_price_usd": "decimal(18,4)",
    # Not money: a share. Eight places, so that a third survives as far as the revenue's fourth place.
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
    comment="A product's purchase cost on a day",
)
