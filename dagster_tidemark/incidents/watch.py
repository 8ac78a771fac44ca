"""A watch from outside of Dagster: it reports that the daemon, the code server or a sensor is down.

The sensors cannot report that they do not tick. This process needs only Dagster's storage and the declarations of the
code location, which it loads once. It opens incidents and sends messages. It closes nothing: after an outage the
sensor `contracts` judges the late assets. Both may run at once: the book has one writer and one sender at a time.
"""

from collections.abc import Sequence

from dagster import DagsterInstance

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.doubts import doubts, since_look
from dagster_tidemark.incidents.causes import Evidence, troubles
from dagster_tidemark.incidents.incident import Book
from dagster_tidemark.incidents.lifecycle import reviewed
from dagster_tidemark.incidents.look import ownership_of
from dagster_tidemark.incidents.routing import Route
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import PendingWork
from dagster_tidemark.settings import Settings


class Watch:
    """A watch over a code location.

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
