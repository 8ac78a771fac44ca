"""Results of blocking checks, which decide if the readers of a partition may be built.

Readers may be built after each blocking check has passed on the partition's last write. A failed check blocks them,
and so does a check without a result. Pure. Does not belong here: the planner's decisions (`planner.waiting`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Target
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True, slots=True)
class LatestWrite:
    """Latest write of a partition. `id` is its storage id, and `run_id` the run that wrote the partition, if any."""

    id: int
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Args:
        id: Its storage id.
        run_id: The run that evaluated the check, if any.
        began: Storage id of that run's first event. The evaluation may have seen only older writes. None: unknown.
    """

    id: int
    passed: bool
    run_id: str | None = None
    began: int | None = None

    def is_on(self, written: LatestWrite) -> bool:
        """Return True if the result is about this write.

        A check passes on a write only if its evaluation began after that write: it may be slow, and a newer write
        may precede its result. A failure always counts if it is newer.
        """
        if written.run_id is not None and self.run_id == written.run_id:
            return True  # even if a step reports its check before its output
        is_newer = self.id > written.id
        return is_newer and (not self.passed or self.began is None or self.began > written.id)


@dataclass
class Results:
    """Latest results of one check: on the whole asset (`whole`), and on single partitions (`on`)."""

    whole: CheckResult = CheckResult(-1, passed=True)
    on: dict[Partition, CheckResult] = field(default_factory=dict)

    def take(self, result: CheckResult, partitions: Collection[Partition]) -> None:
        """Record a result on these partitions, or on the whole asset if there are none."""
        if partitions:
            self.on |= {p: result for p in partitions if p not in self.on or result.id >= self.on[p].id}
        elif result.id >= self.whole.id:
            self.whole = result
            # Results since the evaluation began may be about writes that it has not seen.
            began = result.id if result.began is None else result.began
            self.on = {p: of for p, of in self.on.items() if of.id > began}

    def of(self, partition: Partition, written: LatestWrite) -> CheckResult | None:
        """Return the result on the last write of a partition, or None."""
        known = (self.whole, self.on.get(partition))
        found = [result for result in known if result is not None and result.is_on(written)]
        return max(found, key=lambda result: result.id, default=None)

    def repeated(self, partition: Partition, id: int, run_id: str) -> None:
        """Forget the result of a run on a partition that this run writes again, at a storage id."""
        result = self.on.get(partition)
        if result is not None and result.run_id == run_id and result.id < id:
            del self.on[partition]


@dataclass
class CheckResults:
    """Latest results of blocking checks, by asset and check."""

    of: dict[str, dict[str, Results]] = field(default_factory=dict)

    def evaluated(self, asset: str, check: str, result: CheckResult, partitions: Collection[Partition]) -> None:
        """Record the result of a check on these partitions, or on the whole asset if there are none."""
        self.of.setdefault(asset, {}).setdefault(check, Results()).take(result, partitions)

    def repeated(self, target: Target, id: int, run_id: str) -> None:
        """Forget the results of a run on a partition that this run writes again, such as in a retried step."""
        for results in self.of.get(target[0], {}).values():
            results.repeated(target[1], id, run_id)

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
