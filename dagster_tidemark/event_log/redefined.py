"""Start of each asset's present partitions definition. Older events may be about former partitions.

Belongs here: the record in the instance's storage. Does not belong here: the handling of former partitions
(`event_log.intake`, `planner.history`).
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_time, instance_store
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.tags import PARTITIONS


@dataclass
class PartitionsDefinitions:
    """Start of the present partitions definition of each asset in a code location.

    Args:
        key: Key of this record in the instance's storage.
        since: Start of the definition by asset, in Unix seconds.
        reported: Assets whose former partitions were reported: once for each definition.
    """

    key: str
    since: dict[str, float]
    reported: set[str]
    _marks: Mapping[str, str]

    @classmethod
    def of(cls, instance: DagsterInstance, location: str, graph: Graph) -> "PartitionsDefinitions":
        """Load the saved definitions. A changed definition starts now, and that of a new asset at time 0."""
        key = PARTITIONS + location
        kept: dict[str, tuple[str, float, bool]] = json.loads(instance_store.saved(instance, key) or "{}")
        marks = {name: f"{zlib.crc32(of.cut.encode()):08x}" for name, of in graph.nodes.items() if not of.refused}
        same = {asset for asset, mark in marks.items() if asset in kept and kept[asset][0] == mark}
        changed = dict.fromkeys((asset for asset in marks if asset in kept), event_time.now())
        since = dict.fromkeys(marks, 0.0) | changed | {asset: kept[asset][1] for asset in same}
        return cls(key, since, {asset for asset in same if kept[asset][2]}, marks)

    def keep(self, instance: DagsterInstance) -> None:
        """Save these as the definitions of the deployed code."""
        said = {asset: (mark, self.since[asset], asset in self.reported) for asset, mark in self._marks.items()}
        instance_store.save(instance, self.key, json.dumps(said))
