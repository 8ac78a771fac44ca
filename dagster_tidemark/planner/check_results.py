"""Results of blocking checks, which decide if the readers of a partition may be built.

Readers may be built after each blocking check has passed on the partition's last write. A failed check blocks them,
and so does a check without a result. Pure. Does not belong here: the planner's decisions (`planner.waiting`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Target
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check. `id` is its storage id, and `run_id` the run that evaluated the check, if any."""

    id: int
    passed: bool
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class LatestWrite:
    """Latest write of a partition. `id` is its storage id, and `run_id` the run that wrote the partition, if any."""

    id: int
    run_id: str | None = None


@dataclass
class Results:
    """Latest results of one check: on the whole asset (`whole`), and later ones on single partitions (`on`)."""

    whole: CheckResult = CheckResult(-1, passed=True)
    on: dict[Partition, CheckResult] = field(default_factory=dict)

    def take(self, result: CheckResult, partitions: Collection[Partition]) -> None:
        """Record a result on these partitions, or on the whole asset if there are none."""
        if partitions:
            self.on |= {p: result for p in partitions if result.id >= self._latest(p).id}
        elif result.id >= self.whole.id:
            self.whole = result
            self.on = {p: of for p, of in self.on.items() if of.id > result.id}

    def of(self, partition: Partition, written: LatestWrite) -> CheckResult | None:
        """Return the result on the last write of a partition, or None."""
        latest = self._latest(partition)
        # A step may report its check before its output: then the result is older than the write of the same run.
        same_run = written.run_id is not None and latest.run_id == written.run_id
        return latest if latest.id > written.id or same_run else None

    def _latest(self, partition: Partition) -> CheckResult:
        return self.on.get(partition, self.whole)


@dataclass
class CheckResults:
    """Latest results of blocking checks, by asset and check."""

    of: dict[str, dict[str, Results]] = field(default_factory=dict)

    def evaluated(self, asset: str, check: str, result: CheckResult, partitions: Collection[Partition]) -> None:
        """Record the result of a check on these partitions, or on the whole asset if there are none."""
        self.of.setdefault(asset, {}).setdefault(check, Results()).take(result, partitions)

    def keep(self, blocking: Mapping[str, Collection[str]]) -> None:
        """Forget the checks of these assets that are no longer blocking."""
        for asset in blocking.keys() & self.of.keys():
            self.of[asset] = {name: of for name, of in self.of[asset].items() if name in blocking[asset]}

    def blocking(self, target: Target, written: LatestWrite | int) -> str | None:
        """Return a check that failed on the last write of a partition, or None."""
        last = LatestWrite(written) if isinstance(written, int) else written
        for check, results in self.of.get(target[0], {}).items():
            result = results.of(target[1], last)
            if result is not None and not result.passed:
                return check
        return None

    def without_result(self, target: Target, written: LatestWrite, blocking: Collection[str]) -> tuple[str, ...]:
        """Return the blocking checks of an asset that have no result on the last write of a partition."""
        known = self.of.get(target[0], {})
        lacking = (name for name in blocking if name not in known or known[name].of(target[1], written) is None)
        return tuple(sorted(lacking))
