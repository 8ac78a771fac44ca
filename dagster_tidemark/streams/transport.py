"""Queues and topics that a code location declares. Missing ones are created on the laptop's own cloud and broker only.

Belongs here: their creation, and the refusal of declarations that share a queue or table. Does not belong here:
receiving and sending messages (`sources`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.sqs import SqsQueue, create_queue, is_missing_queue, open_queue
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.answers.declaration import Answering
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream, StreamRefused

_log = logging.getLogger(__name__)


def declared_queue(name: str, settings: Settings) -> SqsQueue:
    """Return a queue by its name. On the laptop's own cloud, create the queue if it is missing.

    Raises:
        ClientError: the account has no such queue, or denies access to it.
    """
    options = settings.aws_options()
    try:
        return open_queue(name, **options)
    except ClientError as error:
        if not (settings.own_cloud and is_missing_queue(error)):
            raise
    _log.info("sqs:%s is missing: creating it in the local cloud", name)
    create_queue(name, **options)
    return open_queue(name, **options)


def queues_of(streams: Iterable[Stream | Deliveries]) -> list[str]:
    """Return the names of the queues that streams use for messages, alerts and answers."""
    found = set[str | None]()
    for stream in streams:
        found.add(stream.queue)
        if isinstance(stream, Deliveries):
            found.add(stream.answers)
        elif isinstance(stream.reaction, Alerting | Answering):
            found.add(stream.reaction.queue)
    return sorted(name for name in found if name is not None)


def topics_of(streams: Iterable[Stream | Deliveries], settings: Settings) -> list[str]:
    """Return the names of the topics that streams read in a deployment."""
    found = {stream.topic_in(settings) for stream in streams if isinstance(stream, Stream)}
    return sorted(name for name in found if name is not None)


def create_missing(streams: Sequence[Stream | Deliveries], settings: Settings) -> None:
    """Create missing queues and topics of streams in the laptop's own cloud and broker, and never anywhere else.

    Raises:
        BotoCoreError, ClientError: the cloud does not answer.
        KafkaUnavailable: the broker does not answer.
        ModuleNotFoundError: the client library of Kafka is not installed.
    """
    if settings.own_cloud:
        for queue in queues_of(streams):
            declared_queue(queue, settings)
    if settings.own_kafka and (topics := topics_of(streams, settings)):
        from dagster_tidemark.sources.kafka_client import create_topic

        for topic in topics:
            create_topic(settings.kafka_options(), topic)


def create_missing_or_log(stream: Stream | Deliveries, settings: Settings) -> None:
    """Create the missing queues and topics of one stream. Log a failure: the inlets report it and try again."""
    try:
        create_missing([stream], settings)
    except (BotoCoreError, ClientError, TidemarkError, ModuleNotFoundError) as error:
        _log.debug("%s: queues or topics could not be created: %s", stream.name, error)


@dataclass(frozen=True)
class _Use:
    """Use of a name, queue or table that no other declaration may share.

    Args:
        owner: The declaration, as named in an error.
        purpose: Use by the owner, such as `table of alerts`.
        remedy: The end of the error.
    """

    owner: str
    purpose: str
    remedy: str


def require_distinct(streams: Sequence[Stream | Deliveries], sensors: Mapping[str, str] | None = None) -> None:
    """Raise if two declarations of a code location would take each other's messages or rows.

    Args:
        sensors: The queues that sensors of the location receive from, by the sensor as named in an error.

    Raises:
        StreamRefused: two have the same name, queue or table. Tables of alerts and answers count too. The message names
            both.
    """
    seen: dict[tuple[str, str], _Use] = {}
    for sensor, queue in (sensors or {}).items():
        _take(seen, "queue", queue, _Use(sensor, "queue", _QUEUE))
    for stream in streams:
        for kind, value, use in _uses_of(stream):
            _take(seen, kind, value, use)


def _uses_of(stream: Stream | Deliveries) -> Iterator[tuple[str, str, _Use]]:
    """Yield what a stream does not share: the kind, its name, and the use."""
    owner = f"stream {stream.name}"
    yield "name", stream.name, _Use(owner, "name", "rename one")
    yield "table", stream.table.name, _Use(owner, "table", _TABLE)
    if stream.queue is not None:
        yield "queue", stream.queue, _Use(owner, "queue", _QUEUE)
    if isinstance(stream, Deliveries):
        return
    if isinstance(stream.reaction, Alerting):
        # A table of alerts can record the last evaluated snapshot of only one stream's table.
        yield "table", stream.reaction.table.name, _Use(owner, "table of alerts", _ALERTS)
    elif isinstance(stream.reaction, Answering):
        # A request would get the answer to another stream's request with the same id.
        yield "table", stream.reaction.table.name, _Use(owner, "table of answers", _ANSWERS)


def _take(seen: dict[tuple[str, str], _Use], kind: str, value: str, use: _Use) -> None:
    other = seen.setdefault((kind, value), use)
    if other is use:
        return
    if other.purpose == use.purpose:
        raise StreamRefused(f"{other.owner} and {use.owner} have the same {use.purpose}, {value}: {use.remedy}")
    raise StreamRefused(
        f"{value} is the {other.purpose} of {other.owner} and the {use.purpose} of {use.owner}: {use.remedy}"
    )


_TABLE = "declare a table for each stream, or one stream with both a queue and a topic"
_QUEUE = "each would receive only a part of the messages; declare a queue for each"
_ALERTS = "declare a table of alerts for each stream"
_ANSWERS = "declare a table of answers for each stream"
