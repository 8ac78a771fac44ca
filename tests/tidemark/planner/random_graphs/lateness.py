"""Which promises were broken though they could have been kept.

A look just before each build of a partition, and one at the end: what it lacks then, it has lacked since it arrived.
Feasible: a lag contract gives two minutes for every table on the path, or a cron contract's bound does; and from the
arrival on nothing on the path failed or waited for a slot, and the platform was up, its clock true, its sensors on.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

from tests.tidemark.planner.random_graphs.facts import Facts
from tests.tidemark.planner.random_graphs.shapes import Event, Table, Target
from tests.tidemark.planner.random_graphs.windows import window_of

_STEP = 120.0
"""Seconds a table on the path may take: its run, and waiting for a tick."""

_DISTURBS = {
    "outage": 3600.0,
    "step_clock": 7200.0,
    "switch": 900.0,
    "deploy": 7200.0,
    "wipe": 7200.0,
    "restart": 300.0,
}
_KEYS = 7200.0
"""Seconds after its end for which a disturbance excuses what is late. Deleted runs, and what people ask for, do not."""

_FIRST_LOOK = 7200.0
"""Seconds after the start in which no tick of a cron contract is promised: what was there before is loaded first."""


def late(facts: Facts) -> Iterator[str]:
    """The first miss of each table."""
    for table in facts.day.world.tables:
        if table.contract is None or table.key not in facts.healthy or not _judged(facts, table):
            continue
        misses = [miss for target in _targets(facts, table) for miss in _misses(facts, table, target)]
        if misses:
            yield f"late: {misses[0]}" + (f", and {len(misses) - 1} more" if misses[1:] else "")


def _judged(facts: Facts, table: Table) -> bool:
    path = [facts.day.world.table(key) for key in facts.above(table.key)]
    plain = all(t.condition == "derived" and not t.every_input and not _held_up(facts, t) for t in path)
    own_past = any(read.key == t.key for t in path for read in t.reads)
    return plain and not own_past and not facts.is_volatile(table.key) and bool(table.reads)


def _held_up(facts: Facts, table: Table) -> bool:
    """Whether a check of it failed at any time, or a run wrote nothing of it."""
    checks = any(e.what in ("fail_check", "evaluate_check") and e.of[0] == table.key for e in facts.day.world.events)
    return checks or any(table.key in run.empty for run in facts.day.simulation.runs)


def _targets(facts: Facts, table: Table) -> list[Target]:
    return [(table.key, partition) for partition in facts.day.readings.partitions(table.key, facts.now)]


def _misses(facts: Facts, table: Table, target: Target) -> Iterator[str]:
    end = facts.day.simulation.clock.now
    for at in [*(build.at for build in facts.builds.get(target, ())), end]:
        since = lacks_since(facts, target, at - 0.001)
        if since is None or since > at:
            continue
        promised = _promised(facts, table, target, since, at)
        grace = 30.0 + _behind(facts) + facts.day.world.check_seconds[1] * len(facts.above(table.key))
        if promised is not None and at > promised + grace and _feasible(facts, table, since, at, promised):
            hours = [f"{(t - facts.day.simulation.time()) / 3600:.3f}" for t in (since, promised, at)]
            yield f"{target} lacked since {hours[0]} h what was promised for {hours[1]} h, until {hours[2]} h"


def _behind(facts: Facts) -> float:
    """Seconds that the platform's clock is behind the clock of what arrives: so much later it is due there."""
    return max(0.0, -sum(event.of[0] for event in facts.day.world.events if event.what == "step_clock"))


def lacks_since(facts: Facts, target: Target, at: float) -> float | None:
    """The arrival of the oldest data that a partition did not contain at a time."""
    table, build = facts.day.world.table(target[0]), facts.build(target, at)
    if build is None:
        return _present_since(facts, target, at)
    found: list[float] = []
    saw = build.run.saw[target]
    for read in table.reads:
        if read.use_latest or read.ripple_days is not None:
            continue
        for source in facts.reads(target, read):
            held = facts.value(source, at)
            if held is not None and saw.get(source) != held:
                arrived = facts.first_after(source, saw.get(source), at)
                found += [] if arrived is None else [facts.once_there(source, arrived)]
            if not facts.day.world.table(source[0]).outside and facts.build(source, at) is not None:
                deeper = lacks_since(facts, source, at)
                found += [] if deeper is None else [facts.once_there(source, deeper)]
    if not found:
        return None
    # A person may have built it before all of its inputs were there.
    present = _present_since(facts, target, at)
    return None if present is None else max(min(found), present)


def _present_since(facts: Facts, target: Target, at: float) -> float | None:
    """When the last required input of a partition that was never built first had data."""
    table, first = facts.day.world.table(target[0]), []
    for read in table.reads:
        since = []
        for source in facts.reads(target, read):
            if facts.day.world.table(source[0]).outside:
                since += [arrived for arrived, _ in facts.arrivals.get(source, ())[:1]]
            elif facts.builds.get(source) and not facts.is_wiped(source, at):
                first_build = facts.builds[source][0]
                # No deadline is passed to what only has to exist: it comes when its own contract has it.
                arrived = None if read.use_latest else first_build.consumed
                since.append(facts.once_there(source, arrived or first_build.at))
            elif (deeper := _present_since(facts, source, at)) is not None:
                since.append(facts.once_there(source, deeper))
        known = [s for s in since if s <= at]
        if not known:
            return None
        first.append(min(known))
    return max(first, default=None)


def _promised(facts: Facts, table: Table, target: Target, since: float, at: float) -> float | None:
    assert table.contract is not None
    window, exists = window_of(facts.day, table, target)
    kind, *rest = table.contract
    if kind == "lag":
        # Its inputs of time exist no earlier than it does, but other grains may.
        return float(max(since, exists) + rest[0]) if exists <= at else None
    schedule, bound, zone = rest
    built = facts.build(target, at) is not None
    after = since + bound if built else max(since + bound, facts.day.simulation.time() + _FIRST_LOOK)
    return _tick(schedule, zone, max(after, window, exists + bound))


def _feasible(facts: Facts, table: Table, since: float, at: float, promised: float) -> bool:
    path = {key for key in facts.above(table.key) if not facts.day.world.table(key).outside}
    assert table.contract is not None
    given = table.contract[1] if table.contract[0] == "lag" else table.contract[2]
    step = _STEP + facts.day.world.check_seconds[1]
    if given < step * (len(path) + 1) or promised - max(since, facts.day.simulation.time()) < step * len(path):
        return False
    begin = since
    runs = [run for run in facts.day.simulation.runs if path & set(run.assets)]
    for run in runs:
        ended = run.ended_at or at
        waited = (run.started_at or ended) - run.created_at
        queued = waited > 30.0 and not table.passes
        if ended >= begin and run.created_at <= at and (not run.succeeded or queued):
            return False
    time = facts.day.simulation.time
    for event in facts.day.world.events:
        lasts = _KEYS if "key" in event.what else _DISTURBS.get(event.what)
        ends = time(seconds=_end_of(facts, event))
        if lasts is not None and time(seconds=event.at) <= at and begin <= ends + lasts:
            return False
    return True


def _end_of(facts: Facts, event: Event) -> float:
    if event.what == "outage":
        return float(event.of[0])
    on_again = (
        e.at for e in facts.day.world.events if e.what == "switch" and e.of == (event.of[0], True) and e.at > event.at
    )
    return next(on_again, event.at) if event.what == "switch" else event.at


def _tick(schedule: str, zone: str, at: float) -> float:
    aliases = {"@daily": "0 0 * * *", "@hourly": "0 * * * *"}
    # Subtracted in UTC: arithmetic on a local time forgets which of two equal hours in autumn it is in.
    before = (datetime.fromtimestamp(at, UTC) - timedelta(microseconds=1)).astimezone(ZoneInfo(zone))
    return float(next(CronSim(aliases.get(schedule, schedule), before)).timestamp())
