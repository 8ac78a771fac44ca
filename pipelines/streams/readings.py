"""raw/readings: what the sensors of the cold chain say, and the alerts that follow within a second."""

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
    # A sensor that is broken says something absurd; whoever reads on must not take it for heat.
    rules={"temperature_out_of_range": lambda fields: -100 <= fields["temperature_c"] <= 100},
    time="read_at",
    # Tables may follow a minute later; what has to be quick are the alerts.
    quiet=timedelta(minutes=1),
    reaction=Alerting(
        rule=TOO_WARM,
        table=alerts.COLD_CHAIN,
        key="device_id",
        facts=("store_id",),
        queue=from_env("TIDEMARK_ALERTS_QUEUE", default="alerts"),
    ),
)
