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
        "hour": "The hour of the reading, UTC: the partition",
        "device_id": "The sensor",
        "store_id": "The store of the sensor",
        "read_at": "Time of the reading by the sensor's clock, UTC",
        "temperature_c": "Degrees Celsius",
        "door_open": "True if the door was open; null if the sensor does not report it",
    },
)

SCORING_REQUESTS = Table(
    name="raw.scoring_requests",
    columns={"request_id": "string", "store_id": "bigint", "product_id": "bigint", "date": "date"} | MESSAGE,
    row_key=("message_id",),
    comment="A request for a score",
    column_comments={
        "request_id": "Id of the request, set by its sender; the reply repeats it",
        "store_id": "The store",
        "product_id": "The product",
        "date": "The day of the requested demand",
    },
)
