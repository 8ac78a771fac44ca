"""Code locations on an instance, and the records that their planners still need.

Belongs here: the stored declarations and checkpoints of locations. Does not belong here: the choice of records
(`retention.choice`).
"""

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.dagster_internals.sensor_states import SensorCursor, sensor_cursors
from dagster_tidemark.errors import Transient
from dagster_tidemark.event_log import checkpoint, deployed
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.tags import DEPLOYED, HISTORY, PREFIX

LISTENERS = "listener_"
"""Prefix of the names of listeners' sensors, after the location's own prefix."""
LINEAGE = "lineage"
_OVERLAP = 10.0
"""Seconds before its position. The sensor `lineage` reads runs that changed since then again."""


class PruneRefused(Transient):
    """It is unknown which records are still needed. The message names the record that cannot be read."""


@dataclass(frozen=True)
class OtherLocation:
    """Another code location of the library on the instance.

    Args:
        builds: Assets that it builds.
        reads: Assets that it reads.
        read_until: Storage id of the last event in its saved checkpoint; -1 without a readable checkpoint.
        unnoted: Assets with results that it has not written into its journal yet.
    """

    name: str
    builds: frozenset[str]
    reads: frozenset[str]
    read_until: int
    unnoted: frozenset[str]


@dataclass(frozen=True)
class ListensTo:
    """Events that a listener has not handled yet.

    Args:
        after: Storage id; it has handled all events up to it, except `failed`.
        failed: Events that it tries again.
        assets: The assets that it hears; None if they are unknown.
    """

    sensor: str
    after: int
    failed: frozenset[int]
    assets: frozenset[str] | None = None

    def needs(self, id: int, asset: str) -> bool:
        """Return True if the listener still has to handle a materialization."""
        return (id > self.after or id in self.failed) and (self.assets is None or asset in self.assets)


@dataclass(frozen=True)
class ReportsRuns:
    """Runs that a sensor `lineage` has not reported yet.

    Args:
        since: It reads runs that changed at this time or later (Unix seconds).
        begun: Runs whose end it still reports.
    """

    since: float
    begun: frozenset[str]

    def needs(self, run_id: str, changed_at: float) -> bool:
        """Return True if the sensor still has to report a run that last changed at a time (Unix seconds)."""
        return changed_at >= self.since or run_id in self.begun


@dataclass(frozen=True)
class KnownLocations:
    """The code locations of an instance.

    Args:
        ours: Names of the code locations that declare assets of the graph.
        open_runs: Runs that were open when a checkpoint was saved. A restart asks for their end.
        tails: Storage ids that mark the position of a restarted planner.
        listeners: Events that listeners of any location have not handled.
        lineage: Runs that sensors `lineage` of any location have not reported.
    """

    ours: frozenset[str]
    others: Sequence[OtherLocation]
    open_runs: frozenset[str] = frozenset()
    tails: frozenset[int] = frozenset()
    by_asset: Mapping[str, Sequence[OtherLocation]] = field(default_factory=dict)
    listeners: Sequence[ListensTo] = ()
    lineage: Sequence[ReportsRuns] = ()


def known_locations(instance: DagsterInstance, graph: Graph, sensors: Collection[str] | None = None) -> KnownLocations:
    """Return the code locations that have stored their declarations on an instance.

    Args:
        sensors: The sensors that the graph's code location declares. Stored cursors of its former sensors do not count.
            None if they are unknown.

    Raises:
        PruneRefused: a stored declaration cannot be read.
    """
    saved = instance_store.saved_under(instance, HISTORY).items()
    heads = {key: head for key, text in saved if (head := checkpoint.any_head(text)) is not None}
    ours = deployed.locations(instance, graph)
    tables = {key for key, node in graph.nodes.items() if not node.source}
    others = []
    for key, text in instance_store.saved_under(instance, DEPLOYED).items():
        name, said = key.removeprefix(DEPLOYED), _declared(key, text)
        if said and said.keys().isdisjoint(tables):
            others.append(_other(name, said, heads.get(f"{HISTORY}{min(said)}")))
    by_asset: dict[str, list[OtherLocation]] = {}
    for other in others:
        for asset in other.builds | other.reads:
            by_asset.setdefault(asset, []).append(other)
    tails = frozenset(int(id) for head in heads.values() for id, _ in head["reader"]["tail"][-1:])
    open_runs = frozenset(run for head in heads.values() for run in head["open_runs"])
    cursors = [
        each
        for each in sensor_cursors(instance)
        if sensors is None or each.location not in ours or each.sensor in sensors
    ]
    return KnownLocations(ours, others, open_runs, tails, by_asset, list(_listeners(cursors)), list(_lineage(cursors)))


def _listeners(cursors: Iterable[SensorCursor]) -> Iterable[ListensTo]:
    for each in cursors:
        if not each.sensor.removeprefix(PREFIX).startswith(LISTENERS):
            continue
        with contextlib.suppress(ValueError, TypeError, KeyError):  # the cursor of a user's sensor of this name
            said = json.loads(each.cursor)
            assets = said.get("assets") if isinstance(said, dict) else None
            heard = None if assets is None else frozenset(assets)
            if said["after"] is not None:  # else it begins with the next event
                yield ListensTo(each.sensor, int(said["after"]), frozenset(map(int, said["failed"])), heard)


def _lineage(cursors: Iterable[SensorCursor]) -> Iterable[ReportsRuns]:
    for each in cursors:
        if each.sensor.removeprefix(PREFIX) != LINEAGE:
            continue
        with contextlib.suppress(ValueError, TypeError, KeyError):  # the cursor of a user's sensor of this name
            said = json.loads(each.cursor)
            yield ReportsRuns(said["at"] - _OVERLAP, frozenset(said["begun"]))


def _declared(key: str, text: str) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
        return {asset: {"reads": list(of["reads"])} for asset, of in said.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PruneRefused(
            f"the declarations of the code location {key.removeprefix(DEPLOYED)} cannot be read, so it is unknown "
            "which events it needs; restart its code server with this release, which stores them again"
        ) from error


def _other(name: str, said: Mapping[str, Any], head: Mapping[str, Any] | None) -> OtherLocation:
    reads: Iterable[str] = (read for of in said.values() for read in of["reads"])
    builds, read = frozenset(said), frozenset(reads) - said.keys()
    if head is None:
        return OtherLocation(name, builds, read, -1, read)
    unnoted = frozenset(asset for asset, _ in head["rest"].get("touched", ()))
    return OtherLocation(name, builds, read, int(head["reader"]["after"]), unnoted)
