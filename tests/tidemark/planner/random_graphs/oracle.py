"""What the planner owes whatever the graph: the judge of a day that was played.

1. No tick of a sensor fails.
2. No lost update: after the quiet every needed partition of a healthy table that could be built is there, and contains
   what lies in its inputs; and was built by today's code. On a day that asks for more than can ever run, this is said
   of what the planner takes for built; the bounds of 3 hold for all of it.
3. No endless request: runs are bounded by the reasons there were, and no partition was asked for that did not exist.
4. No lateness beyond the contract where it was feasible: nothing failed, stopped, or waited for a slot on its path.
5. No open gate: no run that the planner requested reads a write that no passed blocking check has seen.
6. Healthy tables keep rules 1 to 4, whatever other tables are broken.
7. Broken tables are named, and no overdue table is shown as met.
"""

from collections import Counter
from collections.abc import Iterator

from dagster_tidemark.simulation.simulator import Run
from tests.tidemark.planner.random_graphs.facts import Facts
from tests.tidemark.planner.random_graphs.gates import open_gates
from tests.tidemark.planner.random_graphs.lateness import late
from tests.tidemark.planner.random_graphs.mappings import VOLATILE
from tests.tidemark.planner.random_graphs.play import QUIET_HOURS, Day
from tests.tidemark.planner.random_graphs.shapes import Read, Table, Target
from tests.tidemark.planner.random_graphs.windows import window_of

_QUIET = (QUIET_HOURS - 1.0) * 3600.0

_ALWAYS = 3
"""Runs of a partition that need no reason of their own."""


def judge(day: Day) -> list[str]:
    """What is wrong with a day; nothing is what it should be."""
    facts = Facts(day)
    return [
        *_dead_ticks(day),
        *_asked_for_nothing(day),
        *_lost(facts),
        *_endless(facts),
        *open_gates(facts),
        *late(facts),
        *_not_named(day),
    ]


def _dead_ticks(day: Day) -> Iterator[str]:
    for error, times in Counter(tick.error for tick in day.simulation.failed_ticks).most_common(3):
        yield f"dead tick: {times} times {error[:300]}"


def _asked_for_nothing(day: Day) -> Iterator[str]:
    for target, times in Counter((asset, p) for _, asset, p in day.simulation.for_nothing).most_common(3):
        yield f"no such partition: {target} was asked for {times} times"
    wrong = [run for run in day.simulation.runs if "takes one partition" in run.why or "over no partition" in run.why]
    for run in wrong[:3]:
        yield f"no such run: {run.assets} over {run.partitions}: {run.why}"
    unplannable = {table.key for table in day.world.tables if not table.plannable}
    for run in [run for run in day.simulation.runs if unplannable & set(run.assets)][:3]:
        yield f"no such run: {run.assets} over {run.partitions} cannot be planned"


def _lost(facts: Facts) -> Iterator[str]:
    for table in facts.day.world.tables:
        if table.outside or table.key not in facts.healthy:
            continue
        there = [(table.key, p) for p in facts.day.readings.partitions(table.key, facts.now)]
        due = [t for t in there if t not in facts.day.in_hand]
        expected = [t for t in due if facts.is_needed(t) and _settled(facts, table, t[1])]
        found = [wrong for target in expected if (wrong := _lost_of(facts, table, target))]
        if found:
            yield f"lost update: {found[0]}" + (f", and {len(found) - 1} partitions more" if found[1:] else "")


def _settled(facts: Facts, table: Table, partition: str | None) -> bool:
    """Whether a needed partition, and the tick of a cron contract that asks for it, were there before the quiet."""
    ends, exists = window_of(facts.day, table, (table.key, partition))
    wanted = facts.need((table.key, partition)).since if table.reads else ends
    return max(wanted, exists) + _QUIET <= facts.now.timestamp()


def _lost_of(facts: Facts, table: Table, target: Target) -> str:
    build = facts.build(target)
    if build is None:
        return f"{target} was never built" if facts.possible(target) else ""
    lacks = facts.lacking(target) if facts.present(target) and facts.need(target).kept_up else []
    if lacks and not table.every_input and not _saw_nothing_to_write(facts, target, lacks):
        return f"{target}, built at {_hour(facts, build.at)}, lacks what lies in {lacks[0]}"
    today, then = facts.day.now.table(table.key).code, build_code(facts, target)
    seen = any(run.empty.get(table.key, 0.0) > build.at and target in run.targets for run in facts.day.simulation.runs)
    if today and then and today != then and table.condition == "derived" and facts.present(target) and not seen:
        return f"{target} was built by code {then}, today's is {today}"
    return ""


def _saw_nothing_to_write(facts: Facts, target: Target, lacks: list[Target]) -> bool:
    runs = [run for run in facts.day.simulation.runs if target[0] in run.empty and target in run.saw]
    last = max(runs, key=lambda run: run.empty[target[0]], default=None)
    return last is not None and all(last.saw[target].get(source) == facts.value(source) for source in lacks)


def build_code(facts: Facts, target: Target) -> str | None:
    """The code version a partition was built by."""
    build = facts.build(target)
    code = facts.day.world.table(target[0]).code
    for event in facts.day.world.events:
        deployed = event.what == "deploy" and event.of[0] == target[0]
        if deployed and build and facts.day.simulation.time(seconds=event.at) <= (build.run.started_at or 0.0):
            code = event.of[1]
    return code


def _endless(facts: Facts) -> Iterator[str]:
    events = Counter(event.what for event in facts.day.world.events)
    of_all = sum(
        events[w] for w in ("deploy", "declare_key", "outage", "restart", "wipe", "delete_runs", "cancel", "step_clock")
    )
    runs: dict[Target, list[Run]] = {}
    for run in facts.day.simulation.runs:
        for target in run.targets:
            runs.setdefault(target, []).append(run)
    empty: Counter[str] = Counter(asset for run in facts.day.simulation.runs for asset in run.empty)
    for target, of_target in sorted(runs.items(), key=lambda pair: -len(pair[1])):
        count = len(of_target)
        if count <= _ALWAYS:
            break
        table = facts.day.world.table(target[0])
        changes = sum(_changes(facts, source) for read in table.reads for source in _may_have_read(facts, target, read))
        failed = sum(not run.succeeded for run in of_target)
        people = [event for event in facts.day.world.events if event.what in ("request", "backfill")]
        asked = sum(event.of == target or (event.what, event.of[0]) == ("backfill", target[0]) for event in people)
        checks = sum(event.what == "evaluate_check" for event in facts.day.world.events)
        # Built in one run with what it reads, before anybody knows whether that becomes another.
        along = sum(any(read.key in run.assets for read in table.reads) for run in of_target)
        allowed = _ALWAYS + along + changes + failed + asked + of_all + checks + empty[target[0]]
        others = [t.key for t in facts.day.world.tables if t.group and t.group == table.group]
        if count > allowed and len(others) < 2:
            yield f"endless: {target} was run {count} times, {changes} changes of its inputs, {failed} failed"
            return


def _may_have_read(facts: Facts, target: Target, read: Read) -> list[Target]:
    keys_went = any(event.what == "remove_key" for event in facts.day.world.events)
    if read.way not in VOLATILE and not keys_went:
        return facts.reads(target, read)
    return [source for source in {*facts.arrivals, *facts.builds} if source[0] == read.key]


def _changes(facts: Facts, source: Target) -> int:
    if facts.day.world.table(source[0]).outside:
        return len(facts.arrivals.get(source, ()))
    values = [build.value for build in facts.builds.get(source, ())]
    return sum(one != other for one, other in zip(["", *values], values, strict=False))


def _not_named(day: Day) -> Iterator[str]:
    plan, standings = day.simulation.plan(), day.simulation.standings()
    for table in day.world.tables:
        node = day.simulation.graph.nodes.get(table.key)
        named = (node is not None and node.refused) or any(key == table.key for key, _ in plan.set_aside)
        ever = any(key == read.key for read in table.reads for key, _ in _arrived(day))
        if table.broken and not named and ever and table.condition != "raises" and table.plannable:
            yield f"not named: {table.key}, {table.broken}"
        if node is not None and node.refused and not table.broken:
            yield f"refused, though supported: {table.key}: {node.refused}"
        if node is not None and node.refused and table.contract and standings[table.key].verdict == "met":
            yield f"shown as met: {table.key} is refused: {node.refused}"


def _arrived(day: Day) -> set[Target]:
    return {target for _, target in day.simulation.arrivals}


def _hour(facts: Facts, at: float) -> str:
    return f"{(at - facts.day.simulation.time()) / 3600:.2f} h"
