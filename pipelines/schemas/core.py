"""The landing columns of each feed, the core tables that are loaded from them, and the table of sensor readings."""

from dagster_tidemark import DELIVERY, LINEAGE, ByKey, Table

ORDERS_LANDING = {
    "order_id": "bigint",
    "line_number": "bigint",
    "customer_id": "bigint",
    "product_id": "bigint",
    "store_id": "bigint",
    "quantity": "bigint",
    "unit_price_usd": "decimal(18,4)",
    # A share, not money. Eight places, so that a discount of a third is exact to the revenue's fourth place.
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
    column_comments={
        "order_id": "The order",
        "line_number": "Which line of the order",
        "customer_id": "Who bought; see core/customers",
        "product_id": "What was bought; see core/prices",
        "store_id": "Where it was sold",
        "quantity": "Units; negative for a return",
        "unit_price_usd": "Price of a unit before the discount, USD",
        "discount": "Share of the price that was given away, 0 to 1",
        "ordered_at": "When it was ordered, UTC",
        "hour": "The hour it was ordered in, UTC: the partition",
        "revenue_usd": "quantity x unit_price_usd x (1 - discount), rounded half up, USD",
    },
)

DELIVERIES = Table(
    name="core.deliveries",
    columns=ORDERS_LANDING | {"revenue_usd": "decimal(18,4)"} | DELIVERY | LINEAGE,
    partitioned_by=ByKey("delivery_id"),
    row_key=("delivery_id", "order_id", "line_number"),
    comment="An order line of a partner's delivery",
    column_comments={c: said for c, said in ORDERS.column_comments.items() if c != "hour"},
)

CUSTOMERS = Table(
    name="core.customers",
    columns=CUSTOMERS_LANDING | LINEAGE,
    row_key=("customer_id",),
    comment="A customer",
    column_comments={
        "customer_id": "The customer",
        "name": "As written on the account",
        "email": "As written on the account",
        "segment": "The group that marketing puts the customer into",
        "nation": "Where the customer lives",
        "signed_up_at": "When the account was made, UTC",
    },
)

PRICES = Table(
    name="core.prices",
    columns={"day": "date"} | PRICES_LANDING | LINEAGE,
    partitioned_by="day",
    row_key=("day", "product_id"),
    comment="A product's purchase cost on a day",
    column_comments={
        "day": "The day that the price is of: the partition",
        "product_id": "The product",
        "cost_usd": "What a unit costs the shop, USD",
    },
)

READINGS = Table(
    name="core.readings",
    columns={
        "hour": "timestamp",
        "device_id": "string",
        "store_id": "bigint",
        "read_at": "timestamp",
        "temperature_c": "double",
        "door_open": "boolean",
        "sent_at": "timestamp",
    },
    partitioned_by="hour",
    row_key=("hour", "device_id", "read_at"),
    comment="A reading of a cold-chain sensor",
    column_comments={
        "hour": "The hour it was read in, UTC: the partition",
        "device_id": "The sensor",
        "store_id": "The store that the sensor was in",
        "read_at": "When it was read, by the sensor's clock, UTC",
        "temperature_c": "Degrees Celsius",
        "door_open": "Whether the door stood open; null where the sensor does not say",
        "sent_at": "When the broker took the message that says so, UTC: of several about one reading the last",
    },
)
