"""Random hours with faults of any duration: how many early warnings are right, and whether all misses are reported.

Faults of `days` are short or long beyond doubt. Here they last as long as chance has it, several in an hour, so that
contracts are often met or missed by seconds. Whether a contract was met follows from the simulated runs alone.
"""

import random
from collections import Counter
from dataclasses import dataclass

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
        unseen: Those of them that belong to no incident that was open 30 s after the deadline.
        twice: Hours of a chain with one fault, or none, of which more than one incident names its tables.
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
    single = [(hour, chain) for hour in range(1, hours + 1) for chain in _play_hour(chance, location, hour)]
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
    unseen = [
        f"{asset} {partition}"
        for (asset, partition), end in missed.items()
        if not any(each.opened_at <= end + 30.0 and _names(each, asset, end) for each in incidents)
    ]
    twice = [
        f"hour {hour} of {chain}: {', '.join(map(_told, named))}"
        for hour, chain in single
        if len(named := [each for each in incidents if _is_of(location, each, hour, chain)]) > 1
    ]
    ahead = [min(a.deadline or 0.0 for a in outcome[e.id]) - e.opened_at for e in early if outcome[e.id]]
    return Warned(len(early), tuple(map(_told, false)), len(missed), tuple(unseen), tuple(twice), tuple(ahead))


def _play_hour(chance: random.Random, location: Location, hour: int) -> list[str]:
    """Let an hour pass, and return the chains with at most one fault in it."""
    simulation, faults = location.simulation, Counter[str]()
    begin = simulation.time(hours=hour)
    for chain in location.chains:
        location.arrives(chain, f"2026-10-05-{hour:02}:00", hours=hour, seconds=_ARRIVES)
        if chance.random() < 0.3:
            simulation.fail(f"core/{chain}", times=chance.randint(1, 4))
            faults[chain] += 1
        if chance.random() < 0.3:
            simulation.slow(f"core/{chain}", seconds=min(1500.0, chance.lognormvariate(4.8, 0.9)))
            faults[chain] += 1
        if chance.random() < 0.15:
            ends = begin + _ARRIVES + min(1500.0, chance.expovariate(1 / 400.0))
            simulation.hold_in_queue(f"core/{chain}", at=begin, until=ends)
            faults[chain] += 1
    if chance.random() < 0.15:
        simulation.switch("automation", on=False, at=begin + chance.uniform(0.0, 120.0))
        simulation.switch("automation", on=True, at=begin + 120.0 + min(1200.0, chance.expovariate(1 / 400.0)))
        faults.update(location.chains)
    location.until(hours=hour, minutes=45)
    simulation.heal(at=simulation.clock.now)
    simulation.run_until(simulation.time(hours=hour, minutes=58))
    location.looked_at = None  # the quiet end of the hour is not looked at, which is no outage
    return [chain for chain in location.chains if faults[chain] <= 1]


def _is_of(location: Location, incident: Incident, hour: int, chain: str) -> bool:
    begin = location.simulation.time(hours=hour)
    tables = {f"core/{chain}", f"marts/{chain}"}
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


def _names(incident: Incident, asset: str, deadline: float) -> bool:
    return any(each.asset == asset and abs((each.deadline or 0.0) - deadline) < 60.0 for each in incident.assets)


def _told(incident: Incident) -> str:
    left = _first_deadline(incident) - incident.opened_at
    return f"{incident.cause.kind} {incident.cause.subject}, {left:.0f} s before the deadline: {incident.cause.said}"
