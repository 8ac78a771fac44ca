"""The run that handles deliveries: message, verdict, quarantine entry, answer, report, acknowledgement.

A run that is killed at any step loses and duplicates nothing: the table's rows record each loaded delivery, an answer
follows from the rows, and the queue delivers an unacknowledged message again. Belongs here: the order of the steps, and
the response to a failed step. Does not belong here: the verdict (`verdict`) and its text (`answer`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import PySparkException

from dagster_tidemark.failpoints import reached
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sources.manifests import NoManifest, read_manifest
from dagster_tidemark.sources.notification_queue import Message, MessageSink
from dagster_tidemark.streams import rejected_messages
from dagster_tidemark.streams.deliveries.answer import Answer, Status, no_manifest
from dagster_tidemark.streams.deliveries.verdict import Verdicts
from dagster_tidemark.streams.messages_in_hand import InHand, MessageInHand
from dagster_tidemark.streams.reports import ReportReceiver
from dagster_tidemark.streams.shift_retries import LONGEST_BACKOFF, OF_THE_WORLD, TRIES_OF_A_BUG, is_of_the_world, told

_WAIT_SECONDS = 2.0
_LONGEST_PAUSE = 30.0  # between two checks for missing files


@dataclass
class DeliveryCounts:
    """Numbers of messages of a run, by outcome."""

    loaded: int = 0
    refused: int = 0
    superseded: int = 0
    failed: int = 0

    @property
    def commits(self) -> int:
        """Number of settled messages."""
        return self.loaded + self.refused + self.superseded

    @property
    def added(self) -> int:
        """Number of loaded deliveries."""
        return self.loaded


@dataclass
class Delivering:
    """One run that handles deliveries.

    Args:
        verdicts: Judges and loads deliveries.
        in_hand: The messages.
        connect: Opens the queue of the answers.
        events: Receives the reports to Dagster.
        ends: Returns the reason to end; None as long as the run should work.
        log: Receives faults and outcomes.
    """

    verdicts: Verdicts
    in_hand: InHand
    connect: Callable[[], MessageSink]
    events: ReportReceiver
    ends: Callable[[], str | None]
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))
    counts: DeliveryCounts = field(default_factory=DeliveryCounts)
    looked_at: float = field(default_factory=time.time)
    """Time of the last read of the queue (Unix seconds)."""
    hindrance: str = ""
    """The fault that prevents reading the queue or loading a delivery; empty if there is none."""
    lag: float = 0.0
    """Seconds from the sending of the last settled message to its answer."""
    _answers: MessageSink | None = None
    _faults: int = 0
    _failing: dict[str, str] = field(default_factory=dict)
    """The fault of the last try, by message id."""

    def work(self) -> str:
        """Work until there is a reason to end, and return the reason."""
        try:
            while (why := self.ends()) is None:
                self.step()
            return why
        finally:
            self.in_hand.close()

    def step(self) -> bool:
        """Receive messages, and handle each due message once. Return True if any message was due."""
        try:
            self.in_hand.receive(_WAIT_SECONDS)
            self._faults, self.looked_at = 0, time.time()
            self.hindrance = next(iter(self._failing.values()), "")
        except Exception as error:  # any error of a client; messages in hand are still handled
            self._faults, self.hindrance = self._faults + 1, told(error)
            if self._faults == 1:
                self.log.warning("no messages can be received; retrying: %s", told(error))
            time.sleep(growing_pause(self._faults, 1.0, _WAIT_SECONDS))
        due = self.in_hand.due()
        for held in due:
            self._try(held)
            if self.ends() is not None:
                break
        return bool(due)

    def _try(self, held: MessageInHand) -> None:
        message_id = held.message.message_id
        try:
            self._see_to(held)
            self._failing.pop(message_id, None)
        except Exception as error:  # a bug that one message triggers must not stop the other messages
            held.failures += 1
            if isinstance(error, PySparkException) or is_of_the_world(error):  # in hand until the service recovers
                self._failing[message_id] = f"message {message_id}: {told(error)}"
                held.again_in(growing_pause(held.failures, 1.0, LONGEST_BACKOFF))
                self.log.warning("message %s failed and is retried: %s", message_id, told(error))
                return
            held.again_in(held.failures)
            self.log.exception("message %s cannot be handled", message_id)
            if held.failures >= TRIES_OF_A_BUG:  # other messages must not wait for this one
                self._failing.pop(message_id, None)
                self.counts.failed += 1
                self._let_go(held)

    def _let_go(self, held: MessageInHand) -> None:
        try:
            self.in_hand.let_go(held)
        except OF_THE_WORLD as error:  # the queue delivers it again by itself
            self.log.warning("message %s could not be released to the queue: %s", held.message.message_id, told(error))

    def _see_to(self, held: MessageInHand) -> None:
        reached("stream_received")
        declared = self.verdicts.declared
        message, posted_at = held.message, _posted_at(held.message)
        try:
            manifest = read_manifest(message.body, declared.prefix)
        except NoManifest as fault:
            answer = no_manifest(fault.delivery_id, str(fault), posted_at)
            self._settle(held, answer, f"sqs:{declared.queue}", message.message_id)
            return
        left = posted_at.timestamp() + declared.patience.total_seconds() - time.time()
        # Check at least twice, even if the message arrived late: a file may just be in the process of being written.
        found = self.verdicts.on(manifest, posted_at, is_last=left <= 0 and held.looks > 0)
        held.failures = 0
        if found is not None:
            self._settle(held, found, manifest.folder, manifest.digest)
            return
        held.looks += 1
        pause = growing_pause(held.looks, 1.0, _LONGEST_PAUSE)
        held.again_in(min(pause, left) if left > 0 else pause)
        if held.looks == 1:
            self.log.info("delivery %s: waiting for missing files", manifest.delivery_id)

    def _settle(self, held: MessageInHand, answer: Answer, source: str, version: str) -> None:
        """Write the quarantine entry, answer, report and acknowledge. A kill may repeat steps, but skips none."""
        declared, lake = self.verdicts.declared, self.verdicts.lake
        if answer.is_refusal:
            entry = _entry(answer, held.message, source, version)
            rejected_messages.enter_all(lake, declared.asset, [entry], declared.code_version)
        elif answer.status is Status.LOADED and answer.delivery_id is not None:
            rejected_messages.forget(lake, declared.asset, answer.delivery_id)
        reached("stream_rejected")
        if held.answered != (body := answer.body()):  # equal if an earlier try failed after sending the answer
            level = logging.WARNING if answer.is_refusal else logging.INFO
            self.log.log(level, "delivery %s %s: %s", answer.delivery_id, answer.status, answer.message)
            self._send(body)
            held.answered = body
        reached("stream_published")
        # A message that repeats an earlier one has written nothing.
        if answer.status is Status.LOADED and answer.posted_at == _posted_at(held.message):
            self.events.materialized(declared.asset, _metadata(answer))
        reached("stream_reported")
        try:
            self.in_hand.done(held)
        except OF_THE_WORLD as error:
            self.log.warning("message %s will be delivered again: %s", held.message.message_id, told(error))
        reached("stream_acknowledged")
        self.lag = max(0.0, time.time() - held.message.sent_at)
        self.counts.loaded += answer.status is Status.LOADED
        self.counts.refused += answer.is_refusal
        self.counts.superseded += answer.status is Status.SUPERSEDED

    def _send(self, body: str) -> None:
        self._answers = self._answers or self.connect()
        try:
            self._answers.send([body])
        except BaseException:  # a client in an unknown state is not used again
            self._answers = None
            raise


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
