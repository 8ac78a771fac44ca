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
from typing import Any

from pyspark.errors import PySparkException

from dagster_tidemark.failpoints import reached
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.manifests import NoManifest, read_manifest
from dagster_tidemark.sources.notification_queue import DeleteRefused, MessageSink
from dagster_tidemark.sources.received_messages import ReceivedMessage
from dagster_tidemark.streams import rejected_messages
from dagster_tidemark.streams.deliveries.answer import Answer, Status, no_manifest
from dagster_tidemark.streams.deliveries.verdict import Verdicts
from dagster_tidemark.streams.reports import ReportReceiver
from dagster_tidemark.streams.shift_metrics import ShiftCounts
from dagster_tidemark.streams.shift_retries import OF_THE_WORLD, Chore, is_of_the_world, told

_WAIT_SECONDS = 2.0
_LONGEST_PAUSE = 30.0  # between two checks for missing files


@dataclass
class MessageInHand:
    """An unfinished message, and the history of its handling.

    Args:
        record: The message.
        chore: Its handling, with the time of the next attempt.
        looks: The number of times its delivery was found incomplete.
        answered: The answer that was already sent; empty if there is none.
    """

    record: ReceivedMessage
    chore: Chore
    looks: int = 0
    answered: str = ""

    @property
    def body(self) -> str:
        """The message's text."""
        return self.record.body.decode(errors="surrogateescape")


@dataclass
class Delivering:
    """One run that handles deliveries.

    Args:
        verdicts: Judges and loads deliveries.
        inlet: The messages.
        outlet: The queue of the answers.
        events: Receives the reports to Dagster.
        ends: Returns the reason to end; None as long as the run should work.
        log: Receives faults and outcomes.
    """

    verdicts: Verdicts
    inlet: QueueInlet
    outlet: MessageSink
    events: ReportReceiver
    ends: Callable[[], str | None]
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))
    counts: ShiftCounts = field(default_factory=ShiftCounts)
    looked_at: float = field(default_factory=time.time)
    """Time of the last read of the queue (Unix seconds)."""
    lag: float = 0.0
    """Seconds from the sending of the last settled message to its answer."""
    _held: dict[str, MessageInHand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._receiving = Chore(f"receiving messages from {self.inlet.name}", self.log)

    @property
    def hindrance(self) -> str:
        """The fault that prevents reading the queue or handling a message; empty if there is none."""
        in_hand = list(self._held.values())  # a copy, because the heartbeat's thread reads this
        chores = (self._receiving, *(held.chore for held in in_hand))
        return next((f"{chore.name}: {chore.fault}" for chore in chores if chore.fault), "")

    def work(self) -> str:
        """Work until there is a reason to end, and return the reason."""
        try:
            while (why := self.ends()) is None:
                self.step()
            return why
        finally:
            self.inlet.close()

    def step(self) -> bool:
        """Receive messages, and handle each due message once. Return True if any message was due."""
        if self._receiving.attempt(self._receive, now=True):
            self.looked_at = time.time()
        else:  # messages in hand are still handled
            time.sleep(min(self._receiving.failures, _WAIT_SECONDS))
        now = time.monotonic()
        due = [held for held in self._held.values() if held.chore.again_at <= now]
        for held in sorted(due, key=lambda held: held.record.sent_at):
            self._try(held)
            if self.ends() is not None:
                break
        return bool(due)

    def _receive(self) -> None:
        """Receive messages. Stop waiting when a message in hand becomes due."""
        began = time.monotonic()
        next_at = min((held.chore.again_at for held in self._held.values()), default=began + _WAIT_SECONDS)
        wait = min(max(next_at - began, 0.0), _WAIT_SECONDS)
        batch = self.inlet.receive(None, int(wait))
        records = batch.records if batch is not None else ()
        if all(record.message_id in self._held for record in records):
            time.sleep(max(0.0, began + wait - time.monotonic()))  # a queue waits only for whole seconds
        self._held = {record.message_id: self._held.get(record.message_id) or self._new(record) for record in records}

    def _new(self, record: ReceivedMessage) -> MessageInHand:
        return MessageInHand(
            record, Chore(f"message {record.message_id}", self.log, is_vital=True, is_outage=_is_outage)
        )

    def _try(self, held: MessageInHand) -> None:
        try:
            held.chore.attempt(lambda: self._handle(held))
        except Exception:  # a bug that one message triggers must not stop the other messages
            self.log.exception("%s cannot be handled, and is returned to the queue", held.chore.name)
            self.counts.failed += 1
            self._held.pop(held.record.message_id)
            try:
                self.inlet.give_up(held.record.message_id)
            except OF_THE_WORLD as error:  # the queue delivers it again by itself
                self.log.warning("%s could not be returned to the queue: %s", held.chore.name, told(error))

    def _handle(self, held: MessageInHand) -> None:
        reached("stream_received")
        declared, posted_at = self.verdicts.declared, held.record.sent_at
        try:
            manifest = read_manifest(held.body, declared.prefix)
        except NoManifest as fault:
            answer = no_manifest(fault.delivery_id, str(fault), posted_at)
            self._settle(held, answer, held.record.source, held.record.message_id)
            return
        left = posted_at.timestamp() + declared.patience.total_seconds() - time.time()
        # Check at least twice, even if the message arrived late: a file may just be in the process of being written.
        found = self.verdicts.on(manifest, posted_at, is_last=left <= 0 and held.looks > 0)
        if found is not None:
            self._settle(held, found, manifest.folder, manifest.digest)
            return
        held.looks += 1
        pause = growing_pause(held.looks, 1.0, _LONGEST_PAUSE)
        held.chore.again_at = time.monotonic() + (min(pause, left) if left > 0 else pause)
        if held.looks == 1:
            self.log.info("delivery %s: waiting for missing files", manifest.delivery_id)

    def _settle(self, held: MessageInHand, answer: Answer, source: str, version: str) -> None:
        """Write the quarantine entry, answer, report and acknowledge. A kill may repeat steps, but skips none."""
        declared, lake = self.verdicts.declared, self.verdicts.lake
        is_loaded = answer.status is Status.LOADED
        if answer.is_refusal:
            entry = _entry(answer, held.body, source, version)
            rejected_messages.enter_all(lake, declared.asset, [entry], declared.code_version)
        elif is_loaded and answer.delivery_id is not None:
            rejected_messages.forget(lake, declared.asset, answer.delivery_id)
        reached("stream_rejected")
        if held.answered != (body := answer.body()):  # equal if an earlier try failed after sending the answer
            level = logging.WARNING if answer.is_refusal else logging.INFO
            self.log.log(level, "delivery %s %s: %s", answer.delivery_id, answer.status, answer.message)
            self.outlet.send([body])
            held.answered = body
        reached("stream_published")
        # A message that repeats an earlier one has written nothing.
        if is_loaded and answer.posted_at == held.record.sent_at:
            self.events.materialized(declared.asset, _metadata(answer))
        reached("stream_reported")
        try:
            self.inlet.delete([held.record.message_id])
        except DeleteRefused as error:
            self.log.warning("%s will be delivered again: %s", held.chore.name, told(error))
        self._held.pop(held.record.message_id)
        reached("stream_acknowledged")
        self.lag = max(0.0, time.time() - held.record.sent_at.timestamp())
        self.counts.commits += 1
        self.counts.added += is_loaded
        self.counts.refused += answer.is_refusal


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, PySparkException) or is_of_the_world(error)


def _entry(answer: Answer, content: str, source: str, version: str) -> dict[str, Any]:
    return {
        "partition": answer.delivery_id,
        "source_file": source,
        "source_version": version,
        "arrived_at": answer.posted_at,
        "row_number": None,
        "content": content,
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
