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
    comment="An alert of the cold chain that was raised",
    column_comments={
        "alert_id": "The alert; also in the messages that raise and retract it",
        "rule": "What it is about: too_warm",
        "device_id": "The sensor",
        "store_id": "The store that the sensor was in when the episode started, as known when it was raised",
        "episode_started_at": "When the first reading of the episode was read, UTC; late readings may move it",
        "raised_at": "When it was raised, UTC",
        "retracted_at": "When it was retracted, UTC; null while it stands",
        "raised_in": "The number of the commit that raised it",
        "retracted_in": "The number of the commit that retracted it; null while it stands",
    },
)
