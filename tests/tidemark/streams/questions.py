"""Requests of a toy domain: numbers whose square roots somebody wants; and what a test needs to ask and to listen."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.table import MESSAGE, Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.streams.answers.declaration import Answer, Answering
from dagster_tidemark.streams.answers.worker import Answers
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Fields, Stream, StreamContext
from tests.tidemark.streams import toy


class Roots:
    """Answers with square roots; there are none of 13, and it stumbles over negative numbers."""

    def __init__(self, place: StreamContext) -> None:
        self.batches: list[int] = []

    def __call__(self, requests: Sequence[Fields]) -> list[Answer]:
        self.batches.append(len(requests))
        return [self.root(request["number"]) for request in requests]

    def root(self, number: float) -> Answer:
        return "13 is unlucky" if number == 13 else {"root": math.sqrt(number), "known_by": "school"}


def requests(name: str) -> Table:
    return Table(
        name=f"raw.{name}",
        columns={"request_id": "string", "number": "double"} | MESSAGE,
        row_key=("message_id",),
        comment="A request",
    )


def answers(name: str) -> Table:
    columns = {"request_id": "string", "root": "double", "known_by": "string"}
    return Table(
        name=f"ml.{name}",
        columns=columns | {"answered_at": "timestamp", "error": "string"},
        row_key=("request_id",),
        comment="An answer",
    )


def stream(name: str, answer: Any = Roots) -> Stream:
    answering = Answering(answers(name), "request_id", f"out-{name}", answer, "answered_at")
    return Stream(
        name,
        requests(name),
        queue=f"queue-{name}",
        required=("request_id", "number"),
        workers=2,
        reaction=answering,
        quiet=timedelta(0),
    )


def question(request_id: str, number: float = 4) -> str:
    return json.dumps({"request_id": request_id, "number": number})


@dataclass
class Desk:
    """A stream of requests, those who ask, and what they hear."""

    settings: Settings
    stream: Stream
    asked: SqsQueue
    told: SqsQueue
    heard: toy.Heard = field(default_factory=toy.Heard)

    @classmethod
    def made(cls, settings: Settings, answer: Any = Roots, *, receives: int = 20) -> "Desk":
        name = toy.new_name()
        queues = [toy.make_queue(settings, f"{kind}-{name}", receives=receives) for kind in ("queue", "out")]
        return cls(settings, stream(name, answer), *queues)

    def shift(self, kind: type[QueueInlet] = QueueInlet) -> Shift:
        """One that has begun."""
        inlet = kind("sqs:in", lambda: self.asked)
        made = toy.shift(self.stream, self.settings, [inlet], self.heard)
        made._catch_up()
        return made

    def rows(self) -> list[dict[str, Any]]:
        """The table of answers."""
        return Appendable(open_lake(self.settings), answers(self.stream.name)).rows().to_pylist()

    def kept(self) -> dict[str, Any]:
        """By request what the table says; a request that is there twice fails."""
        rows = self.rows()
        found = {row["request_id"]: row["root"] if row["error"] is None else row["error"] for row in rows}
        assert len(found) == len(rows), "doubled"
        return found

    def sent(self) -> dict[str, list[dict[str, Any]]]:
        """By request what went out since this was last asked."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        while messages := self.told.receive(0):
            for message in messages:
                body = json.loads(message.body)
                found[body.pop("request_id")].append(body)
            self.told.delete(messages)
        return dict(found)


TWO = {"root": 2.0, "known_by": "school"}
"""What is said of 4."""


def reaction(shift: Shift) -> Answers:
    """What answers in a shift."""
    assert isinstance(shift._reaction, Answers)
    return shift._reaction


def answerer(shift: Shift) -> Any:
    """And what it asks."""
    return reaction(shift)._answerer
