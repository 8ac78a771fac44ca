"""From the body of a message to the partitions somebody should look at again.

A notification is a hint and nothing more: what is true is what a listing finds. So nothing is taken from a
message but keys and the time it speaks of.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote_plus

from pipelines.sources.feed import Feed, OutsideLayout, Partition


@dataclass(frozen=True)
class Hint:
    """Look again at this partition: something happened to it at this time (UTC)."""

    feed: Feed
    partition: Partition
    notified_at: datetime


class NotOurs(Exception):
    """A message that is not an S3 event of a declared feed. It stays for the queue's redrive policy."""


def hints_of(body: str, *, bucket: str, feeds: Iterable[Feed]) -> list[Hint]:
    """The hints in a message: one per record. Empty for the test event S3 sends when notifications are set up.

    Raises:
        NotOurs: it is no S3 event, or about another bucket or an undeclared key.
    """
    try:
        event = json.loads(body)
        if event.get("Event") == "s3:TestEvent":
            return []
        return [_hint(record, bucket, tuple(feeds)) for record in event["Records"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotOurs(f"not an S3 event ({type(error).__name__}: {error}): {body[:200]}") from error


def _hint(record: dict[str, object], bucket: str, feeds: tuple[Feed, ...]) -> Hint:
    s3 = record["s3"]
    assert isinstance(s3, dict)
    if s3["bucket"]["name"] != bucket:
        raise NotOurs(f"about bucket {s3['bucket']['name']}, not {bucket}")
    key = unquote_plus(s3["object"]["key"])
    notified_at = datetime.fromisoformat(str(record["eventTime"]))
    for feed in feeds:
        try:
            return Hint(feed, feed.partition_of(key), notified_at)
        except OutsideLayout:
            continue
    raise NotOurs(f"{key!r} belongs to no declared feed")
