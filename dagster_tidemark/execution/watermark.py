"""Arrival time of the newest data that a table contains, as metadata of every materialization.

For a table that is loaded from files, it is the arrival time of the newest file. For a derived table, it is the newest
time that the inputs reported before they were read; newer data of an input that was being rebuilt does not count. The
value is only shown: the planner uses the order of events instead. Belongs here: this one piece of metadata.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.edges import Edge
from dagster_tidemark.asset_graph.partition_keys import KeysOf
from dagster_tidemark.asset_graph.planner_graph import dynamic_names, edge_between
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.feed import Partition

THROUGH = "incorporates arrivals through"


def through(newest: datetime | None) -> dict[str, Any]:
    """Return the metadata for the arrival time of the newest data (UTC); empty if no data has arrived.

    A file may have a time in the future, if a gateway or a fast clock set it. It counts as having arrived now.
    """
    return {} if newest is None else {THROUGH: dg.MetadataValue.timestamp(min(newest, datetime.now(UTC)))}


class InputArrivals:
    """Collector of the arrival times that the inputs of a run's steps report."""

    def __init__(self) -> None:
        self._read: dict[str, dict[dg.AssetKey, Mapping[Partition, float]]] = defaultdict(dict)  # by step
        self._edges: dict[tuple[dg.AssetKey, dg.AssetKey], Edge] = {}

    def about_to_read(self, context: dg.InputContext) -> None:
        """Record the times of an input before it is read. The rows read include at least the data of that time."""
        partitions = set(context.asset_partition_keys) if context.has_asset_partitions else None
        said = event_storage.latest_metadata(context.instance, context.asset_key, THROUGH, partitions)
        arrivals = {partition: at for partition, at in said.items() if isinstance(at, float)}
        self._read[context.step_context.step.key][context.asset_key] = arrivals

    def said_of(self, context: dg.OutputContext, partition: Partition) -> Mapping[str, Any]:
        """Return metadata for a partition that was built from the recorded inputs."""
        arrivals = []
        for key, said in self._read[context.step_context.step.key].items():
            of_partition = self._edge(context, key).upstream
            read = said if of_partition is None else of_partition(partition)
            arrivals += [said[p] for p in read if p in said]
        return through(datetime.fromtimestamp(max(arrivals), UTC) if arrivals else None)

    def _edge(self, context: dg.OutputContext, read: dg.AssetKey) -> Edge:
        if (context.asset_key, read) not in self._edges:
            graph = context.step_context.job_def.asset_layer.asset_graph
            instance = context.step_context.instance
            dynamic = {name: instance.get_dynamic_partitions(name) for name in dynamic_names(graph)}
            keys_of = KeysOf(Moment(event_time.now(), dynamic))
            self._edges[context.asset_key, read] = edge_between(graph, context.asset_key, read, keys_of)
        return self._edges[context.asset_key, read]
