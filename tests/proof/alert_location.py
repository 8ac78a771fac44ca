"""A code location of twenty sources whose files are expected a few seconds after each other, and never come.

`ALERT_BEGIN` is the due time of the first one (Unix seconds), `ALERT_SLACK_URL` the address of the server of Slack's
protocol. Does not belong here: the measurement (`tests.proof.test_alert_latency`).
"""

import os
from datetime import UTC, datetime, timedelta

import dagster as dg

from dagster_tidemark import ContractQueue, ExpectedArrival, Slack, build_definitions, load_settings

SOURCES, EVERY = 20, 7.0
BEGIN = float(os.environ.get("ALERT_BEGIN", "0"))
_WINDOW_ENDED = BEGIN // 3600 * 3600
_FIRST_DAY = datetime.fromtimestamp(max(0.0, BEGIN - 86_400), UTC)
HOURS = dg.HourlyPartitionsDefinition(f"{_FIRST_DAY:%Y-%m-%d}-00:00")


def name(number: int) -> str:
    """Return the key of a source."""
    return f"raw/alert_{number:02}"


def due_at(number: int, begin: float = BEGIN) -> float:
    """Return when the file of a source is due, if the first one is due at `begin` (Unix seconds)."""
    return begin + number * EVERY


def _source(number: int) -> dg.SourceAsset:
    @dg.observable_source_asset(key=name(number).split("/"), partitions_def=HOURS)
    def _observe() -> dg.DataVersionsByPartition:
        return dg.DataVersionsByPartition({})

    return _observe  # type: ignore[return-value]


defs = build_definitions(
    load_settings(),
    [_source(number) for number in range(SOURCES)],
    [],
    [],
    notify=[
        Slack(
            token=dg.EnvVar("ALERT_TOKEN"),
            channel="#data",
            url=os.environ.get("ALERT_SLACK_URL", "http://127.0.0.1:1"),
        ),
        ContractQueue(),
    ],
    expected=[
        ExpectedArrival(source=name(number), within=timedelta(seconds=due_at(number) - _WINDOW_ENDED))
        for number in range(SOURCES)
    ],
)
