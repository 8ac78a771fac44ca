"""Random histories of a table, and an oracle of the snapshots that must stay. It shares no code with the library."""

import random
from dataclasses import dataclass, field

from dagster_tidemark.lakehouse.maintenance.expirable import SnapshotFacts, TableHistory


@dataclass
class RandomHistory:
    """A table that random commits, rollbacks, branches, tags and staged commits have changed, one at each time."""

    seed: int
    parent: dict[int, int | None] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    marks: dict[int, frozenset[str]] = field(default_factory=dict)
    staged: set[int] = field(default_factory=set)
    branches: dict[str, int] = field(default_factory=dict)
    tags: set[int] = field(default_factory=set)
    currents: list[tuple[int, int]] = field(default_factory=list)
    now: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._commit_main()
        for _ in range(self.random.randrange(3, 40)):
            self.now += self.random.choice([1, 10, 1000])
            self.random.choice(
                [self._commit_main] * 5 + [self._roll_back, self._branch, self._commit_branch, self._tag, self._stage]
            )()

    @property
    def head(self) -> int:
        return self.currents[-1][1]

    def as_read(self) -> TableHistory:
        """The history as the library gets it, in no order."""
        found = [
            SnapshotFacts(id, self.parent[id], self.at[id], self.marks[id], id in self.staged) for id in self.parent
        ]
        self.random.shuffle(found)
        return TableHistory(found, self.currents, self.head, self.branches, sorted(self.tags))

    def _new(self, parent: int | None) -> int:
        id = self.random.randrange(10**9)
        self.parent[id], self.at[id] = parent, self.now
        self.marks[id] = frozenset(name for name in ("tidemark.a", "tidemark.b") if self.random.random() < 0.15)
        return id

    def _commit_main(self) -> None:
        self.currents.append((self.now, self._new(self.head if self.currents else None)))

    def _roll_back(self) -> None:
        self.currents.append((self.now, self.random.choice(self.past(self.head))))

    def _branch(self) -> None:
        name = f"{self.random.choice(['preview_', 'audit_'])}{len(self.branches)}"
        self.branches[name] = self.head

    def _commit_branch(self) -> None:
        if self.branches:
            name = self.random.choice(sorted(self.branches))
            self.branches[name] = self._new(self.branches[name])

    def _tag(self) -> None:
        self.tags.add(self.random.choice(sorted(self.parent)))

    def _stage(self) -> None:
        self.staged.add(self._new(self.head))

    def past(self, id: int | None) -> list[int]:
        found = []
        while id is not None:
            found.append(id)
            id = self.parent[id]
        return found

    def must_stay(self, since: int, pins: set[int]) -> set[int]:
        """Every snapshot for which there is a reason, each reason written down on its own."""
        main = self.past(self.head)
        stays = {*self.staged, *self.tags, *self.branches.values(), self.head}
        stays |= {id for id, at in self.at.items() if at >= since}
        for number, (_, id) in enumerate(self.currents):
            ended = self.currents[number + 1][0] if number + 1 < len(self.currents) else None
            if ended is None or ended >= since:  # a reader may have begun with it
                stays.add(id)
        needed = [id for id in main if id in pins or id in stays_current(self.currents, since)]
        for mark in ("tidemark.a", "tidemark.b"):
            needed += [id for id in main if mark in self.marks[id]][:1]
        for name, head in self.branches.items():
            own = self.past(head)
            for id in own:
                stays.add(id)
                if id in main:
                    needed += [id] if name.startswith("preview_") else []
                    break
        for id in needed:  # readers walk from the head to it
            stays |= set(main[: main.index(id) + 1])
        return stays


def stays_current(currents: list[tuple[int, int]], since: int) -> set[int]:
    """Snapshots that were current at a time or later."""
    spans = zip(currents, [*currents[1:], (None, 0)], strict=True)
    return {id for (_, id), (until, _) in spans if until is None or until >= since}
