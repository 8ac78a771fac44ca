"""The search for root causes at each tick of the sensor `contracts`, and its record in the book of incidents.

Sensors cannot report that they do not tick. So `Watch` searches from outside of Dagster: it reports that the daemon,
the code server or a sensor is down. It needs only Dagster's storage and the declarations of the code location, which it
loads once. It opens incidents and closes nothing: after an outage the sensor `contracts` judges the late assets. Both
may run at once: the book has one writer and one sender at a time.

Belongs here: gathering the evidence from an instance. Does not belong here: root causes (`incidents.causes`), and
incidents over time (`incidents.lifecycle`).
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine import engine, saved_overview
from dagster_tidemark.engine.doubts import Doubts, doubts, since_look
from dagster_tidemark.engine.overview import windows_of
from dagster_tidemark.event_log.observations import dead_letters_told
from dagster_tidemark.incidents.arrivals import Arrival, Contents, arrival_rows, arrivals
from dagster_tidemark.incidents.causes import Evidence, Ownership, troubles
from dagster_tidemark.incidents.contents import ContentReader
from dagster_tidemark.incidents.expected import ExpectedArrival
from dagster_tidemark.incidents.incident import Book, Outage
from dagster_tidemark.incidents.lifecycle import reviewed
from dagster_tidemark.incidents.routing import Route
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.planner.decisions import ContractStatus, Plan
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.settings import Settings

logger = logging.getLogger(__name__)
_OUTAGE_SECONDS = 60.0
"""A shorter pause between two ticks counts as a slow tick."""
_OUTAGE_COUNTS = 900.0
"""Seconds after an outage in which data that arrived before its end may be late because of the outage."""


@dataclass(frozen=True)
class Look:
    """Findings of one tick of the sensor `contracts`.

    Args:
        standings: Contract status of each asset, before doubts are applied.
        looked_at: Time of the previous tick (Unix seconds); None if there was none.
        ours: Returns True for an asset of this part of the location.
        with_landing: True if the location reads notifications of a bucket.
        expected: Expected arrivals of sources.
        contents: Returns the files of windows; by default it reads them from the event log at each look.
        warn: Logs a warning.
    """

    plan: Plan
    standings: Mapping[str, ContractStatus]
    doubts: Doubts
    looked_at: float | None
    ours: Callable[[str], bool]
    with_landing: bool = False
    expected: Sequence[ExpectedArrival] = ()
    contents: Contents | None = None
    warn: Callable[[str], None] = logger.warning


def note_incidents(
    instance: DagsterInstance, assets: AnyGraph, settings: Settings, look: Look, routes: Sequence[Route]
) -> Book:
    """Open, grow and close incidents by the findings of a tick, with their messages. Return the book."""
    store, now = IncidentStore(instance, settings.code_location), look.plan.now
    before = store.read()
    outage = _outage(before, look, now)
    since = {each.source: before.expected_since.get(each.source, now) for each in look.expected}
    with engine.reporting(), dg.partition_loading_context(dynamic_partitions_store=instance):
        planner = engine.engine_for(instance, assets, settings).planner
        graph = planner.graph
        read = look.contents or ContentReader(instance)
        reader = read if isinstance(read, ContentReader) else ContentReader(instance)
        windows, arrived, raised = windows_of(assets), list[Arrival](), dict[str, str]()
        for each in look.expected:
            of_source = ([each], graph, planner.history, windows, since, now)
            states = called(arrivals, *of_source, read, reader.rows, reader.versions)
            if isinstance(states, Raised):  # a calendar, a mapping or a partitions definition
                raised[each.source] = str(states)
                look.warn(f"the expected arrivals of {each.source} keep their last states: {states}")
            else:
                arrived += states
        evidence = Evidence(
            graph,
            planner.history,
            planner.backlog,
            look.plan,
            look.standings,
            look.doubts,
            look.ours,
            ownership_of(assets, graph, [each.source for each in look.expected]),
            outage,
            dead_letters_told(instance) if look.with_landing else 0,
            arrived,
        )
        found = troubles(evidence)
    location = settings.code_location
    # While no sensor looks at a source, or its states cannot be computed, its last known states stay.
    unseen = {each.source for each in look.expected if look.doubts.about(each.source, "", [each.source])}
    unseen |= raised.keys()
    shown = tuple(row for row in before.arrivals if row.source in unseen)
    shown += tuple(row for row in arrival_rows(arrived) if row.source not in unseen)

    def _next(book: Book) -> Book:
        noted = replace(book, outage=outage, expected_since=since, arrivals=shown)
        return reviewed(noted, found, routes, now, location=location, unread=raised)

    return store.change(_next)


def _outage(book: Book, look: Look, now: float) -> Outage | None:
    """Return the last period without a tick of any sensor, if it may still make assets late."""
    if look.looked_at is not None and now - look.looked_at > _OUTAGE_SECONDS:
        return Outage(look.looked_at, now)
    outage = book.outage
    return outage if outage is not None and now - outage.until < _OUTAGE_COUNTS else None


def ownership_of(assets: AnyGraph, graph: Graph, sources: Collection[str] = ()) -> dict[str, Ownership]:
    """Return the owners and the group of each asset with a contract, and of some sources."""
    promised = [key for key, node in graph.nodes.items() if node.contract is not None or key in sources]
    keys = {each: dg.AssetKey.from_user_string(each) for each in promised}
    return {each: Ownership(_owners(assets, key), assets.get(key).group_name or "") for each, key in keys.items()}


def _owners(assets: AnyGraph, key: dg.AssetKey) -> tuple[str, ...]:
    """Return the owners of an asset. A source that declares none belongs to the owners of its direct readers."""
    node = assets.get(key)
    if node.owners or node.is_materializable:
        return tuple(node.owners or ())
    readers = (assets.get(reader) for reader in sorted(node.child_keys) if assets.has(reader))
    return tuple(dict.fromkeys(owner for reader in readers for owner in reader.owners or ()))


class Watch:
    """A watch over a code location, from a process that does not depend on Dagster's daemon.

    Args:
        assets: The asset graph of the location.
        routes: The channels.
    """

    def __init__(self, assets: AnyGraph, settings: Settings, routes: Sequence[Route]) -> None:
        self._settings, self._routes = settings, routes
        self._graph = graph_of(assets, contract_scale=settings.contract_scale)
        self._ownership = ownership_of(assets, self._graph)

    def look(self, instance: DagsterInstance, now: float) -> Book:
        """Open and grow incidents, based on the platform's records at a time (Unix seconds). Return the book."""
        location = self._settings.code_location
        store, kept = IncidentStore(instance, location), saved_overview.kept(instance, location)
        if kept is None:  # the sensor has never ticked: no deadline is known yet
            return store.read()
        shown = {row.asset for row in kept.rows if row.shown}
        history = History(self._graph)
        found = troubles(
            Evidence(
                self._graph,
                history,
                PendingWork(self._graph, history),
                Plan(now),
                {},
                since_look(doubts(instance, kept.watched, now), kept.at, now),
                shown.__contains__,
                self._ownership,
            )
        )
        return store.change(lambda book: reviewed(book, found, self._routes, now, location=location, may_close=False))
