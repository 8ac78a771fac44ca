"""Blocking checks that failed: which partitions nobody is to be built on, until the check passes or they are rebuilt.

Pure. Does not belong here: what is done about it (`automation.tick`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from pipelines.automation.graph import Target
from pipelines.sources.feed import Partition


@dataclass(frozen=True)
class FailedCheck:
    """A check that failed at storage id `id`, on these partitions (None: on the asset as it stood)."""

    id: int
    partitions: frozenset[Partition] | None


@dataclass
class CheckResults:
    """The blocking checks whose latest result is a failure, by asset and check."""

    failed: dict[str, dict[str, FailedCheck]] = field(default_factory=dict)

    def failed_on(self, asset: str, check: str, id: int, partitions: Collection[Partition]) -> None:
        """A check failed on what a run had built; on the asset as it stands, where that is not known."""
        of_asset = self.failed.setdefault(asset, {})
        before = of_asset.get(check)
        if before is not None and before.id > id:
            return
        still = before.partitions if before and before.partitions and partitions else frozenset()
        of_asset[check] = FailedCheck(id, frozenset(partitions) | still if partitions else None)

    def passed_on(self, asset: str, check: str, id: int, partitions: Collection[Partition]) -> None:
        """A check passed on what a run had built, or on the asset as it stands."""
        before = self.failed.get(asset, {}).get(check)
        if before is None or before.id > id:
            return
        left = (before.partitions or frozenset()) - set(partitions) if partitions else frozenset()
        del self.failed[asset][check]
        if left:
            self.failed[asset][check] = FailedCheck(before.id, left)

    def blocking(self, target: Target, built_id: int) -> str | None:
        """The failed check because of which nobody is built on a partition (written last at this storage id)."""
        for check, failed in self.failed.get(target[0], {}).items():
            if (failed.partitions is None or target[1] in failed.partitions) and failed.id > built_id:
                return check
        return None
