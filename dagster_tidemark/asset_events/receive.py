"""Events of other deployments: from a queue to observations in the event log.

An event is reported before its message is deleted. A repeated event is recognized by its id, and an event older than
the last one of its partition changes nothing.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_tidemark.asset_events.event import AssetEvent, InvalidEvent, event_of
from dagster_tidemark.asset_graph.declarations import Refused
from dagster_tidemark.asset_graph.partition_keys import KeysOf
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.event_log.observations import time_in
from dagster_tidemark.failpoints import reached
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.notification_queue import are_sent_since
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, EVENT_ID, LISTED_AT

if TYPE_CHECKING:
    from dagster_tidemark.sources.sqs import SqsQueue

EXTRAS = "extras"
"""Metadata of observations and materializations: a small JSON object for readers of the asset."""
_WAIT_SECONDS = 4  # see `sensors.landing`
_SECONDS = 15.0
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_AHEAD = 60.0  # clocks of deployments differ; a later time would hide the events after it


@dataclass
class ReceivedEvents:
    """Result of one pass: numbers of events, and a reason for each refused message.

    Args:
        backlog: Why messages may wait that this pass did not receive; empty if it read the queue to its end.
    """

    reported: int = 0
    repeated: int = 0
    refused: list[str] = field(default_factory=list)
    backlog: str = ""

    def __str__(self) -> str:
        return f"reported {self.reported}, repeated or older {self.repeated}, refused {len(self.refused)}"


def take(
    queue: SqsQueue, instance: dg.DagsterInstance, graph: AnyGraph, assets: Collection[str], seconds: float = _SECONDS
) -> ReceivedEvents:
    """Receive waiting messages, report their events, and delete the messages.

    Args:
        graph: The assets of the code location, with their partitions.
        assets: Keys of the assets that senders may report.
        seconds: No batch is received after this time.
    """
    found, began, end = ReceivedEvents(), time.time(), time.monotonic() + seconds
    batch = queue.receive(_WAIT_SECONDS)
    while batch:
        done = []
        for message in batch:
            try:
                event = event_of(message.body)
                _require_known(event, instance, graph, assets)
            except InvalidEvent as why:
                is_moved = queue.dead_letter(message, str(why))
                found.refused.append(str(why) if is_moved else f"{why} (left for the dead-letter queue)")
                continue
            _report(event, instance, found)
            done.append(message)
        reached("before_delete")
        if done:
            queue.delete(done)
        if time.monotonic() >= end:
            if not are_sent_since(batch, began):  # new messages may arrive without a pause
                found.backlog = f"a tick reads for {seconds:.0f} s at a time"
            break
        batch = queue.receive(0)
    return found


def _require_known(event: AssetEvent, instance: dg.DagsterInstance, graph: AnyGraph, assets: Collection[str]) -> None:
    if event.asset not in assets:
        raise InvalidEvent(f"asset {event.asset}: expected one of {', '.join(sorted(assets))}; correct AssetEvents")
    by = graph.get(dg.AssetKey.from_user_string(event.asset)).partitions_def
    if by is None and event.partition is not None:
        raise InvalidEvent(f"asset {event.asset} has no partitions, found partition {event.partition}")
    if by is not None and event.partition is None:
        raise InvalidEvent(f"asset {event.asset} has partitions, found an event without one")
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        is_known = by is None or by.has_partition_key(str(event.partition))
    if not is_known or _is_no_window(by, event.partition):
        raise InvalidEvent(f"asset {event.asset} has no partition {event.partition}")
    if event.at > event_time.now() + _AHEAD:
        raise InvalidEvent(
            f"asset {event.asset}: at is in the future; correct the clock of {event.source or 'its sender'}"
        )


def _is_no_window(by: dg.PartitionsDefinition | None, partition: str | None) -> bool:
    """Return True for a key between two windows, such as 03:30 of hourly partitions. Dagster accepts it."""
    if not isinstance(by, dg.TimeWindowPartitionsDefinition | dg.MultiPartitionsDefinition):
        return False
    try:
        return KeysOf(Moment())(by).problem(partition) is not None
    except Refused:  # a definition that the planner cannot use
        return False


def _report(event: AssetEvent, instance: dg.DagsterInstance, found: ReceivedEvents) -> None:
    key = dg.AssetKey.from_user_string(event.asset)
    wanted = None if event.partition is None else {event.partition}
    last = event_storage.latest_observations(instance, key, wanted).get(event.partition, {})
    if last.get(EVENT_ID) == _as_tag(event.id) or _time_of(last) > event.at:
        found.repeated += 1
        return
    tags = {
        DATA_VERSION: _as_tag(event.version),
        ARRIVED_AT: f"{event.at:.3f}",
        LISTED_AT: f"{event.at:.3f}",
        EVENT_ID: _as_tag(event.id),
    }
    metadata: dict[str, Any] = {"event": event.id, "version": event.version}
    if event.extras:
        metadata[EXTRAS] = dg.MetadataValue.json(dict(event.extras))
    said = f"reported by {event.source}" if event.source else None
    instance.report_runless_asset_event(
        dg.AssetObservation(key, description=said, partition=event.partition, tags=tags, metadata=metadata)
    )
    found.reported += 1


def _time_of(tags: Mapping[str, str]) -> float:
    # Only events of this queue are compared: a person may report any observation in the UI.
    return (time_in(tags, LISTED_AT) or 0.0) if EVENT_ID in tags else 0.0


def _as_tag(text: str) -> str:
    """Return a text as the value of a tag of Dagster: unchanged if Dagster accepts it, else its hash."""
    return text if _TAG.fullmatch(text) else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
