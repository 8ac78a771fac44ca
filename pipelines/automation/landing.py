"""The landing sensor: from notifications to observations.

Belongs here: taking messages from the queue, when they may be deleted, and what a tick says. Does not belong here:
what a message means (`sources.hints`) and what a look at the bucket finds (`automation.observing`).
"""

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache

import dagster as dg

from pipelines.automation import adapter
from pipelines.automation.asset_graph import AnyGraph
from pipelines.automation.catch_up import due_now
from pipelines.automation.ledger import EventLog, Ledger, holds_files, source_key
from pipelines.automation.observing import Found, observe
from pipelines.boundaries import reached
from pipelines.resources.aws import LandingResource, QueueResource
from pipelines.sources.feed import Feed, Partition
from pipelines.sources.hints import Stray, Zone
from pipelines.sources.listing import Bucket
from pipelines.sources.messages import DeleteRefused, Hold, Message, holding

# Dagster looks every five seconds whether a tick has ended. One that ends before makes a message wait a second at most,
# and lets Ctrl-C end everything within as many seconds: who waits for a message hears no signal.
_WAIT_SECONDS = 4
_DRAIN_SECONDS = 15.0
_MOST_MESSAGES = 10_000
_MOST_PARTITIONS = 400  # a listing each, and Dagster gives up on a tick after 60 s
_AT_ONCE = 4
_FULL = 10
_TOLD = 20
_DAY = re.compile(r"dt=(\d{4}-\d{2}-\d{2})/", re.ASCII)


@dataclass
class Received:
    """What one tick took from the queue, and what it says."""

    messages: list[Message] = field(default_factory=list)  # understood: to be deleted once all is observed
    notified: dict[tuple[Feed, Partition], datetime] = field(default_factory=dict)
    strays: list[Stray] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # a reason for each message that stays on the queue

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.messages) + len(self.refused)

    def add(self, message: Message, zone: Zone) -> None:
        """Take a message for what it says."""
        said = zone.read(message.body)
        for hint in said.hints:
            at = (hint.feed, hint.partition)
            self.notified[at] = min(hint.notified_at, self.notified.get(at, hint.notified_at))
        self.strays += said.strays
        if said.refused:
            self.refused.append("; ".join(said.refused))
        else:
            self.messages.append(message)


@dataclass(frozen=True)
class Tick:
    """What a tick did."""

    received: Received
    found: Found
    kept: str | None = None  # why the queue did not delete all that was understood

    def __str__(self) -> str:
        taken, found = self.received, self.found
        observed, looked = len(found.changed), len(taken.notified)
        said = (
            f"received {taken.count}, partitions {looked}, observed {observed}, "
            f"unchanged {looked - observed - found.held}, refused {len(taken.refused)}"
        )
        if taken.strays:
            said += f", outside the layout {len(taken.strays)}"
        return said + (f", removals held {found.held}" if found.held else "")


def landing_sensor(feeds: Sequence[Feed], start: date) -> dg.SensorDefinition:
    """The sensor on the queue of the landing bucket's notifications.

    Args:
        start: The first day of which there are partitions.
    """

    @dg.sensor(
        name="landing",
        asset_selection=dg.AssetSelection.all(),  # it also asks for the runs of what is due by its news
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def landing_events(
        context: dg.SensorEvaluationContext, events_queue: QueueResource, landing: LandingResource
    ) -> dg.SensorResult | dg.SkipReason:
        """Looks again at the partitions that notifications name, observes what changed and starts what is due."""
        bucket = landing.open()
        zone = Zone(bucket.name, feeds, start)
        with holding(events_queue.open()) as hold:
            tick = take(hold, zone, bucket, EventLog(context.instance))
        _tell(context, tick, hold)
        due = due_now(context) if tick.received.count else []
        requests = [*due, *looks_for_strays(context, tick.received.strays, due)]
        if not requests:
            return dg.SkipReason(str(tick))
        context.log.info(str(tick))
        return dg.SensorResult(run_requests=requests)

    return landing_events


def take(hold: Hold, zone: Zone, bucket: Bucket, ledger: Ledger) -> Tick:
    """One tick: receive, look, observe, and only then delete; what was received and not observed comes back."""
    received = drain(hold, zone)
    if not received.count:
        return Tick(received, Found())
    reached("after_receive")
    found = observe(ledger, bucket, received.notified)
    reached("before_delete")
    kept = None
    try:
        hold.queue.delete(received.messages)
    except DeleteRefused as refused:  # held for too short; all that they led to is durable
        kept = str(refused)
    reached("after_delete")
    return Tick(received, found, kept)


def drain(hold: Hold, zone: Zone) -> Received:
    """Wait for a message and take what else is there, within bounds of time and number."""
    received = Received()
    deadline = time.monotonic() + _DRAIN_SECONDS
    batch = _receive(hold, _WAIT_SECONDS)
    while batch:
        for message in batch:
            received.add(message, zone)
        is_enough = received.count >= _MOST_MESSAGES or len(received.notified) >= _MOST_PARTITIONS
        if is_enough or time.monotonic() > deadline:
            break
        batch = _receive(hold, 0) if len(batch) < _FULL else _receive_backlog(hold)
    return received


def _receive_backlog(hold: Hold) -> list[Message]:
    # Patient calls, because an impatient one asks only some of SQS's servers.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [message for some in pool.map(lambda _: _receive(hold, 1), range(_AT_ONCE)) for message in some]


def looks_for_strays(
    context: dg.SensorEvaluationContext, strays: Sequence[Stray], due: Sequence[dg.RunRequest] = ()
) -> list[dg.RunRequest]:
    """Runs that put strays into the quarantine: a load also sees what lies among and beside its partition's files.

    Args:
        due: What this tick asks for anyway; it is not asked for twice.
    """
    graph = context.repository_def.asset_graph if context.repository_def and strays else None
    if not graph:
        return []
    loads = {(key, run.partition_key) for run in due for key in run.asset_selection or ()}
    requests = []
    for (feed, partition), days in sorted(_looks(context, graph, strays).items(), key=_by_name):
        keys = sorted(graph.get(source_key(feed)).child_keys)
        if days or not loads.issuperset((key, partition) for key in keys):
            tags = {adapter.DAYS: " ".join(sorted(days))} if days else {}
            requests.append(dg.RunRequest(asset_selection=keys, partition_key=partition, tags=tags))
    return requests


def _looks(
    context: dg.SensorEvaluationContext, graph: AnyGraph, strays: Sequence[Stray]
) -> dict[tuple[Feed, str], set[str]]:
    """Which partitions to load for strays, and of which days those loads are to be told.

    For each the partition it lies in; in none, one that holds files, of the stray's own day if there is one, else told
    of that day; without any, the feed's first load will see it.
    """

    @cache  # one look at the event log a feed, however many strays there are
    def holding(feed: Feed) -> list[str]:
        seen = EventLog(context.instance).latest(feed)
        return sorted(p for p, tags in seen.items() if p is not None and holds_files(tags))

    wanted: dict[tuple[Feed, str], set[str]] = {}
    for stray in strays:
        feed, around = stray.feed, stray.feed.partition_around(stray.key)
        partitions = graph.get(source_key(feed)).partitions_def
        if around and partitions and partitions.has_partition_key(around):
            wanted.setdefault((feed, around), set())
        elif holding(feed):
            of_its_day = [p for p in holding(feed) if f"dt={p[:10]}/" in stray.key]
            day = _DAY.match(stray.key.removeprefix(feed.prefix))
            wanted.setdefault((feed, (of_its_day or holding(feed))[-1]), set()).update([day[1]] if day else [])
    return wanted


def _by_name(look: tuple[tuple[Feed, str], set[str]]) -> tuple[str, str]:
    (feed, partition), _ = look
    return feed.name, partition


def _receive(hold: Hold, wait_seconds: int) -> list[Message]:
    messages = hold.queue.receive(wait_seconds)
    hold.add(messages)
    return messages


def _tell(context: dg.SensorEvaluationContext, tick: Tick, hold: Hold) -> None:
    for reason in tick.received.refused[:_TOLD]:
        context.log.warning(f"left for the dead-letter queue: {reason}")
    for stray in tick.received.strays[:_TOLD]:
        context.log.warning(f"not loaded: {stray.reason}")
    for alarm in tick.found.alarms.values():
        context.log.error(alarm)
    if tick.kept:
        context.log.warning(tick.kept)
    if hold.fault:
        context.log.warning(f"messages may be delivered again, their hold could not be extended: {hold.fault}")
