"""The tables of unchanged messages: readings of the cold chain's sensors, and requests for scores."""

from dagster_tidemark import MESSAGE, Table

READINGS = Table(
    name="raw.readings",
    columns={
        "hour": "timestamp",
        "device_id": "string",
        "store_id": "bigint",
        "read_at": "timestamp",
        "temperature_c": "double",
        "door_open": "boolean",
    }
    | MESSAGE,
    partitioned_by="hour",
    row_key=("message_id",),
    comment="A message of a cold-chain sensor",
    column_comments={
        "hour": "The hour it was read in, UTC: the partition",
        "device_id": "The sensor",
        "store_id": "The store that the sensor was in",
        "read_at": "When it was read, by the sensor's clock, UTC",
        "temperature_c": "Degrees Celsius",
        "door_open": "Whether the door stood open; null where the sensor does not say",
    },
)

SCORING_REQUESTS = Table(
    name="raw.scoring_requests",
    columns={"request_id": "string", "store_id": "bigint", "product_id": "bigint", "date": "date"} | MESSAGE,
    row_key=("message_id",),
    comment="A message that asks for a score",
    column_comments={
        "request_id": "The request, as its sender names it: the reply says it again",
        "store_id": "The store",
        "product_id": "The product",
        "date": "The day whose demand is asked for",
    },
)
