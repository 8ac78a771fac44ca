"""The landing sensor: from notifications to observations.

Belongs here: receiving and deleting messages of the queue, and the summary of a tick. Does not belong here: the meaning
of a message (`sources.s3_events`), and the comparison with the bucket (`sensors.change_detection`).
"""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import dagster as dg

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine.doubts import LANDING, Looked, note_look
from dagster_tidemark.engine.engine import engine_of
from dagster_tidemark.event_log.observations import QUARANTINE, ObservationLedger, holds_files, source_key
from dagster_tidemark.failpoints import reached
from dagster_tidemark.resources.aws import LandingResource, QueueResource
from dagster_tidemark.sensors.catch_up import due_now
from dagster_tidemark.sensors.change_detection import DetectedChanges, observe, observe_beside
from dagster_tidemark.sensors.cursors import cursor_of
from dagster_tidemark.sensors.own_listings import OwnListings
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import Bucket, BucketUnavailable
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.sources.notification_queue import (
    DeleteRefused,
    Hold,
    Message,
    QueueUnavailable,
    are_sent_since,
    holding,
)
from dagster_tidemark.sources.s3_events import LandingZone, ReadsMessage, Stray
from dagster_tidemark.sources.sqs import SqsQueue

# Dagster checks every five seconds if a tick has ended. A wait below five seconds delays the next message by at most a
# second. It also lets Ctrl-C end the process within seconds, because signals are not handled during the wait.
_WAIT_SECONDS = 4
_DRAIN_SECONDS = 15.0
_MOST_MESSAGES = 10_000
_MOST_PARTITIONS = 400  # each needs a listing, and Dagster gives up on a tick after 60 s
_BACKLOG = f"a tick reads about {_MOST_PARTITIONS} partitions or {_MOST_MESSAGES:,} messages at a time"
_AT_ONCE = 4
_PAUSE_SECONDS = 10.0  # between two runs that only record misplaced files
_SLOW_SECONDS = 5.0  # the client repeats a request after ten seconds without an answer
_FULL = 10
_TOLD = 20

logger = logging.getLogger(__name__)

_Look = tuple[Feed, str | None]
"""A place to list: a partition, or a folder outside the partitions."""


@dataclass
class Received:
    """Messages that one tick received, and their content."""

    messages: list[tuple[Message, frozenset[_Look]]] = field(default_factory=list)  # parsed without refusals
    notified: dict[tuple[Feed, Partition], datetime] = field(default_factory=dict)
    strays: list[Stray] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # a reason for each message that stays on the queue
    backlog: str = ""  # why messages may wait that this tick did not receive; empty if it read the queue to its end
    is_hindered: bool = False  # a receive failed or was repeated, so its messages may be hidden from this sensor

    @property
    def count(self) -> int:
        """Number of received messages."""
        return len(self.messages) + len(self.refused)

    @property
    def beside(self) -> dict[Feed, set[str]]:
        """Misplaced folders named by notifications."""
        found: dict[Feed, set[str]] = {}
        for stray in self.strays:
            found.setdefault(stray.feed, set()).add(stray.place.folder)
        return found

    def add(self, message: Message, zone: LandingZone) -> None:
        """Parse a message and add its content."""
        said = zone.read(message.body)
        for hint in said.hints:
            at = (hint.feed, hint.partition)
            self.notified[at] = min(hint.notified_at, self.notified.get(at, hint.notified_at))
        self.strays += said.strays
        if said.refused:
            self.refused.append("; ".join(said.refused))
        else:
            partitions = {(hint.feed, hint.partition) for hint in said.hints}
            folders = {(stray.feed, stray.place.folder) for stray in said.strays}
            self.messages.append((message, frozenset(partitions | folders)))


@dataclass(frozen=True)
class Taken:
    """Result of one tick of the landing sensor."""

    received: Received
    found: DetectedChanges
    kept: str | None = None  # the reason why some processed messages were not deleted

    def __str__(self) -> str:
        taken, found = self.received, self.found
        observed, looked = len(found.changed), len(taken.notified)
        failed = sum(look in taken.notified for look in found.failed)
        said = (
            f"received {taken.count}, partitions {looked}, observed {observed}, "
            f"unchanged {looked - observed - found.held - failed}, refused {len(taken.refused)}"
        )
        if taken.strays:
            said += f", outside the layout {len(taken.strays)}"
        if found.failed:
            said += f", could not be listed {len(found.failed)}"
        return said + (f", removals held {found.held}" if found.held else "")


def landing_sensor(
    feeds: Sequence[Feed],
    start: date,
    elsewhere: Sequence[Feed] = (),
    *,
    reads_message: ReadsMessage | None = None,
    scope: LocationScope = WHOLE_LOCATION,
) -> dg.SensorDefinition:
    """Return the sensor on the queue of the landing bucket's notifications.

    Args:
        start: The first day of the feeds' partitions.
        elsewhere: Other feeds of the bucket, which this sensor ignores.
        reads_message: Reads messages that are not S3 events.
    """
    others = tuple(feed.prefix for feed in elsewhere)
    own_listings_of = OwnListings.of_location(scope.location, feeds, start, lost_for=_WAIT_SECONDS)

    @dg.sensor(
        name=scope.named(LANDING),
        description="Lists the partitions that notifications name, reports changes, and requests runs that are due.",
        asset_selection=scope.assets,  # it also requests runs of partitions that become due
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def landing_events(
        context: dg.SensorEvaluationContext, tidemark_events_queue: QueueResource, tidemark_landing: LandingResource
    ) -> dg.SensorResult | dg.SkipReason:
        begun, bucket, location = time.monotonic(), tidemark_landing.open(), scope.location
        try:
            bucket.probe()
        except BucketUnavailable as fault:
            # Each receive counts towards a message's limit, so no message is received while none can be processed.
            context.log.warning(str(fault))
            note_look(context.instance, location, LANDING, Looked(hindrance=str(fault)))
            return dg.SkipReason(f"no message is received until the bucket answers: {fault}")
        zone, ledger, queue = (
            LandingZone(bucket.name, feeds, start, others, reads_message),
            ObservationLedger(context.instance, start),
            tidemark_events_queue.open(),
        )
        own_listings, asked_at = own_listings_of(context.instance, bucket.name), time.monotonic()
        try:
            with holding(queue) as hold:
                tick = take(hold, zone, bucket, ledger)
        except Exception as fault:  # from any client; noted for `tidemark status`, and raised again
            own_listings.after_faults.note_fault()
            said = f"the queue {tidemark_events_queue.queue} cannot be read: {type(fault).__name__}: {fault}"
            note_look(context.instance, location, LANDING, Looked(hindrance=said.partition("\n")[0]))
            raise
        if tick.received.is_hindered:
            own_listings.after_faults.note_fault()
        else:
            own_listings.after_faults.note_answer(asked_at)
        own_listings.after_faults.note_places(tick.received.notified, tick.found.failed)
        found = own_listings.step(context, ledger, bucket, begun)
        unlisted = {**own_listings.after_faults.unlisted, **tick.found.failed, **found.failed}
        failed = {feed.name: f"{feed.name} could not be listed: {why}" for (feed, _), why in unlisted.items()}
        note_look(context.instance, location, LANDING, Looked(time.time(), parts=failed, backlog=tick.received.backlog))
        _tell(context, tick, hold)
        if _is_new_minute(context):
            _count_dead_letters(context, queue, ledger)
        due = due_now(context, scope.settings, begun=begun) if tick.received.count or found.changed else []
        requests = [*due, *loads_for_misplaced(context, ledger, feeds, due, scope.settings)]
        if not requests:
            return dg.SkipReason(str(tick))
        context.log.info(str(tick))
        return dg.SensorResult(run_requests=requests)

    return landing_events


def take(hold: Hold, zone: LandingZone, bucket: Bucket, ledger: ObservationLedger) -> Taken:
    """Run one tick: receive messages, list and observe their partitions, then delete them.

    A message is delivered again if any of its partitions could not be listed.
    """
    received = drain(hold, zone)
    if not received.count:
        return Taken(received, DetectedChanges())
    reached("after_receive")
    found = observe(ledger, bucket, received.notified)
    found += observe_beside(ledger, bucket, received.beside)
    reached("before_delete")
    kept = None
    followed = [message for message, looks in received.messages if not looks & found.failed.keys()]
    hold.defer([message for message, looks in received.messages if looks & found.failed.keys()])
    try:
        hold.queue.delete(followed)
    except DeleteRefused as refused:  # the messages did not stay hidden for long enough; the observations are stored
        kept = str(refused)
    reached("after_delete")
    return Taken(received, found, kept)


def drain(hold: Hold, zone: LandingZone) -> Received:
    """Wait for a message and receive the waiting ones, within limits of time and number.

    If the queue fails after some messages were received, these messages are processed. The tick then receives nothing
    else, because each receive counts towards the limit of a message.
    """
    received, began = Received(), time.time()
    deadline = time.monotonic() + _DRAIN_SECONDS
    batch = _receive(hold, _WAIT_SECONDS, received)
    while batch:
        for message in batch:
            received.add(message, zone)
        to_look_at = len(received.notified) + sum(map(len, received.beside.values()))
        is_enough = received.count >= _MOST_MESSAGES or to_look_at >= _MOST_PARTITIONS
        if is_enough or time.monotonic() > deadline:
            if not are_sent_since(batch, began):  # new messages may arrive without a pause
                received.backlog = _BACKLOG
            break
        batch = _receive_more(hold, 0, received) if len(batch) < _FULL else _receive_backlog(hold, received)
    return received


def _receive_backlog(hold: Hold, received: Received) -> list[Message]:
    # Long polls, because a short poll queries only some of SQS's servers.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        polls = pool.map(lambda _: _receive_more(hold, 1, received), range(_AT_ONCE))
        return [message for some in polls for message in some]


def _receive_more(hold: Hold, wait_seconds: int, received: Received) -> list[Message]:
    try:
        return _receive(hold, wait_seconds, received)
    except Exception as fault:  # from any client; the next tick fails on it and reports it
        logger.warning("no more messages are received in this tick: %s", fault)
        received.backlog = f"the queue did not answer within the tick: {type(fault).__name__}"
        received.is_hindered = True
        return []


def loads_for_misplaced(
    context: dg.SensorEvaluationContext,
    ledger: ObservationLedger,
    feeds: Sequence[Feed],
    due: Sequence[dg.RunRequest] = (),
    settings: Settings | None = None,
) -> list[dg.RunRequest]:
    """Return a run for each feed whose misplaced files changed, because a load records them in the quarantine.

    The cursor contains the versions for which runs were requested. It is saved after the runs were created.

    Args:
        due: The other requests of this tick. A run that they already contain is not requested again.
    """
    graph = context.repository_def.asset_graph if context.repository_def else None
    asked = cursor_of(
        context, _asked_in, dict[str, tuple[str, float]](), "runs for misplaced files are requested again"
    )
    requests = []
    for feed in feeds:
        said = ledger.misplaced(feed) or {}
        version, (before, at) = _version_of(said), asked.get(feed.name, (_version_of({}), 0.0))
        if not graph or version == before or time.time() < at + _PAUSE_SECONDS:
            continue
        partitions = graph.get(source_key(feed)).partitions_def
        keys = _loads(context, graph, source_key(feed), settings)
        seen = ledger.latest(feed)
        holding = [p for p, tags in seen.items() if p and holds_files(tags)]
        there = [p for p in sorted(holding, reverse=True) if partitions and partitions.has_partition_key(p)]
        if not there or not keys:
            continue  # the feed's first load will record the files
        if not any(set(keys) <= set(run.asset_selection or ()) for run in due):
            requests.append(dg.RunRequest(asset_selection=keys, partition_key=there[0]))
        asked[feed.name] = (version, time.time())
    if asked or context.cursor:
        context.update_cursor(json.dumps(asked))
    return requests


def _asked_in(said: Any) -> dict[str, tuple[str, float]]:
    return {feed: (str(version), float(at)) for feed, (version, at) in said.items()}


def _loads(
    context: dg.SensorEvaluationContext, graph: AnyGraph, source: dg.AssetKey, settings: Settings | None
) -> list[dg.AssetKey]:
    """Return the assets with the source's partitions that are loaded from the source automatically."""
    engine, by, found = engine_of(context, graph, settings), graph.get(source).partitions_def, set[dg.AssetKey]()
    for key in graph.get(source).child_keys:
        is_load = dg.AssetCheckKey(key, QUARANTINE) in graph.get(key).check_keys
        if is_load and graph.get(key).automation_condition:
            together = graph.get(key).execution_set_asset_keys
            is_one_run = {graph.get(each).partitions_def for each in together} == {by}
            found |= together if is_one_run and not engine.no_run_of(key) else set()
    # Assets that can each run alone may not be able to run together.
    return sorted(found) if not engine.no_run_of_all(found, graph.get_check_keys_for_assets(found)) else []


def _count_dead_letters(context: dg.SensorEvaluationContext, queue: SqsQueue, ledger: ObservationLedger) -> None:
    try:
        given_up = queue.dead_letters()
    except QueueUnavailable as fault:  # such as a queue of another account; the requests of this tick are kept
        context.log.warning(f"the messages in the dead-letter queue cannot be counted: {fault}")
        return
    if given_up is not None:
        ledger.tell_dead_letters(given_up)


def _is_new_minute(context: dg.SensorEvaluationContext) -> bool:
    return int(time.time() / 60) > int((context.last_tick_completion_time or 0.0) / 60)


def _version_of(folders: Mapping[str, Misplaced]) -> str:
    lines = "\n".join(f"{name}\t{of.version}\t{of.reason}" for name, of in sorted(folders.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _receive(hold: Hold, wait_seconds: int, received: Received) -> list[Message]:
    begun = time.monotonic()
    messages = hold.queue.receive(wait_seconds)
    hold.add(messages)
    if time.monotonic() - begun > wait_seconds + _SLOW_SECONDS:
        received.is_hindered = True
    return messages


def _tell(context: dg.SensorEvaluationContext, tick: Taken, hold: Hold) -> None:
    for reason in tick.received.refused[:_TOLD]:
        context.log.warning(f"message left for the dead-letter queue: {reason}")
    for stray in tick.received.strays[:_TOLD]:
        context.log.warning(f"not loaded: {stray.place.message}")
    for (feed, place), fault in list(tick.found.failed.items())[:_TOLD]:
        context.log.warning(f"{feed.name} {place or ''} could not be listed; its messages will come again: {fault}")
    for alarm in tick.found.alarms.values():
        context.log.error(alarm)
    if tick.kept:
        context.log.warning(tick.kept)
    if hold.fault:
        context.log.warning(f"messages may be delivered again; their visibility timeout was not extended: {hold.fault}")
