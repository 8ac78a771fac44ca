"""raw/readings: the readings of the cold chain's sensors, and the alerts that follow within a second."""

from datetime import timedelta

from dagster_tidemark import from_env
from dagster_tidemark.streams import Alerting, Stream

from pipelines.schemas import alerts, raw
from pipelines.transforms.cold_chain import TOO_WARM

READINGS = Stream(
    name="readings",
    table=raw.READINGS,
    queue=from_env("TIDEMARK_READINGS_QUEUE", default="cold-chain-readings"),
    topic=from_env("TIDEMARK_READINGS_TOPIC", default="cold-chain-readings"),
    required=("device_id", "store_id", "read_at", "temperature_c"),
    # A broken sensor reports absurd values, which must not count as heat.
    rules={"temperature_out_of_range": lambda fields: -100 <= fields["temperature_c"] <= 100},
    time="read_at",
    # Only the alerts must be quick: tables may follow a minute later.
    quiet=timedelta(minutes=1),
    reaction=Alerting(
        rule=TOO_WARM,
        table=alerts.COLD_CHAIN,
        key="device_id",
        facts=("store_id",),
        queue=from_env("TIDEMARK_ALERTS_QUEUE", default="alerts"),
    ),
)
