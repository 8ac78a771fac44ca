"""Parsing of S3 event messages into the partitions to list again.

A notification is only a hint; the listing decides. Only keys and the event time are read from a message. The kind of
the event (created, removed, restored, ...) is ignored.

Belongs here: the envelopes of S3's events. Does not belong here: queues (`sources.notification_queue`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote_plus

from dagster_tidemark.errors import Terminal
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.misplaced import MisplacedFolder, Span, place_of

_SHOWN = 200  # characters of a refused body in a log


@dataclass(frozen=True)
class Hint:
    """A partition to list again, with the time of the event (UTC)."""

    feed: Feed
    partition: Partition
    notified_at: datetime


@dataclass(frozen=True)
class Stray:
    """A misplaced object below a feed's prefix. Its folder is listed again."""

    feed: Feed
    key: str
    place: MisplacedFolder


@dataclass(frozen=True)
class Hints:
    """Content of a message. A message with refusals stays on the queue, but its other records are processed."""

    hints: Sequence[Hint]
    strays: Sequence[Stray]
    refused: Sequence[str]


class NotOurs(Terminal):
    """A message or record that is not an S3 event of a declared feed. A retry does not help."""


@dataclass(frozen=True)
class LandingZone:
    """The landing zone that the notifications are about.

    Args:
        bucket: The name of the landing bucket.
        feeds: The feeds that land in the bucket.
        start: The first day of the feeds' partitions.
        elsewhere: Prefixes of other data in the bucket. Notifications of this data are ignored.
    """

    bucket: str
    feeds: Sequence[Feed]
    start: date = date.min
    elsewhere: tuple[str, ...] = ()

    def read(self, body: str) -> Hints:
        """Return the content of a message. Unreadable or unrelated records become refusals with a reason."""
        hints: list[Hint] = []
        strays: list[Stray] = []
        refused: list[str] = []
        try:
            read_record, records = _records(body)
        except _UNREADABLE as error:
            return Hints(
                [], [], [f"expected an S3, EventBridge or SNS notification ({_said(error)}), found {body[:_SHOWN]!r}"]
            )
        for record in records:
            try:
                found = self._place(read_record(record))
            except NotOurs as reason:
                refused.append(str(reason))
            except _UNREADABLE as error:
                refused.append(f"expected a record of an S3 event ({_said(error)}), found {str(record)[:_SHOWN]!r}")
            else:
                hints += [found] if isinstance(found, Hint) else []
                strays += [found] if isinstance(found, Stray) else []
        return Hints(hints, strays, refused)

    def _place(self, event: "_Event") -> Hint | Stray | None:
        if event.bucket != self.bucket:
            raise NotOurs(f"expected an event of bucket {self.bucket!r}, found {event.bucket!r}")
        feed = next((feed for feed in self.feeds if event.key.startswith(feed.prefix)), None)
        if feed is None and event.key.startswith(self.elsewhere):
            return None
        if feed is None:
            raise NotOurs(f"{event.key!r} belongs to no declared feed")
        place = place_of(feed, event.key, Span.at(datetime.now(UTC), self.start))
        if place is None:
            return Hint(feed, feed.classify(event.key).partition, event.at)
        return Stray(feed, event.key, place) if feed.is_meant_as_data(event.key) else None


@dataclass(frozen=True)
class _Event:
    bucket: str
    key: str
    at: datetime


_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors of parsing a message that is not an S3 event. A RecursionError comes from deeply nested brackets."""


def _records(body: str) -> tuple[Callable[[Any], _Event], list[Any]]:
    """Return a parser and the records of a body: S3's own, EventBridge's, or either in an SNS envelope."""
    message = _parsed(body)
    if message.get("Type") == "Notification":  # SNS without raw delivery
        message = _parsed(message["Message"])
    if message.get("Event") == "s3:TestEvent":
        return _s3_record, []
    if "detail-type" in message:
        return _eventbridge_event, [message]
    return _s3_record, list(message["Records"])


def _parsed(body: str) -> Any:
    # Numbers are kept as text: none is needed, and a number of 5,000 digits would be an error.
    return json.loads(body, parse_int=str, parse_float=str)


def _s3_record(record: Any) -> _Event:
    _require_s3(record.get("eventSource", "aws:s3"))
    s3 = record["s3"]
    return _event(s3["bucket"]["name"], unquote_plus(s3["object"]["key"]), record.get("eventTime"))


def _eventbridge_event(event: Any) -> _Event:
    # Keys are not encoded here; only S3's own records encode them.
    _require_s3(event.get("source", "aws.s3"))
    return _event(event["detail"]["bucket"]["name"], event["detail"]["object"]["key"], event.get("time"))


def _require_s3(source: object) -> None:
    if source not in ("aws:s3", "aws.s3"):
        raise NotOurs(f"expected an event of S3, found {source!r}")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _event(bucket: object, key: object, time: object) -> _Event:
    if not (isinstance(bucket, str) and isinstance(key, str)):
        raise TypeError("expected strings as bucket and key")
    key.encode()  # refuse unpaired surrogates, which no key has
    return _Event(bucket, key, _when(time))


def _when(said: object) -> datetime:
    """Return the time of an event in UTC; the current time if the message has none."""
    try:
        at = datetime.fromisoformat(str(said))
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.now(UTC)
