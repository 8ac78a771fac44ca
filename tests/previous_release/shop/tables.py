"""The tables of the shop."""

from dagster_tidemark import LINEAGE, MESSAGE, Table

SALES = Table(
    name="core.sales",
    columns={"hour": "timestamp", "sale_id": "bigint", "amount_usd": "decimal(10,2)"} | LINEAGE,
    partitioned_by="hour",
    row_key=("hour", "sale_id"),
    comment="A sale",
)

DAILY = Table(
    name="marts.daily",
    columns={"day": "date", "sales": "bigint", "amount_usd": "decimal(18,2)"},
    partitioned_by="day",
    row_key=("day",),
    comment="A day of sales",
)

WEEKLY = Table(
    name="marts.weekly",
    columns={"week": "date", "sales": "bigint"},
    partitioned_by="week",
    row_key=("week",),
    comment="A week of sales",
)

READINGS = Table(
    name="raw.readings",
    columns={"hour": "timestamp", "device_id": "string", "read_at": "timestamp", "temperature_c": "double"} | MESSAGE,
    partitioned_by="hour",
    row_key=("message_id",),
    comment="A message of a sensor",
)

ALERTS = Table(
    name="alerts.warm",
    columns={
        "alert_id": "string",
        "rule": "string",
        "device_id": "string",
        "episode_started_at": "timestamp",
        "raised_at": "timestamp",
        "retracted_at": "timestamp",
        "raised_in": "bigint",
        "retracted_in": "bigint",
    },
    row_key=("alert_id",),
    comment="An alert that was raised",
)
