"""Random graphs under random pauses, skips and rebuilds, judged by an oracle that shares no code with the planner.

The oracle knows what people were promised, and nothing about how the planner keeps it:

- A partition is owed if a partition that it reads has changed since the start of its last run, outside of that run.
- A skip moves that point in time to the moment of the command. A later rebuild moves it back. If the later one of two
  is ended, the earlier one applies again. A rebuild that the plan finds complete is ended.
- A skipped partition that was never built is not revived by an input that all partitions read.
- A built partition whose last run started before a rebuild of it is owed, whatever has changed.
- A paused partition is never requested.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.overrides import Override, OverrideKind, Overrides, without
from tests.tidemark.world import World, day_of, hours_of, ordinal, same

HOURS = tuple(f"2026-09-{day}-{hour:02}:00" for day in (18, 19) for hour in (5, 6, 7))
DAYS = ("2026-09-18", "2026-09-19")


@dataclass(frozen=True)
class Table:
    """An asset of a random graph: its grain (`hour`, `day` or empty), and the keys of what it reads."""

    key: str
    grain: str
    reads: tuple[str, ...] = ()


def keys_of(grain: str) -> tuple[str | None, ...]:
    return {"hour": HOURS, "day": DAYS, "": (None,)}[grain]


def read_by(grain: str, partition: str | None, of: str) -> tuple[str | None, ...]:
    """The partitions of a table of grain `of` that a partition of another grain reads."""
    if grain == of:
        return (partition,)
    if not grain or not of:
        return keys_of(of)
    if grain == "hour":
        return (str(partition)[:10],)
    return tuple(hour for hour in HOURS if hour.startswith(str(partition)))


def tables(chance: random.Random) -> list[Table]:
    """A random graph of one to three sources and two to five tables, each made of earlier ones."""
    found = [Table(f"raw/{n}", chance.choice(("hour", "hour", "day", ""))) for n in range(chance.randint(1, 3))]
    for n in range(chance.randint(2, 5)):
        reads = tuple(of.key for of in chance.sample(found, chance.randint(1, min(3, len(found)))))
        grains = {of.key: of.grain for of in found}
        fine = [grain for grain in ("hour", "day", "") if any(grains[key] == grain for key in reads)]
        grain = chance.choice([*fine, "day" if "hour" in fine else fine[0]])
        found.append(Table(f"core/{n}", grain, reads))
    return found


def graph_of(found: list[Table]) -> Graph:
    """The planner's form of a random graph. Every table runs as soon as something is pending."""
    grains = {table.key: table.grain for table in found}

    def read(table: Table, key: str) -> Input:
        of = grains[key]
        if table.grain == of:
            return Input(key, same, same, joinable=True)
        if not table.grain:
            return Input(key, None, lambda _: [None])
        if not of:
            return Input(key, lambda _: [None], None)
        return Input(key, day_of, hours_of) if of == "day" else Input(key, hours_of, day_of)

    def node(table: Table) -> Node:
        order = {"hour": ordinal, "day": lambda d: ordinal(f"{d}-00") // 24, "": lambda _: 0}[table.grain]
        return Node(
            table.key,
            [read(table, key) for key in table.reads],
            order,
            partitioned=bool(table.grain),
            automated=bool(table.reads),
            source=not table.reads,
            asap=bool(table.reads),
        )

    return Graph({table.key: node(table) for table in found})


@dataclass
class Written:
    """What the oracle remembers of a partition: its last change, and the last run that built it."""

    changed: int = 0
    changed_by: int = 0
    content: object = None
    seen: int = 0
    run: int = 0


@dataclass(frozen=True)
class Cut:
    """A skip or rebuild of a partition."""

    id: str
    kind: OverrideKind
    moment: int


@dataclass
class Oracle:
    """The promises, in terms of moments counted from one."""

    tables: dict[str, Table]
    moment: int = 0
    of: dict[Target, Written] = field(default_factory=dict)
    cuts: dict[Target, list[Cut]] = field(default_factory=dict)

    def targets(self) -> Iterator[Target]:
        for table in self.tables.values():
            yield from ((table.key, partition) for partition in keys_of(table.grain) if table.reads)

    def inputs(self, target: Target) -> list[list[Target]]:
        """The written partitions that a partition reads, by input."""
        table = self.tables[target[0]]
        read = (
            [(key, p) for p in read_by(table.grain, target[1], self.tables[key].grain) if (key, p) in self.of]
            for key in table.reads
        )
        return list(read)

    def owed(self, target: Target) -> bool:
        inputs, written = self.inputs(target), self.of.get(target)
        cut = next(reversed(self.cuts.get(target, [])), None)
        asked = cut.moment if cut is not None and cut.kind is OverrideKind.REBUILD else 0
        skipped = cut.moment if cut is not None and cut.kind is OverrideKind.SKIP else 0
        if written is not None and written.seen < asked:
            return True
        if written is None and not all(inputs):
            return False
        since = max(written.seen if written else 0, skipped)
        run = written.run if written else -1
        if written is None and skipped and target[1] is not None:
            inputs = [[one for one in of if one[1] is not None] for of in inputs]
        return any(self.of[one].changed > since and self.of[one].changed_by != run for of in inputs for one in of)

    def arrived(self, source: Target) -> None:
        self.moment += 1
        self.of[source] = Written(self.moment, 0, self.moment)

    def build(self, run: int, started: int, target: Target) -> str:
        """Build a partition from what is there, and return its content."""
        self.moment += 1
        content = tuple(self.of[one].content for of in self.inputs(target) for one in of)
        before = self.of.get(target)
        is_new = before is None or before.content != content
        changed, by = (self.moment, run) if before is None or is_new else (before.changed, before.changed_by)
        self.of[target] = Written(changed, by, content, started, run)
        return repr(hash(content))

    def cut(self, kind: OverrideKind, id_: str, targets: list[Target]) -> None:
        self.moment += 1
        for target in targets:
            self.cuts.setdefault(target, []).append(Cut(id_, kind, self.moment))

    def complete(self, id_: str) -> None:
        """Forget a complete rebuild of what was never built, maybe by a run under way. All else stays owed."""
        for target, cuts in self.cuts.items():
            if target not in self.of:
                self.cuts[target] = [cut for cut in cuts if cut.id != id_]

    def end(self, id_: str) -> None:
        for target, cuts in self.cuts.items():
            self.cuts[target] = [cut for cut in cuts if cut.id != id_]


class Play:
    """One random history: the planner's world and the oracle, side by side."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        found = tables(self.chance)
        self.oracle = Oracle({table.key: table for table in found})
        self.world = World(graph_of(found))
        self.records: tuple[Override, ...] = ()
        self.open: list[tuple[str, int, int, list[Target]]] = []
        self.runs = 0
        self.covered: dict[str, list[Target]] = {}
        self.counts = dict.fromkeys(("requests", "pause", "resume", "skip", "rebuild", "end", "complete"), 0)

    def play(self, steps: int = 25) -> None:
        """Play a number of random steps, then end every pause and check that everything is caught up."""
        for _ in range(steps):
            self.step()
        self.records = without(self.records, self._pauses(), at=self.world.now, by="anna")
        self._apply()
        self.settle()

    def step(self) -> None:
        self.world.now += 1.0
        by_people = (self.pause, self.resume, self.skip, self.rebuild, self.end)
        steps = (self.arrive, self.settle, self.begin, self.finish, *by_people, self.complete)
        step = self.chance.choices(steps, (8, 4, 3, 3, 2, 2, 2, 2, 2, 2))[0]
        step()

    def arrive(self) -> None:
        table = self.chance.choice([table for table in self.oracle.tables.values() if not table.reads])
        partition = self.chance.choice(keys_of(table.grain))
        self.oracle.arrived((table.key, partition))
        self.world.arrive(partition, f"v{self.oracle.moment}", key=table.key)

    def begin(self) -> None:
        """Start a run that the planner requests, and leave it open."""
        if requests := self._requests():
            self._start(self.chance.choice(requests))

    def finish(self) -> None:
        if self.open:
            name, run, started, targets = self.open.pop(self.chance.randrange(len(self.open)))
            for target in targets:
                content = self.oracle.build(run, started, target)
                self.world.build(name, target, content)
            self.world.end(name)

    def settle(self) -> None:
        """Run everything that the planner requests, until nothing is left. Then nothing may be owed."""
        while self.open:
            self.finish()
        for _ in range(60):
            requests = self._requests()
            if not requests:
                break
            for targets in requests:
                self._start(targets)
            while self.open:
                self.finish()
        else:
            raise AssertionError("the planner never comes to rest")
        left = [t for t in self.oracle.targets() if self.oracle.owed(t) and not self._waits_for_a_pause(t)]
        assert not left, f"owed, but not requested: {left}, {self.world.plan().waiting}"

    def pause(self) -> None:
        until = self.chance.choice((None, self.world.now + self.chance.randint(1, 15)))
        self._record(OverrideKind.PAUSE, self._some(), until)

    def resume(self) -> None:
        if pauses := self._pauses():
            self.counts["resume"] += 1
            self.records = without(self.records, [self.chance.choice(pauses)], at=self.world.now, by="anna")
            self._apply()

    def skip(self) -> None:
        self._cut(OverrideKind.SKIP)

    def rebuild(self) -> None:
        self._cut(OverrideKind.REBUILD)

    def _cut(self, kind: OverrideKind) -> None:
        covered = self._record(kind, self._some())
        self.oracle.cut(kind, self.records[-1].id, covered)

    def end(self) -> None:
        """End a skip or rebuild, as `tidemark overrides --end`."""
        if cuts := [each.id for each in self.records if each.kind is not OverrideKind.PAUSE and each.ended_at is None]:
            self.counts["end"] += 1
            ended = self.chance.choice(cuts)
            self.records = without(self.records, [ended], at=self.world.now, by="anna")
            self.oracle.end(ended)
            self._apply()

    def complete(self) -> None:
        """End the rebuilds that the plan finds complete, as the sensor does."""
        left = self.world.plan().left
        rebuilds = [each for each in self.records if each.kind is OverrideKind.REBUILD and each.ended_at is None]
        done = [each.id for each in rebuilds if each.id not in left]
        self.counts["complete"] += len(done)
        self.records = without(self.records, done, at=self.world.now, by="")
        for each in done:
            self.oracle.complete(each)
        self._apply()

    def _some(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, str] | None]:
        """Some assets, and some keys or a range of them. Only assets of one grain have common keys."""
        built = [table for table in self.oracle.tables.values() if table.reads]
        one = self.chance.choice(built)
        if not one.grain or self.chance.random() < 0.5:
            return tuple(t.key for t in self.chance.sample(built, self.chance.randint(1, len(built)))), (), None
        keys = [str(key) for key in keys_of(one.grain)]
        if self.chance.random() < 0.5:
            return (one.key,), tuple(self.chance.sample(keys, self.chance.randint(1, 2))), None
        first, last = sorted(self.chance.choices(keys, k=2))
        return (one.key,), (), (first, last)

    def _record(
        self,
        kind: OverrideKind,
        some: tuple[tuple[str, ...], tuple[str, ...], tuple[str, str] | None],
        until: float | None = None,
    ) -> list[Target]:
        """Store an override, and return the partitions that it covers, computed from the keys alone."""
        assets, keys, ends = some
        first, last = ends or (None, None)
        made = Override(
            f"o-{len(self.records)}", kind, "some", assets, "anna", "x", self.world.now, self.world.next(), until
        )
        made = Override(**{**vars(made), "keys": keys, "first": first, "last": last, "codes": dict.fromkeys(assets)})
        self.records = (*self.records, made)
        self.counts[str(kind)] += 1
        self._apply()
        covered = [
            (asset, key)
            for asset in assets
            for key in keys_of(self.oracle.tables[asset].grain)
            if (not keys or key in keys) and (ends is None or ends[0] <= str(key) <= ends[1])
        ]
        self.covered[made.id] = covered
        return covered

    def _pauses(self) -> list[str]:
        now = self.world.now
        lasting = (each for each in self.records if each.kind is OverrideKind.PAUSE and each.ended_at is None)
        return [each.id for each in lasting if each.until is None or each.until > now]

    def _is_paused(self, target: Target) -> bool:
        return any(target in self.covered[one] for one in self._pauses())

    def _waits_for_a_pause(self, target: Target) -> bool:
        """True if a partition is paused and owed, or reads one, at any depth."""
        if self._is_paused(target) and self.oracle.owed(target):
            return True
        return any(self._waits_for_a_pause(one) for of in self._read(target) for one in of)

    def _apply(self) -> None:
        self.world.history.overrides = Overrides.of(self.records)

    def _requests(self) -> list[list[Target]]:
        """The targets of each request. Each must be owed, or join the run of an input, and none may be paused."""
        found = [request.targets for request in self.world.plan().requests]
        for targets in found:
            for target in targets:
                assert not self._is_paused(target), f"requested although paused: {target}"
                joins = any(one in targets for of in self._read(target) for one in of)
                assert joins or self.oracle.owed(target), f"requested, but not owed: {target}"
        return found

    def _read(self, target: Target) -> list[list[Target]]:
        table, tables = self.oracle.tables[target[0]], self.oracle.tables
        return [[(key, p) for p in read_by(table.grain, target[1], tables[key].grain)] for key in table.reads]

    def _start(self, targets: list[Target]) -> None:
        self.runs += 1
        self.oracle.moment += 1
        self.counts["requests"] += 1
        name = f"run {self.runs}"
        self.world.start(name, *targets)
        self.open.append((name, self.runs, self.oracle.moment, targets))
