"""Times when deploys changed the declarations of assets: their partitions definitions and their required inputs.

Events from before a change may be about former partitions, and builds from before it lack an input. Belongs here: the
record in the instance's storage. Does not belong here: the handling of former partitions (`event_log.intake`,
`planner.history`), and contracts of tables that lack a new input (`planner.unbuildable_data`).
"""

import json
import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_time, instance_store
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.tags import PARTITIONS


@dataclass
class PartitionsDefinitions:
    """Start of the present partitions definition and of each required input, by asset of a code location.

    Args:
        key: Key of this record in the instance's storage.
        since: Start of the definition by asset, in Unix seconds.
        reported: Assets whose former partitions were reported: once for each definition.
        inputs: Time when each required input was declared, by asset, in Unix seconds. It is 0 for inputs that were
            recorded before this time was kept.
    """

    key: str
    since: dict[str, float]
    reported: set[str]
    inputs: dict[str, dict[str, float]]
    _marks: Mapping[str, str]

    @classmethod
    def of(cls, instance: DagsterInstance, location: str, graph: Graph) -> "PartitionsDefinitions":
        """Load the saved definitions. A changed definition starts now, and that of a new asset at time 0.

        A new input starts now, also the inputs of a new asset: another location may have built it before.
        """
        key = PARTITIONS + location
        kept = _kept(instance, key, {name for name, of in graph.nodes.items() if not of.source})
        now = event_time.now()
        marks = {name: f"{zlib.crc32(of.cut.encode()):08x}" for name, of in graph.nodes.items() if not of.refused}
        same = {asset for asset, mark in marks.items() if asset in kept and kept[asset][0] == mark}
        changed = dict.fromkeys((asset for asset in marks if asset in kept), now)
        since = dict.fromkeys(marks, 0.0) | changed | {asset: kept[asset][1] for asset in same}
        inputs = {asset: _since(graph.nodes[asset], kept.get(asset), now) for asset in marks}
        return cls(key, since, {asset for asset in same if kept[asset][2]}, inputs, marks)

    def date(self, graph: Graph) -> None:
        """Give a graph the times of its declarations."""
        graph.moment.defined_at, graph.moment.inputs_since = self.since, self.inputs
        first = {asset: min(of.values()) for asset, of in self.inputs.items() if of}
        added = {a: {key: at for key, at in self.inputs[a].items() if at > since} for a, since in first.items()}
        graph.moment.inputs_added = {asset: of for asset, of in added.items() if of}

    def keep(self, instance: DagsterInstance) -> None:
        """Save these as the definitions of the deployed code."""
        said = {
            asset: (mark, self.since[asset], asset in self.reported, self.inputs[asset])
            for asset, mark in self._marks.items()
        }
        instance_store.save(instance, self.key, json.dumps(said))


def _kept(instance: DagsterInstance, key: str, built: Set[str]) -> Mapping[str, Sequence[Any]]:
    """Return the saved definitions of the code location that builds some assets."""
    if own := _read(instance_store.saved(instance, key)):
        return own
    # The key contains the first asset that the location builds. A deploy may have added or removed this asset.
    others = map(_read, instance_store.saved_under(instance, PARTITIONS).values())
    nearest = max(others, key=lambda kept: len(kept.keys() & built), default={})
    return nearest if nearest.keys() & built else {}


def _read(text: str | None) -> dict[str, Sequence[Any]]:
    """Return the readable records of a saved text, by asset."""
    return {asset: kept for asset, kept in instance_store.members_of(text).items() if _is_readable(kept)}


def _is_readable(kept: Any) -> bool:
    match kept:
        case [str(), int() | float(), bool()] | [str(), int() | float(), bool(), dict(), *_]:
            return True
    return False


def _since(node: Node, kept: Sequence[Any] | None, now: float) -> dict[str, float]:
    """Return when each required input of an asset was declared.

    Args:
        kept: The saved record of the asset. Before version 0.2, it had no inputs.
    """
    known = {} if kept is None else kept[3] if len(kept) > 3 else None
    required = {read.key for read in node.inputs if not read.optional and read.key != node.key}
    return {key: 0.0 if known is None else known.get(key, now) for key in sorted(required)}
