"""The checks of a stream: `quarantine` (were messages rejected?) and `stream` (does the stream keep up?).

A shift reports the results of `quarantine`, and the sensor `contracts` reports those of `stream`. Users can execute
both checks. Does not belong here: the reasons to reject a message (`decode`), and the state of a stream
(`engine.stream_rows`).
"""

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

from dagster_tidemark.engine.doubts import PostOf, Watched, doubts
from dagster_tidemark.engine.stream_rows import StreamRow, stream_rows
from dagster_tidemark.event_log.beats import post_keys
from dagster_tidemark.event_log.observations import LOST, QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream

STREAM = "stream"
"""The name of the check on a stream's state."""


def post_of(stream: Stream | Deliveries, settings: Settings) -> PostOf:
    """Return the keys under which the shifts of a stream save their heartbeats."""
    return PostOf(stream.name, stream.asset, post_keys(settings, stream.name, stream.workers))


def state_of(instance: dg.DagsterInstance, stream: Stream | Deliveries, settings: Settings) -> StreamRow:
    """Return the state of one stream as of now."""
    now, watched = time.time(), Watched(settings.code_location, posts=(post_of(stream, settings),))
    (row,) = stream_rows(instance, watched, doubts(instance, watched, now), now)
    return row


def state_check(stream: Stream | Deliveries, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check on the state of a stream."""

    @dg.asset_check(
        asset=dg.AssetKey.from_user_string(stream.asset),
        name=STREAM,
        description="Fails while messages wait and no shift has committed for a minute; warns if a fault keeps shifts "
        "from receiving messages. Shows the backlog, its age, and the last commit.",
    )
    def state(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        if why := stream.why_off(settings):
            return dg.AssetCheckResult(passed=True, description=f"stream {stream.name} is off: {why}")
        return dg.AssetCheckResult(**state_result(state_of(context.instance, stream, settings), time.time()))

    return state


def state_result(row: StreamRow, now: float) -> dict[str, Any]:
    """Return the arguments of a result of the check `stream`."""
    return {
        "passed": row.is_sound,
        "severity": dg.AssetCheckSeverity.ERROR if row.is_behind else dg.AssetCheckSeverity.WARN,
        "description": row.told(now),
        "metadata": row.metadata(),
    }


def stream_check(stream: Stream, settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check on the quarantine entries of a stream."""

    @dg.asset_check(
        asset=dg.AssetKey.from_user_string(stream.asset),
        name=QUARANTINE,
        description="Warns of rejected messages, and fails if messages were lost before they were read; "
        f"`tidemark quarantine --asset {stream.asset}` lists them.",
    )
    def quarantine() -> dg.AssetCheckResult:
        from dagster_tidemark.lakehouse.append import open_lake
        from dagster_tidemark.streams.rejected_messages import counted

        return refused_result(counted(open_lake(settings), stream.asset))

    return quarantine


def refused_result(by_reason: Mapping[str, int]) -> dg.AssetCheckResult:
    """Return the result of the check `quarantine` for the number of entries by reason."""
    told = ", ".join(f"{reason} {count}" for reason, count in by_reason.items())
    return dg.AssetCheckResult(
        passed=not by_reason,
        severity=dg.AssetCheckSeverity.ERROR if LOST in by_reason else dg.AssetCheckSeverity.WARN,
        description=f"messages rejected: {told}" if told else "no message was rejected",
        metadata={
            "rows": sum(by_reason.values()),
            **{f"turned away: {reason}": count for reason, count in by_reason.items()},
        },
    )
