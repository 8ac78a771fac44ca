"""The check `quarantine` of a stream: whether messages were turned away.

A shift writes its result when there is something new. A person may also execute it. Does not belong here: why a message
is turned away (`decode`).
"""

from collections.abc import Mapping

import dagster as dg

from pipelines.tidemark.event_log.observations import QUARANTINE
from pipelines.tidemark.settings import load_settings
from pipelines.tidemark.streams.stream import Stream

LOST = "lost"
"""The reason of an entry about messages that were never read."""


def stream_check(stream: Stream) -> dg.AssetChecksDefinition:
    """The check of a stream."""

    @dg.asset_check(
        asset=dg.AssetKey.from_user_string(stream.asset),
        name=QUARANTINE,
        description="Warns of messages that are no rows, and fails where messages were lost before they were read; "
        f"`pipelines quarantine --asset {stream.asset}` shows them.",
    )
    def quarantine() -> dg.AssetCheckResult:
        from pipelines.tidemark.lakehouse.append import open_lake
        from pipelines.tidemark.streams.rejects import counted

        return refused_result(counted(open_lake(load_settings()), stream.asset))

    return quarantine


def refused_result(by_reason: Mapping[str, int]) -> dg.AssetCheckResult:
    """What the check says of so many entries."""
    told = ", ".join(f"{reason} {count}" for reason, count in by_reason.items())
    return dg.AssetCheckResult(
        passed=not by_reason,
        severity=dg.AssetCheckSeverity.ERROR if LOST in by_reason else dg.AssetCheckSeverity.WARN,
        description=f"messages turned away: {told}" if told else "no message was turned away",
        metadata={
            "rows": sum(by_reason.values()),
            **{f"turned away: {reason}": count for reason, count in by_reason.items()},
        },
    )
