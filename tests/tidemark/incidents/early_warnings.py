"""Random hours with faults of any duration: how many early warnings are right, and whether all misses are reported.

Faults of `days` are short or long beyond doubt. Here they last as long as chance has it, several in an hour, so that
contracts are often met or missed by seconds. Whether a contract was met follows from the simulated runs alone.
"""

import random
from collections import Counter
from dataclasses import dataclass

from dagster_tidemark.engine.doubts import Doubts
from dagster_tidemark.incidents.incident import Incident, LateAsset, MessageKind
from tests.tidemark.incidents.days import CHAINS, assets_of
from tests.tidemark.incidents.test_causes import Location

_ARRIVES = 60.0
_PROMISED = 300.0
"""Seconds that each core table has from an arrival, see `days.assets_of`."""


@dataclass(frozen=True)
class Warned:
    """The incidents of a day.

    Args:
        early: Incidents that were opened before the first deadline of their assets.
        false: Those of them whose assets all met their contracts.
        missed: Partitions of core tables that missed their contract.
        unseen: Those of them whose table no incident named that was open 30 s after the deadline, or after the outage
            in which it was. A partition that was built before the next look is not one of them.
        twice: Hours of a chain, or of all, with at most one fault and more than one incident about their tables.
        ahead: Seconds from an early warning that was right to the first deadline that was missed.
    """

    early: int
    false: tuple[str, ...]
    missed: int
    unseen: tuple[str, ...]
    twice: tuple[str, ...]
    ahead: tuple[float, ...]


def warned(seed: int, hours: int) -> Warned:
    """Simulate a day of random faults and compare its incidents with its runs."""
    chance, location = random.Random(seed), Location(assets_of(CHAINS), chains=CHAINS)
    location.look()
    played = [_play_hour(chance, location, hour) for hour in range(1, hours + 1)]
    opened = [m.incident for m in location.book.outbox if m.kind is MessageKind.OPENED]
    early = [each for each in opened if each.opened_at < _first_deadline(each)]
    outcome = {each.id: [asset for asset in each.assets if _is_missed(location, asset)] for each in early}
    false = [each for each in early if not outcome[each.id]]
    missed = {
        (f"core/{chain}", f"2026-10-05-{hour:02}:00"): location.simulation.time(hours=hour) + _ARRIVES + _PROMISED
        for chain in CHAINS
        for hour in range(1, hours + 1)
    }
    missed = {target: end for target, end in missed.items() if not _is_built(location, *target, end - _PROMISED, end)}
    incidents = location.all

    def seen_at(end: float) -> float:
        return max([end, *(hour.blind[1] for hour in played if hour.blind[0] <= end < hour.blind[1])])

    unseen = [
        f"{asset} {partition}"
        for (asset, partition), end in missed.items()
        if not _is_built(location, asset, partition, end - _PROMISED, seen_at(end) + location.every)
        and not any(_reports(each, asset, end, seen_at(end)) for each in incidents)
    ]
    twice = [
        f"hour {hour} of {', '.join(chains)}: {', '.join(map(_told, named))}"
        for hour, of in enumerate(played, start=1)
        for chains in of.alone
        if len(named := [each for each in incidents if _is_of(location, each, hour, chains)]) > 1
    ]
    ahead = [min(a.deadline or 0.0 for a in outcome[e.id]) - e.opened_at for e in early if outcome[e.id]]
    return Warned(len(early), tuple(map(_told, false)), len(missed), tuple(unseen), tuple(twice), tuple(ahead))


@dataclass(frozen=True)
class Hour:
    """What happened in an hour.

    Args:
        alone: Groups of chains that had at most one fault.
        blind: Begin and end of an outage; an empty period if there was none.
    """

    alone: tuple[tuple[str, ...], ...]
    blind: tuple[float, float] = (0.0, 0.0)


def _play_hour(chance: random.Random, location: Location, hour: int) -> Hour:
    simulation, faults = location.simulation, Counter[str]()
    begin = simulation.time(hours=hour)
    for chain in location.chains:
        location.arrives(chain, f"2026-10-05-{hour:02}:00", hours=hour, seconds=_ARRIVES)
        if chance.random() < 0.25:
            simulation.fail(f"core/{chain}", times=chance.randint(1, 4))
            faults[chain] += 1
        if chance.random() < 0.25:
            simulation.slow(f"core/{chain}", seconds=min(1500.0, chance.lognormvariate(4.8, 0.9)))
            faults[chain] += 1
        if chance.random() < 0.15:
            ends = begin + _ARRIVES + min(1500.0, chance.expovariate(1 / 400.0))
            simulation.hold_in_queue(f"core/{chain}", at=begin, until=ends)
            faults[chain] += 1
    of_all = chance.choice([_sensor_off, _service_down, _platform_down, *[None] * 9])
    since, until = begin + chance.uniform(0.0, 120.0), begin + 120.0 + min(1200.0, chance.expovariate(1 / 400.0))
    if of_all is not None:
        of_all(location, since, until)
    location.until(hours=hour, minutes=45)
    simulation.heal(at=simulation.clock.now)
    simulation.run_until(simulation.time(hours=hour, minutes=58))
    location.looked_at = None  # the quiet end of the hour is not looked at, which is no outage
    if of_all is not None:
        blind = (since, until) if of_all is _platform_down else (0.0, 0.0)
        return Hour(() if faults else (location.chains,), blind)
    return Hour(tuple((chain,) for chain in location.chains if faults[chain] <= 1))


def _sensor_off(location: Location, begin: float, end: float) -> None:
    location.simulation.switch("automation", on=False, at=begin)
    location.simulation.switch("automation", on=True, at=end)


def _service_down(location: Location, begin: float, end: float) -> None:
    """Let the runs fail that start meanwhile. Tidemark notices the service after ten seconds, both times."""
    start = location.simulation.start.timestamp()
    location.until(seconds=begin - start)
    for chain in location.chains:
        location.simulation.fail(f"core/{chain}", times=99)
    location.until(seconds=min(begin + 10.0, end) - start)
    location.lose_spark(begin)
    location.until(seconds=end - start)
    location.simulation.heal(at=end)
    location.until(seconds=end + 10.0 - start)
    location.doubts = Doubts()


def _platform_down(location: Location, begin: float, end: float) -> None:
    start = location.simulation.start.timestamp()
    location.until(seconds=begin - start)
    location.simulation.outage(at=begin, until=end)
    location.blind_until(seconds=end + 2.0 - start)


def _is_of(location: Location, incident: Incident, hour: int, chains: tuple[str, ...]) -> bool:
    begin = location.simulation.time(hours=hour)
    tables = {f"{layer}/{chain}" for chain in chains for layer in ("core", "marts")}
    return begin <= incident.opened_at < begin + 3600 and any(each.asset in tables for each in incident.assets)


def _first_deadline(incident: Incident) -> float:
    return min((asset.deadline for asset in incident.assets if asset.deadline is not None), default=0.0)


def _is_missed(location: Location, late: LateAsset) -> bool:
    assert late.deadline is not None
    since = late.arrived_at if late.arrived_at is not None else late.deadline - _PROMISED
    partitions = late.partitions or tuple({p for run in location.simulation.runs for p in run.of.get(late.asset, ())})
    return not any(_is_built(location, late.asset, p, since, late.deadline) for p in partitions)


def _is_built(location: Location, asset: str, partition: str | None, since: float, until: float) -> bool:
    return any(
        since <= run.began[asset] and run.committed[asset] <= until
        for run in location.simulation.runs
        if asset in run.committed and partition in run.of[asset]
    )


def _reports(incident: Incident, asset: str, deadline: float, seen_at: float) -> bool:
    was_open = incident.opened_at <= seen_at + 30.0 and (incident.closed_at or seen_at) >= deadline
    return was_open and any(each.asset == asset for each in incident.assets)


def _told(incident: Incident) -> str:
    left = _first_deadline(incident) - incident.opened_at
    return f"{incident.cause.kind} {incident.cause.subject}, {left:.0f} s before the deadline: {incident.cause.said}"
