"""The declaration of answers to the messages of a stream. A code location imports it at no cost.

Does not belong here: the commit and the sending of answers (`worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.streams.stream_declaration import (
    Fields,
    ReactionDeclaration,
    Stream,
    StreamContext,
    StreamRefused,
    require_queue_name,
)

ERROR = "error"
"""The column with the reason why a request could not be answered."""

Answer = Mapping[str, Any] | str
"""Values of the table's columns, or the reason why a request cannot be answered, as a sentence."""

Answerer = Callable[[Sequence[Fields]], Sequence[Answer]]
"""Function that returns one answer per request, in order. A call without requests lets it refresh its data."""


@dataclass(frozen=True)
class Answering(ReactionDeclaration):
    """A `reaction` that treats the messages of a stream as requests, and answers each request once.

    The table holds the answers by request id, which the sender chooses. A repeated id gets the first answer again, even
    weeks later, and even if that answer was an error. The message of an answer is JSON: the id, and either the values
    of the answer or `error`.

    Args:
        table: The table of answers, one row per request. Its columns are `key`, `at`, `error`, and those of an answer.
        key: The string field that contains the request's id.
        queue: The name of the queue that answers are sent to; see `from_env`.
        answer: Creates the answerer when a shift begins. The answerer receives the requests of a batch, and an empty
            batch every few seconds. If it raises on a request, the error becomes the answer to that request, and the
            other requests of the batch are still answered. If a service fails, the answerer must raise `Transient` or
            an `OSError`; it is then retried for a minute.
        at: The column with the time when a request was answered.

    Raises:
        StreamRefused: the table lacks a column, or SQS does not allow the queue's name.
    """

    table: Table
    key: str
    queue: str
    answer: Callable[[StreamContext], Answerer]
    at: str

    def __post_init__(self) -> None:
        require_queue_name(f"answers in {self.table.name}", self.queue)
        wanted = {self.key: "string", self.at: "timestamp", ERROR: "string"}
        if missing := [f"{c} ({kind})" for c, kind in wanted.items() if self.table.columns.get(c) != kind]:
            raise StreamRefused(f"answers in {self.table.name}: the table lacks {', '.join(missing)}")

    def require_stream(self, stream: Stream) -> None:
        """Raise if requests cannot be answered.

        Raises:
            StreamRefused: the stream does not require `key`, or reads a topic, which never redelivers a message.
        """
        if stream.topic is not None:
            raise StreamRefused(
                f"stream {stream.name}: requests need a queue, which delivers unanswered ones again; remove topic="
            )
        if self.key not in stream.required:
            raise StreamRefused(f"stream {stream.name}: the request id {self.key} must be required; add it to required")
