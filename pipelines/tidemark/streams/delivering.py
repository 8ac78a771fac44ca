"""The run that sees to deliveries: message, verdict, entry, answer, report, acknowledgement.

Killed anywhere it loses nothing and doubles nothing: what is loaded stands in the table's rows, an answer follows from
them, and a message that was not acknowledged comes again. Belongs here: the order of the steps, and what is done when
one of them fails. Does not belong here: the verdict (`delivery_verdict`) and how it is said (`delivery_answer`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pyspark.errors import PySparkException
from sqlalchemy.exc import SQLAlchemyError

from pipelines.tidemark.errors import Transient
from pipelines.tidemark.failpoints import reached
from pipelines.tidemark.sources.manifests import NoManifest, read_manifest
from pipelines.tidemark.sources.messages import Message, MessageSink
from pipelines.tidemark.streams import rejects
from pipelines.tidemark.streams.delivery_answer import Answer, Status, no_manifest
from pipelines.tidemark.streams.delivery_verdict import Verdicts
from pipelines.tidemark.streams.in_hand import Held, InHand
from pipelines.tidemark.streams.reports import EventLog
from pipelines.tidemark.streams.shift import told

_WORLD = (Transient, OSError, PySparkException, SQLAlchemyError, BotoCoreError, ClientError)
"""What says nothing of a delivery: it stays in hand until the world is back."""

_WAIT_SECONDS = 2.0
_LONGEST_PAUSE = 30.0  # between two looks for files that are missing
_LONGEST_BACKOFF = 15.0
_TRIES_OF_A_BUG = 3


@dataclass
class Counts:
    """What became of the messages of a run."""

    loaded: int = 0
    refused: int = 0
    superseded: int = 0
    failed: int = 0


@dataclass
class Delivering:
    """One run at deliveries.

    Args:
        verdicts: On what is delivered.
        in_hand: The messages.
        connect: Gives the queue of the answers.
        events: How Dagster hears of it.
        ends: A reason once the run is to end.
        log: Where its sentences go.
    """

    verdicts: Verdicts
    in_hand: InHand
    connect: Callable[[], MessageSink]
    events: EventLog
    ends: Callable[[], str | None]
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))
    counts: Counts = field(default_factory=Counts)
    _answers: MessageSink | None = None
    _faults: int = 0

    def work(self) -> str:
        """Work until it is to end. Returns why."""
        try:
            while (why := self.ends()) is None:
                self.step()
            return why
        finally:
            self.in_hand.close()

    def step(self) -> bool:
        """Take what there is, and see once to each message that is due. Returns whether there was any."""
        try:
            self.in_hand.receive(_WAIT_SECONDS)
            self._faults = 0
        except Exception as error:
            self._faults += 1
            if self._faults == 1:
                self.log.warning("no messages can be received, tried again: %s", told(error))
            time.sleep(_growing(self._faults, _WAIT_SECONDS))
        due = self.in_hand.due()
        for held in due:
            self._try(held)
            if self.ends() is not None:
                break
        return bool(due)

    def _try(self, held: Held) -> None:
        try:
            self._see_to(held)
        except _WORLD as error:
            held.failures += 1
            held.again_in(_growing(held.failures, _LONGEST_BACKOFF))
            self.log.warning("message %s: tried again in a moment: %s", held.message.message_id, told(error))
        except Exception:
            held.failures += 1
            held.again_in(held.failures)
            self.log.exception("message %s cannot be seen to", held.message.message_id)
            if held.failures >= _TRIES_OF_A_BUG:  # its neighbours do not wait for it
                self.counts.failed += 1
                self.in_hand.let_go(held)

    def _see_to(self, held: Held) -> None:
        reached("stream_received")
        declared, settings = self.verdicts.declared, self.verdicts.settings
        message, posted_at = held.message, _posted_at(held.message)
        try:
            manifest = read_manifest(message.body, declared.prefix)
        except NoManifest as fault:
            answer = no_manifest(fault.delivery_id, str(fault), posted_at)
            self._settle(held, answer, f"sqs:{declared.queue_in(settings)}", message.message_id)
            return
        left = posted_at.timestamp() + declared.patience.total_seconds() - time.time()
        # Twice at least, however long the message was on its way: a file may be written in this very moment.
        found = self.verdicts.on(manifest, posted_at, is_last=left <= 0 and held.looks > 0)
        held.failures = 0
        if found is not None:
            self._settle(held, found, manifest.folder, manifest.digest)
            return
        held.looks += 1
        pause = _growing(held.looks, _LONGEST_PAUSE)
        held.again_in(min(pause, left) if left > 0 else pause)
        if held.looks == 1:
            self.log.info("delivery %s: files are missing and waited for", manifest.delivery_id)

    def _settle(self, held: Held, answer: Answer, source: str, version: str) -> None:
        """Enter, answer, report, acknowledge: each may be done twice, and none is left out."""
        declared, lake = self.verdicts.declared, self.verdicts.lake
        if answer.is_refusal:
            entry = _entry(answer, held.message, source, version)
            rejects.enter_all(lake, declared.asset, [entry], declared.code_version)
        elif answer.status is Status.LOADED and answer.delivery_id is not None:
            rejects.forget(lake, declared.asset, answer.delivery_id)
        reached("stream_rejected")
        if held.answered != (body := answer.body()):  # unless what comes after it has failed
            level = logging.WARNING if answer.is_refusal else logging.INFO
            self.log.log(level, "delivery %s %s: %s", answer.delivery_id, answer.status, answer.message)
            self._send(body)
            held.answered = body
        reached("stream_published")
        # Of a message that says the same as an earlier one nothing was written.
        if answer.status is Status.LOADED and answer.posted_at == _posted_at(held.message):
            self.events.materialized(declared.asset, _metadata(answer))
        reached("stream_reported")
        try:
            self.in_hand.done(held)
        except _WORLD as error:
            self.log.warning("message %s comes again: %s", held.message.message_id, told(error))
        reached("stream_acknowledged")
        self.counts.loaded += answer.status is Status.LOADED
        self.counts.refused += answer.is_refusal
        self.counts.superseded += answer.status is Status.SUPERSEDED

    def _send(self, body: str) -> None:
        self._answers = self._answers or self.connect()
        try:
            self._answers.send([body])
        except BaseException:
            self._answers = None
            raise


def _growing(times: int, longest: float) -> float:
    return min(2.0 ** min(times, 10) / 2, longest)


def _posted_at(message: Message) -> datetime:
    return datetime.fromtimestamp(round(message.sent_at, 3), UTC)


def _entry(answer: Answer, message: Message, source: str, version: str) -> dict[str, Any]:
    return {
        "partition": answer.delivery_id,
        "source_file": source,
        "source_version": version,
        "arrived_at": answer.posted_at,
        "row_number": None,
        "content": message.body,
        "reason": next(iter(answer.reasons), str(answer.status)),
        "message": answer.message,
    }


def _metadata(answer: Answer) -> dict[str, int | float | str]:
    said: dict[str, int | float | str] = {
        "delivery_id": answer.delivery_id or "",
        "rows": answer.rows,
        "files": len(answer.files),
        "manifest": answer.manifest or "",
    }
    return said | ({"replaces": answer.replaces} if answer.replaces else {})
