"""State of each stream according to the last reports of its shifts: for `tidemark status`, the check and the UI.

Belongs here: the evaluation of reports. Does not belong here: the measurements (`streams.shift_metrics`).
"""

from dataclasses import dataclass
from typing import Any

from dagster import DagsterInstance, MetadataValue

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.doubts import Doubts, PostOf, Watched
from dagster_tidemark.event_log.beats import Beat
from dagster_tidemark.planner.contract_status import span

_WITHOUT_COMMIT = 60.0


@dataclass(frozen=True)
class StreamRow:
    """A stream. Times in Unix seconds; figures that no shift has reported are None.

    Args:
        backlog: Number of messages that wait in the queue or topic, or that shifts have received but not committed.
        oldest: Age of the oldest waiting message in seconds. For a message that no shift has received from a queue this
            is a lower bound, because SQS does not report it.
        lag: Seconds from the sending of the oldest message of the last batch to its commit.
        committed_at: Time of the last commit of a shift.
        rate: Rows per second in the last minute, summed over its shifts.
        refused: Number of messages that its shifts have turned away.
        hindrance: Fault that keeps shifts from taking messages; empty if there is none.
        is_behind: True if messages wait and no shift has committed for a minute, and no person has paused the stream.
        is_unread: True if no shift has taken messages lately, for example because the queue does not exist. False if a
            person has paused the stream.
    """

    stream: str
    asset: str
    backlog: int | None
    oldest: float | None
    lag: float | None
    committed_at: float | None
    rate: float | None
    refused: int | None
    hindrance: str
    is_behind: bool
    is_unread: bool

    @property
    def is_sound(self) -> bool:
        """True if nothing keeps the stream from working."""
        return not self.is_behind and not self.hindrance

    def metadata(self) -> dict[str, Any]:
        """Return the figures for Dagster's UI, without unknown ones."""
        found: dict[str, Any] = {
            "waiting messages": self.backlog,
            "oldest message waits (seconds)": None if self.oldest is None else round(self.oldest, 1),
            "sending to commit (seconds)": self.lag,
            "last commit": None if self.committed_at is None else MetadataValue.timestamp(self.committed_at),
            "rows per second": self.rate,
            "turned away by these shifts": self.refused,
            "hindrance": self.hindrance or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def told(self, now: float) -> str:
        """Return the row as a sentence."""
        oldest = "" if self.oldest is None else f", the oldest for {span(self.oldest)}"
        parts = [
            "" if self.backlog is None else f"{self.backlog} waiting{oldest}",
            f"last commit {span(now - self.committed_at)} ago" if self.committed_at else "no commit yet",
            "" if self.lag is None else f"{self.lag:g} s from sending to commit",
            "" if self.rate is None else f"{self.rate:g} rows/s",
            f"{self.refused} rejected" if self.refused else "",
            "BEHIND: no commit for a minute" if self.is_behind else "",
            self.hindrance,
        ]
        return f"stream {self.stream}: {', '.join(filter(None, parts))}"


def stream_rows(instance: DagsterInstance, watched: Watched, doubts: Doubts, now: float) -> list[StreamRow]:
    """Return a row for each stream with a shift."""
    keys = [key for post in watched.posts for key in post.keys]
    saved = instance_store.saved_values(instance, keys) if keys else {}
    return [
        _row(post, [beat for key in post.keys if (beat := Beat.read(saved.get(key)))], doubts, now)
        for post in watched.posts
    ]


def _row(post: PostOf, beats: list[Beat], doubts: Doubts, now: float) -> StreamRow:
    facts = [beat.facts for beat in beats if beat.facts]
    backlogs = [int(each["backlog"]) for each in facts if "backlog" in each]
    worked = [max(float(each.get("committed_at", 0.0)), float(each.get("began_at", now))) for each in facts]
    cause = doubts.sources.get(post.asset)
    hindrances = [str(each["hindrance"]) for each in facts if each.get("hindrance")]
    backlog = max(backlogs) if backlogs else None  # each shift of a stream counts the same queue
    oldest = [float(each["oldest_at"]) for each in facts if each.get("oldest_at") is not None]
    # After a long time without messages, a message that has just arrived does not make a stream late.
    waiting_since = [float(each.get("waiting_since") or 0.0) for each in facts if each.get("backlog")]
    is_paused = cause is not None and cause.is_pause
    is_late = bool(backlog) and now - max([*worked, min(waiting_since, default=0.0)]) > _WITHOUT_COMMIT
    return StreamRow(
        stream=post.stream,
        asset=post.asset,
        backlog=backlog,
        oldest=max(0.0, now - min(oldest)) if backlog and oldest else None,
        lag=max((float(each["lag_seconds"]) for each in facts if "lag_seconds" in each), default=None),
        committed_at=max((float(each["committed_at"]) for each in facts if each.get("committed_at")), default=None),
        rate=sum(float(each["rows_per_second"]) for each in facts if "rows_per_second" in each) if facts else None,
        refused=sum(int(each["refused"]) for each in facts if "refused" in each) if facts else None,
        hindrance=cause.said if cause is not None else next(iter(hindrances), ""),
        is_behind=is_late and not is_paused,
        is_unread=cause is not None and not is_paused,
    )
