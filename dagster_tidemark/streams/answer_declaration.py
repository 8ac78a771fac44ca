"""What answers on a stream are: the declaration, which costs a code location nothing to load.

Does not belong here: how they are committed and sent (`answer_reaction`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.streams.stream_declaration import Fields, StreamRefused, Workplace, require_queue_name

if TYPE_CHECKING:
    from dagster_tidemark.streams.answer_reaction import Answers

ERROR = "error"
"""The column that says why a request could not be answered."""

Answer = Mapping[str, Any] | str
"""Values of the table's columns; or a sentence that says why there are none."""

Answerer = Callable[[Sequence[Fields]], Sequence[Answer]]
"""Gives one answer for each request, in their order. Told none, it may get ready for the next ones."""


@dataclass(frozen=True)
class Answering:
    """Declares that the messages of a stream are requests, each of which is answered once: a `reaction`.

    The table holds the answers by the id that a request's sender gave it. Whoever asks again under an id, at once or
    weeks later, is told again what was answered first, also where that was an error. What is sent is JSON: the id, and
    either what the answer says or `error`.

    Args:
        table: One row per request that was answered. Has the columns `key`, `at` and `error`, and those that an answer
            gives values of.
        key: The field that is a request's id, a text.
        queue: The name of the queue that answers are sent to; see `from_env`.
        answer: Made when a shift begins; told the requests of a batch (their fields), and every few seconds none. A
            request that makes it raise is told so, and the others of its batch are answered. Where the world is in the
            way, it raises `Transient` or an `OSError`, and is asked again for a minute.
        at: The column that says when a request was answered.

    Raises:
        StreamRefused: the table lacks a column, or no queue can have that name.
    """

    table: Table
    key: str
    queue: str
    answer: Callable[[Workplace], Answerer]
    at: str

    def __post_init__(self) -> None:
        require_queue_name(f"answers in {self.table.name}", self.queue)
        wanted = {self.key: "string", self.at: "timestamp", ERROR: "string"}
        if missing := [f"{c} ({kind})" for c, kind in wanted.items() if self.table.columns.get(c) != kind]:
            raise StreamRefused(f"answers in {self.table.name}: the table lacks {', '.join(missing)}")

    def __call__(self, place: Workplace) -> Answers:
        """The reaction, at work.

        Raises:
            StreamRefused: the stream's messages are no requests, or of a topic, where nothing comes again.
        """
        from dagster_tidemark.streams.answer_reaction import Answers
        from dagster_tidemark.streams.transport import declared_queue

        stream = place.stream
        if stream.topic is not None:
            raise StreamRefused(f"stream {stream.name}: requests come from a queue, which gives a lost one again")
        if self.key not in stream.required:
            raise StreamRefused(f"stream {stream.name}: {self.key} is the id of a request, so it has to be required")
        return Answers(self, place, lambda: declared_queue(self.queue, place.settings))
