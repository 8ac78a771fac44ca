"""Random nights of random conditions, many with a clock change, and an oracle of the requests that they must give.

The oracle knows the arrivals, the runs and the times of ticks. It shares no code with the conditions: it replays their
documented meaning. Its wall clocks and schedules come from the standard library.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_tidemark.conditions_to_combine import between, check_passed, every, updated
from dagster_tidemark.simulation.run import CheckFate, Run
from dagster_tidemark.simulation.simulator import Simulation
from dagster_tidemark.sources.feed import Partition
from tests.tidemark.toy_graph import ASAP, asset, source

X, A, B = "core/x", "core/a", "core/b"
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago")
EVENINGS = {
    "Europe/Berlin": ("2026-03-28", "2026-10-24"),
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),
    "America/Santiago": ("2026-04-04", "2026-09-05"),
}
"""Evenings before the clocks change, by zone."""
HOURS = 8
EVERY = 300.0
"""Seconds between two evaluations of the conditions."""


@dataclass
class Facts:
    """Facts of a simulation, as of one tick.

    Args:
        updates: Times of the updates of each input, by input and partition.
        passed: Result of the check on the latest data of the first input; None without one.
    """

    at: float
    since: float
    updates: dict[tuple[str, Partition], list[float]]
    passed: bool | None
    zone: str
    by: dg.TimeWindowPartitionsDefinition | None
    requested: dict[Partition, float] = field(default_factory=dict)
    busy: set[Partition] = field(default_factory=set)

    def window_end(self, partition: Partition) -> float:
        assert partition is not None
        day = datetime.fromisoformat(partition) + timedelta(days=1)
        return day.replace(tzinfo=ZoneInfo(self.zone)).timestamp()

    def last_request(self, partition: Partition) -> float:
        return self.requested.get(partition, self.since)


Truth = Callable[[Facts, Partition], bool]


@dataclass(frozen=True)
class Term:
    """A condition with its documented meaning."""

    said: str
    condition: Any
    is_true: Truth


def _updated(*inputs: str) -> Term:
    def _is_true(facts: Facts, p: Partition) -> bool:
        last = facts.last_request(p)
        return p not in facts.busy and any(at > last for each in inputs for at in facts.updates.get((each, p), ()))

    return Term(f"updated{inputs}", updated(*inputs), _is_true)


def _between(start: str, end: str, zone: str) -> Term:
    def _is_true(facts: Facts, p: Partition) -> bool:
        now = datetime.fromtimestamp(facts.at, ZoneInfo(zone)).strftime("%H:%M")
        return start <= now < end if start < end else not end <= now < start

    return Term(f"between({start}, {end}, {zone})", between(start, end, zone), _is_true)


def moments(hour: int, minute: int, weekdays: set[int], zone: str, after: float, until: float) -> Iterator[float]:
    """Yield the times of a schedule, one a day: the second one if a wall time exists twice, else the end of the gap."""
    day = datetime.fromtimestamp(after, ZoneInfo(zone)).date() - timedelta(days=1)
    while (midnight := datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) <= until:
        wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZoneInfo(zone), fold=1)
        at = wall.timestamp()
        if datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%H:%M") != f"{hour:02}:{minute:02}":
            at = next(t for n in range(1600) if _skips(t := midnight + 60 * n, zone))  # the first minute after the gap
        if day.isoweekday() % 7 in weekdays and after < at <= until:
            yield at
        day += timedelta(days=1)


def _skips(at: float, zone: str) -> bool:
    """Return True at the moment when the clocks of a zone were set forward."""
    before, now = (datetime.fromtimestamp(t, ZoneInfo(zone)).utcoffset() for t in (at - 1, at))
    return before is not None and now is not None and now > before


def _every(hour: int, minute: int, weekdays: set[int], zone: str) -> Term:
    cron = f"{minute} {hour} * * {','.join(map(str, sorted(weekdays))) if len(weekdays) < 7 else '*'}"

    def _is_true(facts: Facts, p: Partition) -> bool:
        if p in facts.busy:
            return False
        last = facts.last_request(p)
        if facts.by is not None:
            # A day is in the schedule from its end on, and until the next day has ended.
            end = facts.window_end(p)
            after = (datetime.fromisoformat(str(p)) + timedelta(days=2)).replace(tzinfo=ZoneInfo(facts.zone))
            if not end <= facts.at < after.timestamp():
                return False
            last = max(last, end - EVERY)
        return any(moments(hour, minute, weekdays, zone, last, facts.at))

    return Term(f"every({cron}, {zone})", every(cron, zone), _is_true)


def _checked() -> Term:
    return Term("check_passed", check_passed(A, "complete"), lambda facts, p: facts.passed is True)


def _both(one: Term, other: Term) -> Term:
    return Term(
        f"({one.said} & {other.said})",
        one.condition & other.condition,
        lambda facts, p: one.is_true(facts, p) and other.is_true(facts, p),
    )


def _either(one: Term, other: Term) -> Term:
    return Term(
        f"({one.said} | {other.said})",
        one.condition | other.condition,
        lambda facts, p: one.is_true(facts, p) or other.is_true(facts, p),
    )


def _no(term: Term) -> Term:
    return Term(f"~{term.said}", ~term.condition, lambda facts, p: not term.is_true(facts, p))


def _wall(dice: random.Random, begin: datetime, zone: str) -> datetime:
    """Return a time of the night by the wall clock of a zone, to the half hour."""
    at = (begin + timedelta(hours=dice.uniform(0, HOURS))).astimezone(ZoneInfo(zone))
    return at.replace(minute=at.minute // 30 * 30)


def state(dice: random.Random, begin: datetime) -> Term:
    """Return a condition that depends on the time of day or on a check."""
    zone = dice.choice(ZONES)
    start, end = (_wall(dice, begin, zone).strftime("%H:%M") for _ in range(2))
    found = _checked() if start == end or dice.random() < 0.3 else _between(start, end, zone)
    return _no(found) if dice.random() < 0.3 else found


def event(dice: random.Random, begin: datetime) -> Term:
    """Return a condition that is false after a request."""
    if dice.random() < 0.6:
        return _updated(*dice.choice(((A,), (B,), (A, B))))
    zone = dice.choice(ZONES)
    wall = _wall(dice, begin, zone)
    weekdays = set(range(7)) if dice.random() < 0.6 else {wall.isoweekday() % 7, dice.randrange(7)}
    # Dagster shifts a time in a gap at midnight by an hour, and others to the end of the gap.
    return _every(wall.hour, wall.minute if wall.hour else 0, weekdays, zone)


def term(dice: random.Random, begin: datetime) -> Term:
    """Return a condition that is true after some event, and false after the request."""
    found = event(dice, begin)
    if dice.random() < 0.6:
        found = dice.choice((_both, _either))(found, event(dice, begin))
    if dice.random() < 0.6:
        found = _both(found, state(dice, begin))
    if dice.random() < 0.2:
        found = _either(found, _both(event(dice, begin), state(dice, begin)))
    return found


class Watched(Simulation):
    """A simulation that records its ticks, and the runs that each of them requested."""

    seen: list[tuple[float, list[Run]]]

    def _tick(self) -> None:
        if not hasattr(self, "seen"):
            self.seen = []
        before = len(self.runs)
        super()._tick()
        self.seen.append((self.clock.now, self.runs[before:]))


@dataclass
class Night:
    """A simulated platform with one random condition."""

    seed: int

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        self.zone = dice.choice(ZONES)
        evening = dice.choice(EVENINGS.get(self.zone, ("2026-10-31",)))
        start = datetime.fromisoformat(f"{evening}T21:00").replace(tzinfo=ZoneInfo(self.zone))
        self.by = (
            dg.DailyPartitionsDefinition((start - timedelta(days=4)).strftime("%Y-%m-%d"), timezone=self.zone)
            if dice.random() < 0.5
            else None
        )
        self.term = term(dice, start.astimezone(UTC))
        x = asset(X, A, B, by=self.by, automation_condition=self.term.condition)
        assets: list[Any] = [source("a", self.by), source("b", self.by), x]
        assets += [asset(f"core/{name}", f"raw/{name}", by=self.by, **ASAP) for name in "ab"]

        @dg.asset_check(asset=dg.AssetKey.from_user_string(A), name="complete")
        def complete() -> dg.AssetCheckResult:
            raise NotImplementedError

        self.simulation = Watched(dg.Definitions(assets=assets, asset_checks=[complete]), start=start, own_every=EVERY)
        for _ in range(dice.randrange(10, 30)):
            at = self.simulation.time(hours=dice.uniform(0.2, HOURS - 0.5))
            self.simulation.arrive(f"raw/{dice.choice('ab')}", self._partition(dice, at), at=at)
        runs = self.simulation._runs
        runs.failing.append(lambda run, check: CheckFate.FAILS if dice.random() < 0.2 else None)
        runs.lasting.append(lambda run, at: dice.choice((10.0, 1_500.0, 3_000.0)) if at == X else None)

    def _partition(self, dice: random.Random, at: float) -> Partition:
        if self.by is None:
            return None
        day = datetime.fromtimestamp(at, ZoneInfo(self.zone)).date() - timedelta(days=dice.choice((1, 1, 1, 1, 2)))
        return day.isoformat()

    def differences(self) -> list[str]:
        """Run the night. Return each difference between the requests and the oracle's."""
        simulation, found = self.simulation, list[str]()
        simulation.run(hours=HOURS)
        assert not simulation.failed_ticks, simulation.failed_ticks
        requested: dict[Partition, float] = {}
        first = simulation.seen[0][0]
        for at, runs in simulation.seen:
            facts = self._facts(at, first, requested)
            wanted = {p for p in self._partitions(at) if at > first and self.term.is_true(facts, p)}
            asked = {p for run in runs if X in run.assets for p in run.of[X]}
            if asked != wanted:
                when = datetime.fromtimestamp(at, ZoneInfo(self.zone))
                found.append(f"{when}: asked {sorted(map(str, asked))}, wanted {sorted(map(str, wanted))}")
            requested |= dict.fromkeys(asked, at)
        return found

    def _partitions(self, at: float) -> list[Partition]:
        if self.by is None:
            return [None]
        return list(self.by.get_partition_keys(current_time=datetime.fromtimestamp(at, UTC)))

    def _facts(self, at: float, first: float, requested: dict[Partition, float]) -> Facts:
        simulation = self.simulation
        updates: dict[tuple[str, Partition], list[float]] = {}
        for name in (A, B):
            for run in (run for run in simulation.runs if run.committed.get(name, at + 1) <= at):
                for p in run.of[name]:
                    updates.setdefault((name, p), []).append(run.committed[name])
        of_a = [run for run in simulation.runs if run.committed.get(A, at + 1) <= at]
        last = max(of_a, key=lambda run: run.committed[A], default=None)
        passed = next((ok for ended, ok in last.results.values() if ended <= at), None) if last is not None else None
        earlier = (run for run in simulation.runs_of(X) if run.created_at < at)
        busy = {p for run in earlier if run.ended_at is None or run.ended_at > at for p in run.of[X]}
        return Facts(at, first, updates, passed, self.zone, self.by, requested, busy)
