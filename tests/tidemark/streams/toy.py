"""A stream of a toy domain: pings of gadgets, kept by the hour; and what a test needs to work at it."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import boto3

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.table import MESSAGE, Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources import sqs
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import Message
from dagster_tidemark.sources.received_messages import Inlet, ReceivedMessage
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.identity import Episode
from dagster_tidemark.streams.decode import Decoder, table_rows
from dagster_tidemark.streams.reports import Reports
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def table(name: str) -> Table:
    fields = {"gadget": "string", "at": "timestamp", "strength": "double"}
    return Table(
        name=f"raw.{name}",
        columns={"hour": "timestamp"} | fields | MESSAGE,
        row_key=("message_id",),
        partitioned_by="hour",
        comment="A ping",
    )


def stream(name: str, **declared: Any) -> Stream:
    said: dict[str, Any] = {
        "queue": f"queue-{name}",
        "required": ("gadget", "at", "strength"),
        "rules": {"weak": lambda fields: fields["strength"] >= 0},
        "time": "at",
        "quiet": timedelta(0),
    }
    return Stream(name, table(name), **said | declared)


class Strong:
    """Pings of strength 5 and more, as long as they go on: two at least, ten minutes apart at most."""

    name = "strong"
    silence = timedelta(minutes=10)

    def closes(self, fields: Mapping[str, Any]) -> bool:
        return bool(fields["strength"] < 5)

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> list[Episode]:
        found: list[list[datetime]] = []
        last: datetime | None = None
        for fields in said:
            if self.closes(fields):
                last = None
                continue
            if last is None or fields["at"] - last > self.silence:
                found.append([])
            found[-1].append(fields["at"])
            last = fields["at"]
        return [Episode(times[0], times[-1]) for times in found if len(times) > 1]


def alerts(name: str) -> Table:
    return Table(
        name=f"alerts.{name}",
        columns={
            "alert_id": "string",
            "rule": "string",
            "gadget": "string",
            "episode_started_at": "timestamp",
            "raised_at": "timestamp",
            "retracted_at": "timestamp",
            "raised_in": "bigint",
            "retracted_in": "bigint",
        },
        row_key=("alert_id",),
        comment="An alert",
    )


def stream_with_alerts(name: str, out: str | None = None, **declared: Any) -> Stream:
    return stream(name, reaction=Alerting(Strong(), alerts(name), "gadget", out or f"out-{name}"), **declared)


def ping(gadget: str, *, minute: int = 0, strength: float = 1.0) -> str:
    at = HOUR + timedelta(minutes=minute)
    return json.dumps({"gadget": gadget, "at": at.isoformat(), "strength": strength})


def record_row(of: Stream, body: str, *, offset: int) -> dict[str, Any]:
    """The row of a message of a log."""
    sent_at = datetime.now(UTC)
    record = ReceivedMessage(body.encode(), f"topic-1/0/{offset:020d}", sent_at, "kafka:pings/0", "topic-1", 0, offset)
    rows, _ = Decoder(of, date(2026, 9, 28)).read([record], sent_at)
    return table_rows(of, rows)[0]


def new_name() -> str:
    return f"pings_{uuid.uuid4().hex[:12]}"


def make_queue(settings: Settings, name: str, *, receives: int = 5) -> SqsQueue:
    """A queue on the local cloud that gives up on a message after so many receives."""
    client: Any = boto3.client("sqs", **settings.aws_options())
    dead = client.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": receives})
    client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})
    return SqsQueue(client, name)


_HOLD_SECONDS = 2


class ShortlyHeld(sqs.SqsQueue):
    """A queue whose messages are soon somebody else's, however long the receiver had them before it died."""

    def extend(self, messages: Sequence[Message], seconds: int = _HOLD_SECONDS) -> None:
        super().extend(messages, seconds)


def shortly_held(queue: str, settings: Settings) -> QueueInlet:
    """An inlet of such a queue, in a process of its own."""
    sqs.HOLD_SECONDS = _HOLD_SECONDS
    client = boto3.client("sqs", **settings.aws_options())
    return QueueInlet(f"sqs:{queue}", lambda: ShortlyHeld(client, queue), hold_seconds=0.5)


@dataclass
class Heard:
    """The event log of a shift under test."""

    observations: list[tuple[str, str | None, str, float]] = field(default_factory=list)
    materializations: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    quarantined: dict[str, int] = field(default_factory=dict)

    def refused(self, asset: str, by_reason: Mapping[str, int]) -> None:
        self.quarantined = dict(by_reason)

    def observed(self, asset: str, partition: str | None, *, version: str, arrived_at: float) -> None:
        self.observations.append((asset, partition, version, arrived_at))

    def materialized(self, asset: str, metadata: Mapping[str, int | float | str]) -> None:
        self.materializations.append((asset, metadata))


def shift(of: Stream, settings: Settings, inlets: Sequence[Inlet], heard: Heard | None = None) -> Shift:
    """A shift that is stepped by the test."""
    place = StreamContext(settings, open_lake(settings), of)
    return Shift(place, inlets, Reports(of, heard or Heard()), "code-1", lambda: None)


def kept(of: Stream, settings: Settings) -> list[dict[str, Any]]:
    """The rows of the stream's table, by gadget and time."""
    rows = Appendable(open_lake(settings), of.table).rows().to_pylist()
    return sorted(rows, key=lambda row: (row["gadget"], row["at"]))


def expected(truth: Mapping[tuple[str, int], float]) -> list[tuple[str, int]]:
    found = []
    for gadget in sorted({of for of, _ in truth}):
        minutes = sorted(minute for of, minute in truth if of == gadget)
        strong: list[int] = []
        for minute in [*minutes, 10_000]:
            ends = minute == 10_000 or truth[gadget, minute] < 5
            if strong and (ends or minute - strong[-1] > 10):
                found += [(gadget, strong[0])] if len(strong) > 1 else []
                strong = []
            if not ends:
                strong.append(minute)
    return sorted(found)
