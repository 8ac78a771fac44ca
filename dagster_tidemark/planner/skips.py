"""Partitions that lack something because a person skipped it, and what a skip still leaves to do.

Belongs here: the effect of a skip on one partition. Does not belong here: the records (`planner.overrides`), and the
changes that a built partition does not contain (`planner.history`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dagster_tidemark.planner.candidates import Candidates
from dagster_tidemark.planner.graph import Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.overrides import Override
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True)
class Later:
    """Arrivals after the skip of a partition that was never built.

    Args:
        present: At its inputs. A run can read them now.
        coming: On the way: inputs that lack them have to run first.
    """

    present: Sequence[float]
    coming: Sequence[float]

    @property
    def first(self) -> float | None:
        return min([*self.present, *self.coming], default=None)


@dataclass
class Skips:
    """The partitions that lack something, each with the skip, by asset."""

    history: History
    of: dict[str, dict[Partition, Override]] = field(default_factory=dict)

    def get(self, target: Target) -> Override | None:
        """Return the skip that left data out of a partition, or None."""
        return self.of.get(target[0], {}).get(target[1])

    def pop(self, target: Target) -> Override | None:
        """Forget and return the skip of a partition, before it is computed again."""
        return self.of.get(target[0], {}).pop(target[1], None)

    def note(self, target: Target, skip: Override) -> None:
        """Note that a skip left data out of a partition."""
        self.of.setdefault(target[0], {})[target[1]] = skip

    def note_built(self, node: Node, target: Target) -> None:
        """Note a built partition if a skip left data out of it."""
        if node.key not in self.history.overrides.cuts:
            return
        skip = self.history.overrides.skip_of(node, target[1])
        if skip is not None and any(self.history.left_out(read, target) for read in node.inputs):
            self.note(target, skip)

    def of_input(self, node: Node, target: Target, missing_inputs: Sequence[str]) -> Override | None:
        """Return the skip that left a partition without data of a required input, or None."""
        if not self.of or not missing_inputs:
            return None
        for read in node.inputs:
            if read.key not in missing_inputs or read.key == node.key:
                continue
            skips = self.of.get(read.key, {})
            wanted = skips if read.upstream is None else read.upstream(target[1])
            if found := next((skips[partition] for partition in wanted if partition in skips), None):
                return found
        return None

    def is_past(self, node: Node, read: Input, target: Target) -> bool:
        """Return True if a table's own past has nothing for a partition because a person skipped it."""
        if read.key != node.key or read.upstream is None or not self.of:
            return False
        return any(self.get((node.key, past)) is not None for past in read.upstream(target[1]))

    def later(
        self,
        node: Node,
        target: Target,
        pending: Iterable[tuple[Input, Iterable[float]]],
        skip: Override,
        candidates: Candidates,
    ) -> Later:
        """Return the arrivals since a skip of a partition that was never built.

        An input that all partitions read does not count: its next change would build everything that was skipped.

        Args:
            pending: Each input with the arrivals that its partitions lack.
        """
        drives = [
            (read, arrivals)
            for read, arrivals in pending
            if not (read.use_latest or read.broad or (node.partitioned and read.downstream is None))
        ]
        present = [at for read, _ in drives for at in self.history.arrivals_since(read, target[1], skip)]
        begins = candidates.begins(node, target) if node.enumerated else skip.at
        if begins > skip.at:
            present.append(begins)
        return Later(present, [at for _, arrivals in drives for at in arrivals])
