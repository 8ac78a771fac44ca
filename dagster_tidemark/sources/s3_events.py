"""Parsing of S3 event messages into the partitions to list again.

A notification is only a hint; the listing decides. Only keys and the event time are read from a message. The kind of
the event (created, removed, restored, ...) is ignored.

Belongs here: the envelopes of S3's events. Does not belong here: queues (`sources.notification_queue`).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote_plus

from dagster_tidemark.errors import Terminal
from dagster_tidemark.sources.feed import FOLDER_OF_HADOOP, Feed, Partition
from dagster_tidemark.sources.misplaced import MisplacedFolder, Span, place_of

ReadsMessage = Callable[[Mapping[str, Any]], Iterable[str] | None]
"""Function that reads a message with a form of its own: a JSON object, parsed, with numbers as text.

It returns the keys of the files that the message lists, as `orders/a.csv` or as `s3://bucket/orders/a.csv`. It returns
None for a message of another form.
"""

_SHOWN = 200  # characters of a refused body in a log
_MOST_WRAPS = 5  # more SNS envelopes than any chain of topics has
_MOST_MEMBERS = 10  # names of members in a log


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
        reads_message: Reads messages that are not S3 events.
    """

    bucket: str
    feeds: Sequence[Feed]
    start: date = date.min
    elsewhere: tuple[str, ...] = ()
    reads_message: ReadsMessage | None = None

    def read(self, body: str) -> Hints:
        """Return the content of a message. Unreadable or unrelated records become refusals with a reason."""
        hints: list[Hint] = []
        strays: list[Stray] = []
        refused: list[str] = []
        try:
            read_record, records = self._records(body)
        except NotOurs as reason:
            return Hints([], [], [str(reason)])
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

    def _records(self, body: str) -> tuple[Callable[[Any], "_Event"], list[Any]]:
        """Return a parser and the records of a body: S3's own, EventBridge's, either in SNS envelopes, or the hook's.

        Raises:
            NotOurs: the body has none of these forms.
        """
        message, form = _unwrapped(body)
        if message.get("Event") == "s3:TestEvent":
            return _s3_record, []
        if isinstance(message.get("Records"), list):
            return _s3_record, list(message["Records"])
        if "detail-type" in message or _is_about_an_object(message.get("detail")):
            return _eventbridge_event, [message]
        if _is_about_an_object(message):  # a rule of EventBridge that sends the part `$.detail` alone
            return _eventbridge_event, [{"detail": message}]
        keys = self._listed(message)
        if keys is None:
            raise NotOurs(_unknown(message, form, has_hook=self.reads_message is not None))
        return self._listed_file, keys

    def _listed(self, message: Mapping[str, Any]) -> list[Any] | None:
        """Return the keys that the hook finds in a message; None if it finds no list, or if there is no hook.

        Raises:
            NotOurs: the hook raises, or returns a text instead of a list.
        """
        if self.reads_message is None:
            return None
        try:
            found = self.reads_message(message)
            if isinstance(found, str):
                raise TypeError(f"expected a list of keys, found {found[:_SHOWN]!r}")
            return None if found is None else list(found)
        except Exception as error:  # user code may raise anything; other messages are still processed
            raise NotOurs(f"reads_message raised {_said(error)} on a message with {_members(message)}") from error

    def _listed_file(self, key: Any) -> "_Event":
        if isinstance(key, str) and key.startswith("s3://"):
            bucket, _, key = key.removeprefix("s3://").partition("/")
            return _event(bucket, key, None)
        return _event(self.bucket, key, None)

    def _place(self, event: "_Event") -> Hint | Stray | None:
        if event.bucket != self.bucket:
            raise NotOurs(f"expected an event of bucket {self.bucket!r}, found {event.bucket!r}")
        feed = next((feed for feed in self.feeds if event.key.startswith(feed.prefix)), None)
        if feed is None and (event.key.startswith(self.elsewhere) or event.key.endswith(FOLDER_OF_HADOOP)):
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


def _unwrapped(body: str) -> tuple[dict[str, Any], str]:
    """Return the JSON object of a body without its SNS envelopes, and the words "in SNS" if there were envelopes.

    Raises:
        NotOurs: there is no JSON object.
    """
    form = ""
    for _ in range(_MOST_WRAPS + 1):
        try:
            # Numbers are kept as text: none is needed, and a number of 5,000 digits would be an error.
            message = json.loads(body, parse_int=str, parse_float=str)
        except _UNREADABLE as error:
            raise NotOurs(
                f"{_EXPECTED}, found text that is not JSON{form} ({_said(error)}): {body[:_SHOWN]!r}"
            ) from None
        if not isinstance(message, dict):
            raise NotOurs(f"{_EXPECTED}, found JSON without members{form}: {body[:_SHOWN]!r}")
        if message.get("Type") != "Notification" or not isinstance(message.get("Message"), str):
            return message, form
        body, form = message["Message"], " in SNS"
    raise NotOurs(f"{_EXPECTED}, found more than {_MOST_WRAPS} SNS envelopes around each other")


_EXPECTED = "expected an S3, EventBridge or SNS notification"


def _unknown(message: Mapping[str, Any], form: str, *, has_hook: bool) -> str:
    if message.get("Type") == "SubscriptionConfirmation":
        return f"{_EXPECTED}, found a request of SNS to confirm a subscription: open its SubscribeURL"
    remedy = "reads_message knows no files in it" if has_hook else "a function reads_message can read it"
    return f"{_EXPECTED}, found a message{form} with {_members(message)}; {remedy}"


def _members(message: Mapping[str, Any]) -> str:
    """Return the names of a message's members, shortened."""
    names = ", ".join(list(message)[:_MOST_MEMBERS])[:_SHOWN]
    return f"the members {names}" + (", ..." if len(message) > _MOST_MEMBERS else "") if message else "no members"


def _is_about_an_object(detail: object) -> bool:
    """Return True if a part of a message names a bucket and an object, as EventBridge's `detail` does."""
    return (
        isinstance(detail, dict) and isinstance(detail.get("bucket"), dict) and isinstance(detail.get("object"), dict)
    )


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
