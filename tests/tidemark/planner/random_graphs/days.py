"""A random day on a graph: arrivals, failures, deploys, and whatever people and machines do."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg

from tests.tidemark.planner.random_graphs.shapes import POOL, STATIC, TIMES, Event, Read, Table, World, definition

SECONDS = 3600.0
AHEAD = 0.1
"""Share of arrivals in a window that has not begun, or does not exist yet."""
CHECK_FATES = ("FAILS", "RAISES", "SKIPPED", "TIMES_OUT")
SLOW_CHECKS = ((0.0, 0.0), (0.0, 5.0), (0.0, 60.0), (5.0, 300.0), (60.0, 900.0))
"""The shortest and the longest evaluation of a check, for a day: a result may come long after newer writes."""
FATES = ("FAILS", "FAILS", "FAILS", "DIES", "NEVER_BEGINS")


def random_day(world: World) -> World:
    """The same graph with what happens to it."""
    chance = random.Random(f"{world.seed}/day")
    events: list[Event] = []
    for table in world.tables:
        if table.outside:
            events += _arrivals(chance, world, table)
    own = [table for table in world.tables if not table.outside]
    for what, most in (
        (_failures, 4),
        (_deploy, 2),
        (_by_a_person, 2),
        (_lost, 1),
        (_keys, 3),
        (_checks, 2),
        (_platform, 2),
        (_backfill, 1),
    ):
        if chance.random() < 0.5:
            for _ in range(chance.randint(1, most)):
                events += what(chance, world, chance.choice(own))
    keys = tuple(chance.sample(POOL, chance.randint(0, 3)))
    static = STATIC
    if chance.random() < 0.15 and not _names_static_keys(world):
        static = STATIC[:-1]
        events.append(Event(_at(chance, world), "declare_key", (STATIC[-1],)))
    events.sort(key=lambda event: event.at)
    return replace(world, events=tuple(events), keys=keys, static=static, _by_key={})


def day_of_checks(world: World) -> World:
    """Return a random day on the same graph with blocking checks on most tables, which fail or give no result."""
    chance = random.Random(f"{world.seed}/day of checks")
    tables = tuple(replace(t, check=not t.outside and chance.random() < 0.7) for t in world.tables)
    slow = chance.choice(SLOW_CHECKS)
    day = random_day(replace(world, tables=tables, check_seconds=slow, _by_key={}))
    more = [event for _ in range(chance.randint(2, 6)) for event in _checks(chance, day, day.tables[-1])]
    return replace(day, events=tuple(sorted((*day.events, *more), key=lambda event: event.at)), _by_key={})


def day_of_bulk(world: World) -> World:
    """Return a random day on the same graph beside bulk work, with few slots and one table that may not be late.

    The bulk has six hours, and is by partitions, without any, and with a condition of its own.
    """
    chance = random.Random(f"{world.seed}/day of bulk")
    bulk = [Table("raw/bulk", "hours", kind="source"), Table("raw/whole", "single", kind="source")]
    for n in range(chance.randint(4, 12)):
        read = chance.choice(bulk[:2])
        bulk.append(
            Table(
                f"bulk{n}",
                read.grain,
                (Read(read.key),),
                contract=("lag", 21_600.0),
                policy=chance.choice(("single", "single", None, 3)) if read.grain != "single" else None,
                condition=chance.choice(("derived", "derived", "idle")),
                seconds=chance.choice((30.0, 60.0, 120.0)),
            )
        )
    first = [
        Table("raw/first", "single", kind="source"),
        Table("first", "single", (Read("raw/first"),), contract=("lag", 600.0), passes=True),
    ]
    slots = chance.choice((2, 3, 4))
    day = random_day(replace(world, tables=(*world.tables, *bulk, *first), slots=slots, _by_key={}))
    end = day.hours * SECONDS
    more = [Event(chance.uniform(0, end), "arrive", ("raw/first", None)) for _ in range(chance.randint(3, 8))]
    for _ in range(chance.randint(1, 3)):
        begin = chance.uniform(0, end * 0.8)
        hours = {_of_grain(chance, day, "hours", begin) for _ in range(12)}
        more += [Event(begin + chance.uniform(0, 60), "arrive", ("raw/bulk", hour)) for hour in sorted(map(str, hours))]
        more.append(Event(begin, "arrive", ("raw/whole", None)))
    kept = [event for event in day.events if event.of[:1] not in (("raw/bulk",), ("raw/whole",), ("raw/first",))]
    return replace(day, events=tuple(sorted((*kept, *more), key=lambda event: event.at)), _by_key={})


def _names_static_keys(world: World) -> bool:
    named = {"static", "specific", "own", "raises sometimes"}
    return any(read.way in named for table in world.tables for read in table.reads)


def _arrivals(chance: random.Random, world: World, table: Table) -> list[Event]:
    end = world.hours * SECONDS
    pattern = chance.choices(("steady", "bursts", "stream", "few", "none"), (5, 4, 1.5, 3, 0.7))[0]
    times: list[float] = []
    if pattern == "steady":
        every = chance.uniform(0.2, 2.0) * SECONDS
        times = [at + chance.uniform(0, every / 3) for n in range(int(end / every)) if (at := n * every) < end]
    elif pattern == "bursts":
        for _ in range(chance.randint(1, 4)):
            begin = chance.uniform(0, end)
            times += [begin + chance.uniform(0, 120) for _ in range(chance.randint(2, 8))]
    elif pattern == "stream":
        begin = chance.uniform(0, max(0.0, end - SECONDS))
        times = [begin + 20.0 * n for n in range(chance.randint(20, 45))]
    elif pattern == "few":
        times = [chance.uniform(0, end) for _ in range(chance.randint(1, 3))]
    narrow = pattern == "stream"
    held = _partition(chance, world, table, times[0]) if times else None
    how = "arrive" if table.kind == "source" else chance.choice(("tell", "report"))
    return [
        Event(at, how, (table.key, held if narrow else _partition(chance, world, table, at)))
        for at in times
        if at < end
    ]


def _partition(chance: random.Random, world: World, table: Table, at: float) -> str | None:
    """A partition that data arrives in: mostly a new one, now and then an old one, or one that is not there yet."""
    return _of_grain(chance, world, table.grain, at)


def _of_grain(chance: random.Random, world: World, grain: str, at: float) -> str | None:
    if grain == "single":
        return None
    if grain == "static":
        return chance.choice(STATIC)
    if grain == "dynamic":
        return chance.choice(POOL)
    if " x " in grain:
        other = grain.split(" x ")[1]
        day, of = _of_grain(chance, world, "days", at), _of_grain(chance, world, other, at)
        return str(dg.MultiPartitionKey({"day": str(day), "of": str(of)}))
    by = definition(world, grain)
    assert grain in TIMES and isinstance(by, dg.TimeWindowPartitionsDefinition)
    moment = world.begin + timedelta(seconds=at)
    keys = by.get_partition_keys(current_time=moment)
    if chance.random() < AHEAD or not keys:
        return by.get_partition_keys(current_time=moment + timedelta(days=70))[len(keys)]  # the next one
    return keys[-1] if chance.random() < 0.65 else chance.choice(keys)


def _at(chance: random.Random, world: World) -> float:
    return chance.uniform(0.02, 0.97) * world.hours * SECONDS


def _failures(chance: random.Random, world: World, table: Table) -> list[Event]:
    if table.optional and chance.random() < 0.5:
        return [Event(_at(chance, world), "fail", (table.key, 1, "YIELDS_NOTHING"))]
    times = chance.choice((1, 1, 2, 4, 8))
    return [Event(_at(chance, world), "fail", (table.key, times, chance.choice(FATES)))]


def _deploy(chance: random.Random, world: World, table: Table) -> list[Event]:
    at, code = _at(chance, world), chance.choice(("1", "2", "3"))
    later = [Event(at + chance.uniform(60, 7200), "deploy", (table.key, table.code))] if chance.random() < 0.3 else []
    return [Event(at, "deploy", (table.key, code)), *(event for event in later if event.at < world.hours * SECONDS)]


def _by_a_person(chance: random.Random, world: World, table: Table) -> list[Event]:
    at = _at(chance, world)
    what = chance.choice(("request", "request", "cancel", "restart"))
    if what == "restart":
        return [Event(at, "restart")]
    if what == "cancel":
        return [Event(at, "cancel", (table.key,))]
    return [Event(at, "request", (table.key, _of_grain(chance, world, table.grain, at)))]


def _backfill(chance: random.Random, world: World, table: Table) -> list[Event]:
    return [Event(_at(chance, world), "backfill", (table.key, chance.randint(2, 12)))]


def _lost(chance: random.Random, world: World, table: Table) -> list[Event]:
    return [Event(_at(chance, world), chance.choice(("wipe", "delete_runs")), (table.key,))]


def _keys(chance: random.Random, world: World, table: Table) -> list[Event]:
    if not any("dynamic" in other.grain for other in world.tables):
        return []
    return [Event(_at(chance, world), chance.choice(("add_key", "remove_key")), (chance.choice(POOL),))]


def _checks(chance: random.Random, world: World, table: Table) -> list[Event]:
    checked = [other for other in world.tables if other.check]
    if not checked:
        return []
    key, at = chance.choice(checked).key, _at(chance, world)
    fate = random.Random(f"{world.seed}/check {at}")  # a separate generator leaves the rest of the day unchanged
    begins = Event(at, "fail_check", (key, fate.choice(CHECK_FATES), fate.choice((1, 1, 3))))
    if chance.random() < 0.4:
        begins = Event(at, "evaluate_check", (key, False))
    return [begins, Event(world.hours * SECONDS - 1.0, "evaluate_check", (key, True))]


def _platform(chance: random.Random, world: World, table: Table) -> list[Event]:
    at, end = _at(chance, world), world.hours * SECONDS
    until = min(end - 1.0, at + chance.choice((120.0, 900.0, 7200.0)))
    what: list[list[Any]] = [
        [Event(at, "outage", (until,))],
        [Event(at, "step_clock", (chance.choice((-600.0, 86_400.0, 120.0)),))],
        [
            Event(at, "switch", (sensor := chance.choice(("automation", "catch_up")), False)),
            Event(until, "switch", (sensor, True)),
        ],
    ]
    return chance.choices(what, (4, 1, 2))[0] if until > at else []
