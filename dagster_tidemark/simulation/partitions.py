"""The partitions of a simulated run and the existing partitions of assets, computed by Dagster's own code.

Belongs here: the partitions that tags name, and the reasons why a body would raise. Does not belong here: the events of
a run (`simulation.log`).
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterInstance, DagsterRun
from dagster._core.definitions.partitions.context import PartitionLoadingContext, partition_loading_context
from dagster._core.errors import DagsterInvalidSubsetError
from dagster._core.storage.tags import PARTITION_NAME_TAG

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.dagster_internals.partitions import range_tags
from dagster_tidemark.sources.feed import Partition


def partition_tags(partitions: Sequence[Partition]) -> dict[str, str]:
    """Return the tags of a run over consecutive partitions."""
    if list(partitions) == [None]:
        return {}
    if len(partitions) == 1:
        return {PARTITION_NAME_TAG: str(partitions[0])}
    return range_tags(str(partitions[0]), str(partitions[-1]))


@dataclass(frozen=True)
class Existing:
    """The present partitions of a code location's assets."""

    instance: DagsterInstance
    graph: AnyGraph

    def named_by(self, run: DagsterRun, asset: str) -> Sequence[Partition]:
        """Return the partitions of an asset that a run's tags name.

        Raises:
            Exception: any error of Dagster's for a range with an end that does not exist.
        """
        by = self.graph.get(dg.AssetKey.from_user_string(asset)).partitions_def
        with partition_loading_context(dynamic_partitions_store=self.instance):
            subset = run.get_resolved_partitions_subset_for_events(by) if by else None
            if subset is None:
                return [None]
            found = subset.get_partition_keys()
            return sorted(found) if isinstance(found, Set) else list(found)

    def refuse_parts(self, assets: Collection[str], checks: Collection[dg.AssetCheckKey] | None) -> None:
        """Raise if a run of these assets and checks has only a part of an operation that cannot be split."""
        asked = {dg.AssetKey.from_user_string(asset) for asset in assets}
        for key in asked:
            together = self.graph.get(key).execution_set_entity_keys
            missing = {k for k in together if isinstance(k, dg.AssetKey)} - asked
            left_out = {k for k in together if isinstance(k, dg.AssetCheckKey)} - set(checks or ())
            if missing or (checks is not None and left_out):
                raise DagsterInvalidSubsetError(f"{key} is always built together with {missing | left_out}")

    def refuse_key(self, asset: str, partition: Partition) -> None:
        """Raise if an asset has no such partition, as a sensor's tick does for the key of a run request."""
        by = self.graph.get(dg.AssetKey.from_user_string(asset)).partitions_def
        if by is not None and partition is not None:
            by.validate_partition_key(partition, context=self._context())

    def exists(self, asset: str, partition: Partition) -> bool:
        """Return True if an asset has such a partition."""
        try:
            self.refuse_key(asset, partition)
        except Exception:  # the error for a malformed key depends on the definition
            return False
        return (partition is None) == (self.graph.get(dg.AssetKey.from_user_string(asset)).partitions_def is None)

    def why_it_raises(self, asset: str, partitions: Sequence[Partition]) -> str:
        """Return the reason why the body of an asset raises in a run over these partitions; empty if it does not."""
        node = self.graph.get(dg.AssetKey.from_user_string(asset))
        if not partitions:
            return "a run over no partition"
        if len(partitions) > 1 and node.backfill_policy is None:
            return "a range for an asset that takes one partition"
        strange = [str(p) for p in partitions if not self.exists(asset, p)]
        return f"{', '.join(strange)}: no such partition" if strange else ""

    def _context(self) -> PartitionLoadingContext:
        with partition_loading_context(dynamic_partitions_store=self.instance) as context:
            return context
