"""The tables of alerts: one row per alert. Its commit numbers show which messages must still be sent."""

from dagster_tidemark import Table

COLD_CHAIN = Table(
    name="alerts.cold_chain",
    columns={
        "alert_id": "string",
        "rule": "string",
        "device_id": "string",
        "store_id": "bigint",
        "episode_started_at": "timestamp",
        "raised_at": "timestamp",
        "retracted_at": "timestamp",
        "raised_in": "bigint",
        "retracted_in": "bigint",
    },
    row_key=("alert_id",),
    comment="An alert of the cold chain",
    column_comments={
        "alert_id": "Id of the alert, also in its messages",
        "rule": "The rule that raised it: too_warm",
        "device_id": "The sensor",
        "store_id": "The sensor's store at the start of the episode, as known when the alert was raised",
        "episode_started_at": "Time of the first reading of the episode, UTC; late readings may change it",
        "raised_at": "When it was raised, UTC",
        "retracted_at": "When it was retracted, UTC; null if it was not",
        "raised_in": "The number of the commit that raised it",
        "retracted_in": "The number of the commit that retracted it; null if it was not",
    },
)
