"""What is so, worked out from bare facts: who is healthy, what partitions hold, and since when they lack something.

Reads the world as it was declared, what arrived and what the simulated runs saw and wrote; and nothing of the planner.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from dagster_tidemark.simulation.simulator import Run
from tests.tidemark.planner.random_graphs.mappings import VOLATILE
from tests.tidemark.planner.random_graphs.play import QUIET_HOURS, Day
from tests.tidemark.planner.random_graphs.shapes import TIMES, Read, Table, Target
from tests.tidemark.planner.random_graphs.windows import window_of


@dataclass(frozen=True)
class Build:
    """A partition was written.

    Args:
        at: When.
        run: By which run.
        value: The content it got.
        consumed: The oldest arrival that is new in it; None where nothing arrived.
    """

    at: float
    run: Run
    value: str
    consumed: float | None


@dataclass(frozen=True)
class Need:
    """Why a partition is expected to be built.

    Args:
        kept_up: Whether it is needed again after each change.
        since: When what asks for it began to exist, or when the window ended that it is promised for.
    """

    kept_up: bool = False
    since: float = float("inf")


@dataclass
class Facts:
    """The facts of a day that was played."""

    day: Day
    builds: dict[Target, list[Build]] = field(default_factory=lambda: defaultdict(list))
    arrivals: dict[Target, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    _possible: dict[Target, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, target, version in self.day.simulation.versions:
            known, (_, exists) = self.arrivals[target], window_of(self.day, self.day.world.table(target[0]), target)
            if not known or known[-1][1] != version:
                known.append((max(at, exists), version))  # nobody can read it before
        commits = [(at, run, asset) for run in self.day.simulation.runs for asset, at in run.committed.items()]
        for at, run, asset in sorted(commits, key=lambda commit: commit[0]):
            for partition in run.of[asset]:
                target = (asset, partition)
                found = Build(at, run, run.wrote[target], self._consumed(target, run))
                self.builds[target].append(found)

    def _consumed(self, target: Target, run: Run) -> float | None:
        others = {read.key for read in self.day.world.table(target[0]).reads} - {target[0]}
        if not others <= {source[0] for source in run.saw[target]}:
            return run.created_at  # a person's, before there was something in each of its inputs
        before = self.builds[target][-1].run.saw[target] if self.builds[target] else {}
        plain = {
            read.key for read in self.day.world.table(target[0]).reads if not (read.use_latest or read.ripple_days)
        }
        fresh = [
            (source, self.first_after(source, before.get(source), run.began[target[0]]))
            for source, version in run.saw[target].items()
            if before.get(source) != version and source[0] != target[0] and (not before or source[0] in plain)
        ]
        arrivals = [self.once_there(source, at) for source, at in fresh if at is not None]
        if not arrivals:
            return None
        whole = bool(before) and others <= {source[0] for source in before}
        return min(arrivals) if whole else max(arrivals)

    def first_after(self, source: Target, seen: str | None, until: float = float("inf")) -> float | None:
        """The oldest arrival in what a source, or a table, holds beyond a version that was seen of it."""
        if source in self.arrivals:
            versions = [version for _, version in self.arrivals[source]]
            begin = versions.index(seen) + 1 if seen in versions else 0
            return next((at for at, _ in self.arrivals[source][begin:] if at <= until), None)
        builds = [build for build in self.builds[source] if build.at <= until]
        values = [build.value for build in builds]
        last = len(values) - 1 - values[::-1].index(seen) if seen in values else -1
        later = [build.consumed for build in builds[last + 1 :] if build.value != seen]
        return min((at for at in later if at is not None), default=None)

    def once_there(self, source: Target, at: float) -> float:
        """What a partition of an input lacks, it can get from its beginning on."""
        return max(at, window_of(self.day, self.day.world.table(source[0]), source)[1])

    # What is there.

    @cached_property
    def now(self) -> datetime:
        return self.day.moment()

    def value(self, target: Target, at: float | None = None) -> str | None:
        """What a partition holds at a time, by default at the end."""
        if self.day.world.table(target[0]).outside:
            known = self.arrivals.get(target, [])
            found = len(known) if at is None else bisect_right(known, at, key=lambda arrival: arrival[0])
            return known[found - 1][1] if found else None
        build = self.build(target, at)
        return build.value if build else None

    def build(self, target: Target, at: float | None = None) -> Build | None:
        """The last build of a partition at a time, by default at the end."""
        builds = self.builds.get(target, [])
        found = len(builds) if at is None else bisect_right(builds, at, key=lambda build: build.at)
        return builds[found - 1] if found else None

    def reads(self, target: Target, read: Read) -> list[Target]:
        """The partitions of an input that a partition reads, at the end."""
        found = self.day.readings.of(target[0], read, target[1], self.now)
        return [(read.key, partition) for partition in found]

    def reads_before_the_quiet(self, target: Target, read: Read) -> list[Target]:
        """Those of them that it read already when the quiet began: others may just have come to be read."""
        then = self.now - timedelta(hours=QUIET_HOURS - 1.0)
        return [(read.key, partition) for partition in self.day.readings.of(target[0], read, target[1], then)]

    # Who is expected to be built.

    @cached_property
    def healthy(self) -> set[str]:
        """Tables that the planner has to look after: nothing is wrong with them or anything above them."""
        found: set[str] = set()
        for table in self.day.world.tables:
            above = all(read.key in found or read.key == table.key for read in table.reads)
            automated = table.condition in ("derived", "missing")
            if table.outside or (above and automated and not table.broken):
                found.add(table.key)
        return found

    @cached_property
    def needed(self) -> set[str]:
        """Tables that have a contract or a pace, or that are read by one that is needed."""
        found: set[str] = set()
        for table in reversed(self.day.world.tables):
            if table.contract or table.asap:
                found.add(table.key)
            if table.key in found and table.key in self.healthy:
                found |= {read.key for read in table.reads}
        groups = {t.group for t in self.day.world.tables if t.group and t.key in found}
        return found | {t.key for t in self.day.world.tables if t.group in groups}

    @cached_property
    def _needed_partitions(self) -> dict[Target, Need]:
        """The partitions that are promised, and those that such a one reads which can be built, or is.

        Of what is only read as it is, the first build is needed.
        """
        found: dict[Target, Need] = {}
        for table in reversed(self.day.world.tables):
            if table.key not in self.needed & self.healthy:
                continue
            of_itself = bool(table.contract or table.asap)
            for partition in self.day.readings.partitions(table.key, self.now):
                target = (table.key, partition)
                if of_itself:
                    soon = table.asap or (table.contract and table.contract[0] == "lag")
                    ends, exists = window_of(self.day, table, target)
                    found[target] = Need(True, exists if soon else max(ends, exists))
                # Of what waits until all inputs have changed, nothing is known before that.
                idle = table.every_input and self.build(target) is not None
                need = found.get(target)
                if need and self._can_run(target) and not idle:
                    for read in table.reads:
                        sources = self.reads(target, read)
                        if not read.use_latest or not any(self.value(source) for source in sources):
                            for source in sources:
                                before = found.get(source, Need())
                                kept_up = before.kept_up or (need.kept_up and not read.use_latest)
                                found[source] = Need(kept_up, min(before.since, need.since))
        return found

    def is_needed(self, target: Target) -> bool:
        """Whether a partition is promised, or read by what is and can be built."""
        return target in self._needed_partitions

    def need(self, target: Target) -> Need:
        """Why a needed partition is."""
        return self._needed_partitions[target]

    def possible(self, target: Target) -> bool:
        """Whether a partition is built, or all that it is made from is there or can be built in turn."""
        if target not in self._possible:
            self._possible[target] = self._is_there(target)
            if not self._possible[target] and not self.day.world.table(target[0]).outside:
                self._possible[target] = not self._never_written(target) and self._can_run(target)
        return self._possible[target]

    def _can_run(self, target: Target) -> bool:
        table = self.day.world.table(target[0])
        others = [read for read in table.reads if read.key != table.key]  # the first needs nothing of its past
        over = window_of(self.day, table, target)[0] <= self.now.timestamp() - QUIET_HOURS * 3600
        return (bool(others) or over) and all(
            any(self.possible(source) for source in self.reads(target, read)) for read in others
        )

    def _never_written(self, target: Target) -> bool:
        return any(target[0] in run.empty and target in run.targets for run in self.day.simulation.runs)

    def present(self, target: Target) -> bool:
        """Whether every input of a partition has something for it; the first of a table's own past needs none of it."""
        table = self.day.world.table(target[0])
        others = [source for read in table.reads if read.key != table.key for source in self.reads(target, read)]

        def _wanted(read: Read) -> list[Target]:
            found = self.reads(target, read)
            return others if read.key == table.key and not found else found

        return all(any(self._is_there(source) for source in _wanted(read)) for read in table.reads)

    def _is_there(self, target: Target) -> bool:
        return bool(self.value(target)) and not self.is_wiped(target)

    def is_wiped(self, target: Target, at: float | None = None) -> bool:
        """Whether a partition was wiped after its last build at a time, by default at the end."""
        build, end = self.build(target, at), self.day.simulation.clock.now if at is None else at
        wipes = [e.at for e in self.day.world.events if (e.what, e.of) == ("wipe", (target[0],))]
        times = [self.day.simulation.time(seconds=wiped) for wiped in wipes]
        return build is not None and any(build.at < time <= end for time in times)

    def lacking(self, target: Target) -> list[Target]:
        """What lies in the inputs of a built partition and is not in it, at the end."""
        table, build = self.day.world.table(target[0]), self.build(target)
        if build is None:
            return []
        saw = build.run.saw[target]
        return [
            source
            for read in table.reads
            if not read.use_latest
            for source in self.reads(target, read)
            if source in self.reads_before_the_quiet(target, read)
            and (held := self.value(source)) is not None
            and saw.get(source) != held
            and self._concerns(read, target, source, saw.get(source), build)
            and not (self._may_still_change(source[0]) and self._changed_lately(source))
        ]

    def _concerns(self, read: Read, target: Target, source: Target, seen: str | None, build: Build) -> bool:
        if read.ripple_days is None or target[1] is None:
            return True
        arrived = self.last_arrival(source)
        if arrived is None or any(event.what == "step_clock" for event in self.day.world.events):
            return False  # rebuilt and nothing arrived: the last days only, or none; or which day it was depends
        first = datetime.fromisoformat(target[1]).date()
        on = datetime.fromtimestamp(arrived, self.now.tzinfo).date()
        return 0 <= (on - first).days < read.ripple_days

    def is_never_quiet(self, key: str) -> bool:
        """Whether a table, or what it is made from, gets another partition as time goes by without any data."""
        tables = [self.day.world.table(name) for name in self.above(key)]
        return any(
            _is_of_time(table)
            and all(read.way == "all" or not _is_of_time(self.day.world.table(read.key)) for read in table.reads)
            for table in tables
            if not table.outside
        )

    def _may_still_change(self, key: str) -> bool:
        return self.is_never_quiet(key) or self.is_volatile(key)

    def _changed_lately(self, source: Target) -> bool:
        """Whether it was written so late that its readers' contracts, a day at most, may still give them time."""
        build = self.build(source)
        return build is not None and build.at > self.day.simulation.clock.now - (QUIET_HOURS - 2.0) * 3600

    def last_arrival(self, source: Target) -> float | None:
        """When the newest data of a partition arrived."""
        if source in self.arrivals:
            return self.arrivals[source][-1][0]
        return next((b.consumed for b in reversed(self.builds[source]) if b.consumed is not None), None)

    def above(self, key: str) -> set[str]:
        """A table and all it is made from."""
        found, table = {key}, self.day.world.table(key)
        for read in table.reads:
            if read.key != key:
                found |= self.above(read.key)
        return found

    def is_volatile(self, key: str) -> bool:
        """Whether what a table reads changes as time goes by, at any depth."""
        tables = [self.day.world.table(name) for name in self.above(key)]
        return any(read.way in VOLATILE for table in tables for read in table.reads)


def _is_of_time(table: Table) -> bool:
    """Return whether a table gets another partition as time goes by."""
    return table.grain in TIMES or " x " in table.grain
