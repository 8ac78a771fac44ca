"""Blocking checks that failed: which partitions nobody is to be built on, until the check passes or they are rebuilt.

Pure. Does not belong here: what is done about it (`planner.evaluate`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pipelines.tidemark.planner.graph import Target
from pipelines.tidemark.sources.feed import Partition


@dataclass(frozen=True)
class CheckResult:
    """The latest result of a check, of the storage id `id`."""

    id: int
    passed: bool


@dataclass
class Results:
    """The latest results of one check: on the asset as it stood (`whole`), and since then on single partitions."""

    whole: CheckResult = CheckResult(-1, passed=True)
    on: dict[Partition, CheckResult] = field(default_factory=dict)

    def take(self, result: CheckResult, partitions: Collection[Partition]) -> None:
        """A check was evaluated on these partitions, or on the asset as it stands."""
        if partitions:
            self.on |= {p: result for p in partitions if result.id >= self._latest(p).id}
        elif result.id >= self.whole.id:
            self.whole = result
        # What an earlier result says of a partition holds no more; that of a pass alone says nothing at all.
        said = {p: of for p, of in self.on.items() if of.id > self.whole.id}
        self.on = {p: of for p, of in said.items() if not (of.passed and self.whole.passed)}

    def failed(self, partition: Partition, built_id: int) -> bool:
        """Whether the latest result is a failure, of what was written last at this storage id."""
        latest = self._latest(partition)
        return not latest.passed and latest.id > built_id

    @property
    def says_nothing(self) -> bool:
        return self.whole.passed and not self.on

    def _latest(self, partition: Partition) -> CheckResult:
        return self.on.get(partition, self.whole)


@dataclass
class CheckResults:
    """The blocking checks that failed on anything, by asset and check."""

    failed: dict[str, dict[str, Results]] = field(default_factory=dict)

    def evaluated(self, asset: str, check: str, result: CheckResult, partitions: Collection[Partition]) -> None:
        """A check was evaluated on what a run had built; on the asset as it stands, where that is not known."""
        of_asset = self.failed.setdefault(asset, {})
        of_asset.setdefault(check, Results()).take(result, partitions)
        self._drop(asset, {name for name, results in of_asset.items() if results.says_nothing})

    def keep(self, blocking: Mapping[str, Collection[str]]) -> None:
        """Of these assets no other checks are blocking any more: what such a check says holds nobody up."""
        for asset in blocking.keys() & self.failed.keys():
            self._drop(asset, self.failed[asset].keys() - set(blocking[asset]))

    def blocking(self, target: Target, built_id: int) -> str | None:
        """The failed check because of which nobody is built on a partition (written last at this storage id)."""
        for check, results in self.failed.get(target[0], {}).items():
            if results.failed(target[1], built_id):
                return check
        return None

    def _drop(self, asset: str, checks: Collection[str]) -> None:
        self.failed[asset] = {name: results for name, results in self.failed[asset].items() if name not in checks}
        if not self.failed[asset]:
            del self.failed[asset]
