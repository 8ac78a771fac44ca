"""One planner a code server: reads what is new in the event log, plans, and remembers what it asked for.

The two sensors that ask for runs share it, so that what one asked for is running to the other. Reports of
observations take the same lock: a plan sees all of what one look found, or nothing.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dagster import DagsterInstance, EventLogRecord

from pipelines.automation import adapter, planner
from pipelines.automation.graph import Graph, Target
from pipelines.automation.history import History
from pipelines.automation.planner import Plan, Request

_RESERVED_FOR = 60.0
_lock = threading.RLock()


@contextmanager
def reporting() -> Iterator[None]:
    """No plan is made while this is held."""
    with _lock:
        yield


@dataclass
class Engine:
    """The planner's state for one Dagster instance."""

    graph: Graph
    history: History
    reserved: dict[Target, float] = field(default_factory=dict)
    _cursors: dict[tuple[str, str], int] = field(default_factory=dict)

    def request(self, instance: DagsterInstance, now: float, *, ranges: bool) -> tuple[list[Request], Plan]:
        """Plan, and take the requests for ranges or the others; what is taken is reserved.

        Args:
            now: Unix seconds.
        """
        with _lock:
            self._ingest(instance)
            # A request that led to no run is made again; until then its run may just be slow to appear.
            self.reserved = {target: at for target, at in self.reserved.items() if at + _RESERVED_FOR > now}
            planned = planner.plan(self.graph, self.history, now, self.reserved)
            taken = [request for request in planned.requests if request.as_range is ranges]
            self.reserved |= {target: now for request in taken for target in request.targets}
            return taken, planned

    def look(self, now: float, instance: DagsterInstance | None = None) -> Plan:
        """What the plan would be at a time (Unix seconds); nothing is taken, nothing reserved.

        Args:
            instance: Read what is new there first. Without it: by what is known.
        """
        with _lock:
            if instance is not None:
                self._ingest(instance)
            reserved = {target for target, at in self.reserved.items() if at + _RESERVED_FOR > now}
            return planner.plan(self.graph, self.history, now, reserved)

    def _ingest(self, instance: DagsterInstance) -> None:
        # Statuses first: a run that has ended by now wrote its events before, so they are seen below.
        ended = adapter.ended_runs(instance, list(self.history.open_runs))
        for key, node in self.graph.nodes.items():
            if not node.inputs:
                for record in self._new(instance.fetch_observations, "observed", key):
                    self._observe(key, record)
        for key, node in self.graph.nodes.items():
            if node.inputs:
                self._read_planned(instance, key)
            for record in self._new(instance.fetch_materializations, "materialized", key):
                self._materialize(instance, key, record)
        for run_id, at in ended.items():
            self.history.ended(run_id, at=at)

    def _new(self, fetch: adapter.Fetch, kind: str, key: str) -> Iterator[EventLogRecord]:
        for record in adapter.events_after(fetch, key, self._cursors.get((kind, key), 0)):
            self._cursors[(kind, key)] = record.storage_id
            yield record

    def _read_planned(self, instance: DagsterInstance, key: str) -> None:
        for record in self._new(adapter.fetch_planned(instance), "planned", key):
            targets = [(key, partition) for partition in adapter.planned_partitions(record)]
            self.history.planned(targets, id=record.storage_id, run_id=record.run_id)
            for target in targets:
                self.reserved.pop(target, None)

    def _observe(self, key: str, record: EventLogRecord) -> None:
        tags = adapter.observation_tags(record)
        if adapter.DATA_VERSION not in tags:
            return  # says that somebody looked, not what was there
        self.history.observed(
            (key, record.partition_key),
            id=record.storage_id,
            version=tags[adapter.DATA_VERSION],
            arrived_at=float(tags.get(adapter.ARRIVED_AT, record.timestamp)),
            listed_at=float(tags.get(adapter.LISTED_AT, record.timestamp)),
        )

    def _materialize(self, instance: DagsterInstance, key: str, record: EventLogRecord) -> None:
        target = (key, record.partition_key)
        run_id = record.run_id or None
        as_of = self.history.as_of(run_id, target) if run_id else None
        if run_id and as_of is None:
            # Its run was created after the planned events were read above.
            self._read_planned(instance, key)
            as_of = self.history.as_of(run_id, target)
        version = adapter.content_version(record)
        self.history.materialized(
            target, id=record.storage_id, run_id=run_id, as_of=as_of, version=version, at=record.timestamp
        )


_engines: dict[str, Engine] = {}


def engine_for(instance: DagsterInstance, asset_graph: adapter.AnyGraph) -> Engine:
    """The engine of this process for an instance; made when first asked for."""
    with _lock:
        identity = adapter.identity_of(instance)
        if identity not in _engines:
            graph = adapter.graph_of(asset_graph)
            _engines[identity] = Engine(graph, History(graph))
        return _engines[identity]


def forget(instance: DagsterInstance) -> None:
    """Drop what this process knows of an instance, as the end of a code server does."""
    with _lock:
        _engines.pop(adapter.identity_of(instance), None)
