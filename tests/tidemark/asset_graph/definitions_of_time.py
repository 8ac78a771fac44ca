"""Partitions definitions of time as anybody may declare them, for property tests."""

from datetime import UTC, datetime

import dagster as dg
from hypothesis import strategies as st

SCHEDULES = {
    "*/15 * * * *": "%Y-%m-%d-%H:%M",
    "0 * * * *": "%Y-%m-%d-%H:%M",
    "30 * * * *": "%Y/%m/%d %H.%M",
    "0 */6 * * *": "%Y-%m-%d-%H:%M",
    "0 0 * * *": "%Y-%m-%d",
    "15 3 * * *": "%d.%m.%Y",
    "0 0 * * 1-5": "%Y-%m-%d",
    "0 0 * * 1": "%Y-%m-%d",
    "0 0 1 * *": "%Y-%m",
    "0 0 1 */3 *": "%Y-%m-%d",
}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
STARTS = [datetime(2026, 3, 20), datetime(2026, 10, 1), datetime(2026, 7, 1)]
MOMENTS = st.integers(
    int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()), int(datetime(2027, 2, 1, tzinfo=UTC).timestamp())
)
"""Unix seconds; both changes of the clocks lie between."""


@st.composite
def definitions(draw: st.DrawFn, *, zone: str | None = None, ends: bool = True) -> dg.TimeWindowPartitionsDefinition:
    """Any grain, zone, offset; some with an end, some with windows left out."""
    schedule = draw(st.sampled_from(list(SCHEDULES)))
    excluded = ["0 0 * * 0"] if schedule == "0 0 * * *" and draw(st.booleans()) else None
    return dg.TimeWindowPartitionsDefinition(
        start=draw(st.sampled_from(STARTS)),
        end=draw(st.sampled_from([None, datetime(2026, 11, 20)])) if ends else None,
        cron_schedule=schedule,
        fmt=SCHEDULES[schedule],
        timezone=zone or draw(st.sampled_from(ZONES)),
        end_offset=draw(st.sampled_from([0, 1, 2, 5, -1, -3])),
        exclusions=excluded,
    )
