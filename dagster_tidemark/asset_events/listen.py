"""One pass of a listener over the event log: which materializations it gets now, and what it remembers.

The position is kept in the cursor of the listener's sensor. It is saved after the calls, so a crash repeats calls and
skips none. On a database with several writers, an event can become visible after later ones: the pass looks for such
events for two minutes. Each call has a thread and a time limit: Dagster ends a tick after a minute without saving its
cursor, and would repeat the same slow calls at each tick.

Belongs here too: the extras of an asset's last event, a small JSON object that travels with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from dagster_tidemark.asset_events.declared import Listener
from dagster_tidemark.asset_events.event import AssetEvent
from dagster_tidemark.asset_events.receive import EXTRAS
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.planner.user_code import LimitedCall
from dagster_tidemark.tags import CONTENT, DATA_VERSION

_SECONDS = 20.0  # with the longest call less than the minute that a tick may take
_LONGEST_CALL = 30.0
_MOST_OPEN = 4  # calls at once, when their time limit has passed
_LONGEST_REASON = 300  # characters of an error in the cursor
_PAGE = 200
_LATE_SECONDS = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
_MOST_NAMED = 100  # assets in the cursor, which is written at each tick
_MOST_WAITING = 1_000  # with more failed events the listener takes no new ones
Context = dg.AssetExecutionContext | dg.OpExecutionContext | dg.AssetCheckExecutionContext | dg.SensorEvaluationContext


@dataclass
class FailedEvent:
    """An event on which the function raised.

    Args:
        since: Time of the first call (Unix seconds).
        next_at: Time of the next call.
    """

    asset: str
    since: float
    next_at: float
    tries: int
    why: str

    @classmethod
    def of(cls, said: Any) -> FailedEvent:
        """Return the event in the JSON of a cursor."""
        return cls(
            str(said["asset"]), float(said["since"]), float(said["next_at"]), int(said["tries"]), str(said["why"])
        )


@dataclass
class ListenerPosition:
    """Position of a listener in the event log, kept between passes.

    Args:
        after: Storage id: events up to it are done or in `failed`; None before the first pass.
        done: Later events that are done or in `failed`, by storage id, with their times (Unix seconds).
        failed: Events to try again, by storage id.
        assets: Keys of its assets, so that a prune keeps their events; None if they are many or unknown.
    """

    after: int | None = None
    done: dict[int, float] = field(default_factory=dict)
    failed: dict[int, FailedEvent] = field(default_factory=dict)
    assets: list[str] | None = None

    def text(self) -> str:
        """Return the position as the cursor of a sensor."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, said: Any) -> ListenerPosition:
        """Return the position in the JSON of a cursor. Another release may have written more members.

        Raises:
            AttributeError, LookupError, TypeError, ValueError: the JSON has another form.
        """
        after = said["after"]
        return cls(
            None if after is None else int(after),
            {int(id): float(at) for id, at in said.get("done", {}).items()},
            {int(id): FailedEvent.of(each) for id, each in said.get("failed", {}).items()},
            said.get("assets"),
        )


@dataclass
class Heard:
    """Result of one pass: number of successful calls, events that wait, and events that were given up, with reasons.

    Args:
        is_blocked: True if no call can begin, because too many have not returned.
    """

    called: int = 0
    waiting: dict[str, str] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    is_blocked: bool = False


@dataclass
class ListenerCalls:
    """Calls of a listener's function in this process, by the storage id of their event.

    A call that takes longer than the time limit continues, and its event waits for its result. The function is not
    called with this event again in the meantime.
    """

    _open: dict[int, LimitedCall[object]] = field(default_factory=dict)

    def may_begin(self, id: int) -> bool:
        """Return True if a call with an event can begin, or has begun."""
        return id in self._open or sum(each.is_open for each in self._open.values()) < _MOST_OPEN

    def problem(self, id: int, call: Callable[[], object]) -> str:
        """Call a function, or wait for its open call. Return why it has not succeeded; empty if it has."""
        if id not in self._open:
            self._open[id] = LimitedCall(f"listener, event {id}", call)
        if not self._open[id].wait(_LONGEST_CALL):
            return f"it has not returned within {_LONGEST_CALL:.0f} s"
        try:
            self._open.pop(id).result()
        except BaseException as error:  # user code may also raise SystemExit
            return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        return ""


@dataclass
class _Pass:
    """One pass of a listener, and its result so far."""

    listener: Listener
    instance: dg.DagsterInstance
    position: ListenerPosition
    source: str
    calls: ListenerCalls
    heard: Heard = field(default_factory=Heard)

    def first(self, record: dg.EventLogRecord) -> None:
        """Call the function with a new event."""
        id, now = record.storage_id, event_time.now()
        problem = self._problem(record)
        self.position.done[id] = now
        if problem:
            asset = record.asset_key.to_user_string() if record.asset_key else ""
            self.position.failed[id] = FailedEvent(asset, now, now + _FIRST_PAUSE, 1, problem)

    def again(self, id: int) -> None:
        """Call the function again with an event that has failed."""
        failed = self.position.failed[id]
        wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(failed.asset), storage_ids=[id])
        records = self.instance.fetch_materializations(wanted, limit=1).records
        name, now = _name(failed.asset, id), event_time.now()
        if not records:
            self.heard.given_up[name] = f"the event was deleted; last error: {failed.why}"
            del self.position.failed[id]
            return
        problem = self._problem(records[0])
        if not problem:
            del self.position.failed[id]
        elif now - failed.since > self.listener.give_up_after.total_seconds():
            self.heard.given_up[name] = problem
            del self.position.failed[id]
        else:
            failed.tries, failed.why = failed.tries + 1, problem
            failed.next_at = now + growing_pause(failed.tries, _FIRST_PAUSE, _LONGEST_PAUSE)

    def _problem(self, record: dg.EventLogRecord) -> str:
        problem = self.calls.problem(record.storage_id, lambda: self.listener.function(event_in(record, self.source)))
        self.heard.called += not problem
        return problem


def hear(
    listener: Listener,
    assets: list[str],
    instance: dg.DagsterInstance,
    position: ListenerPosition,
    source: str,
    *,
    seconds: float = _SECONDS,
    calls: ListenerCalls | None = None,
) -> Heard:
    """Call the function of a listener with new events and with failed ones that are due. Change the position.

    Args:
        assets: Keys of the assets that it is about.
        source: Name of this code location, for the ids of events.
        seconds: No call begins after this time. Failed events get half of this time.
        calls: The calls of earlier passes in this process.
    """
    began, calls = time.monotonic(), calls or ListenerCalls()
    this = _Pass(listener, instance, position, source, calls)
    position.assets = sorted(assets) if len(assets) <= _MOST_NAMED else None
    if position.after is None:
        position.after = event_storage.last_event_id(instance)
        return this.heard
    for id, failed in sorted(position.failed.items()):
        is_due = failed.next_at <= event_time.now() and time.monotonic() < began + seconds / 2
        if is_due and calls.may_begin(id):
            this.again(id)
    records, through = _new(assets, instance, position)
    for record in records:
        this.heard.is_blocked = not calls.may_begin(record.storage_id)
        is_late = time.monotonic() > began + seconds
        if this.heard.is_blocked or len(position.failed) >= _MOST_WAITING or is_late:
            through = record.storage_id - 1
            break
        this.first(record)
    _go_on(position, through, in_order=event_storage.commits_in_order(instance))
    this.heard.waiting = {_name(failed.asset, id): failed.why for id, failed in position.failed.items()}
    return this.heard


def _new(
    assets: list[str], instance: dg.DagsterInstance, position: ListenerPosition
) -> tuple[list[dg.EventLogRecord], int]:
    """Return the events that the listener lacks, by storage id, and the last id of the searched part of the log."""
    through = event_storage.last_event_id(instance)
    found: list[dg.EventLogRecord] = []
    for asset in assets:
        after, new = position.after, list[dg.EventLogRecord]()
        while not new:
            wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset), after_storage_id=after)
            page = instance.fetch_materializations(wanted, limit=_PAGE, ascending=True).records
            new = [record for record in page if record.storage_id not in position.done]
            if len(page) < _PAGE:
                break
            after = page[-1].storage_id
            through = min(through, after) if new else through
        found += new
    return sorted((r for r in found if r.storage_id <= through), key=lambda record: record.storage_id), through


def _go_on(position: ListenerPosition, through: int, *, in_order: bool) -> None:
    """Move the position to `through`. If commits may be late, stop at the last event older than two minutes."""
    if in_order:
        position.after, position.done = max(through, position.after or 0), {}
        return
    limit = event_time.now() - _LATE_SECONDS
    old = [id for id, at in position.done.items() if at < limit and id <= through]
    position.after = max([position.after or 0, *old])
    position.done = {id: at for id, at in position.done.items() if id > position.after}


def event_in(record: dg.EventLogRecord, source: str) -> AssetEvent:
    """Return the event of a materialization."""
    said = record.asset_materialization
    assert said is not None  # only materializations are fetched
    content = said.metadata.get(CONTENT)
    version = str(content.value) if content is not None else (said.tags or {}).get(DATA_VERSION, str(record.storage_id))
    return AssetEvent(
        id=f"{source}/{record.storage_id}",
        asset=said.asset_key.to_user_string(),
        partition=said.partition,
        version=version,
        at=record.timestamp,
        extras=extras_in(said.metadata),
        source=source,
    )


def _name(asset: str, id: int) -> str:
    return f"{asset} (event {id})"


def event_extras(context: Context, asset: dg.AssetKey | str, partition: str | None = None) -> Mapping[str, Any]:
    """Return the extras of the last materialization or observation of an asset; empty if it has none.

    A sender sets `AssetEvent.extras`. An asset of this code location sets the metadata `extras`:
    `context.add_output_metadata({"extras": {"rows_expected": 10}})`.

    Args:
        asset: Key of the asset: `finance/rates`.
        partition: Key of the partition; None for the last event of any partition.
    """
    key = dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else asset
    wanted = dg.AssetRecordsFilter(key, asset_partitions=None if partition is None else [partition])
    records = [
        *context.instance.fetch_observations(wanted, limit=1).records,
        *context.instance.fetch_materializations(wanted, limit=1).records,
    ]
    if not records:
        return {}
    last = max(records, key=lambda record: record.storage_id)
    said = last.asset_observation or last.asset_materialization
    return extras_in(said.metadata if said is not None else {})


def extras_in(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the extras in the metadata of an event; empty if they are missing or no JSON object."""
    value = metadata.get(EXTRAS)
    found = value.value if isinstance(value, dg.JsonMetadataValue) else None
    return found if isinstance(found, dict) else {}
