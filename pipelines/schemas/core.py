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
        "line_number": "Number of the line in the order",
        "customer_id": "The customer; see core/customers",
        "product_id": "The product; see core/prices",
        "store_id": "The store",
        "quantity": "Units; negative for a return",
        "unit_price_usd": "Price of a unit before the discount, USD",
        "discount": "Discount as a share of the price, 0 to 1",
        "ordered_at": "When it was ordered, UTC",
        "hour": "The hour of the order, UTC: the partition",
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
        "segment": "The marketing segment of the customer",
        "nation": "The country of the customer",
        "signed_up_at": "When the account was created, UTC",
    },
)

PRICES = Table(
    name="core.prices",
    columns={"day": "date"} | PRICES_LANDING | LINEAGE,
    partitioned_by="day",
    row_key=("day", "product_id"),
    comment="A product's purchase cost on a day",
    column_comments={
        "day": "The day of the price: the partition",
        "product_id": "The product",
        "cost_usd": "Purchase cost of a unit, USD",
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
        "hour": "The hour of the reading, UTC: the partition",
        "device_id": "The sensor",
        "store_id": "The store of the sensor",
        "read_at": "Time of the reading by the sensor's clock, UTC",
        "temperature_c": "Degrees Celsius",
        "door_open": "True if the door was open; null if the sensor does not report it",
        "sent_at": "When the broker received the message, UTC; the last message if the reading is repeated",
    },
)
