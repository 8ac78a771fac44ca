"""Random days of faults, each with the incidents that a person would count, written down before the day is simulated.

Every hour has one fault, or none, in one of some chains that share nothing, or in another source whose files are
expected ten minutes after each hour. A fault is so short that no deadline (five minutes after the arrival at minute
one) is missed, or so long that one surely is. The list follows from that alone. The chain `stock` has a blocking check,
and a mart that must be built eight minutes after the arrival; only faults of the check are in it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.engine.doubts import Doubts
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.incidents.arrivals import ArrivedFiles
from dagster_tidemark.incidents.incident import CauseKind, MessageKind
from dagster_tidemark.simulation.simulator import CheckFate
from tests.tidemark.incidents.test_causes import Location, graph
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, asset, lag, source, within

CHAINS = ("orders", "prices", "stock")
FIFTY_ASSETS = (*CHAINS, *(f"chain_{number:02}" for number in range(13)))
"""The chains of a location of fifty assets."""


@dataclass(frozen=True)
class Fault:
    """A fault of an hour.

    Args:
        expected: Kind and subject of its incident, with `{}` for the chain; None if nothing is late.
    """

    name: str
    expected: tuple[CauseKind, str] | None


FAULTS = (
    Fault("nothing", None),
    Fault("one failure", None),
    Fault("four failures", (CauseKind.FAILING, "core/{}")),
    Fault("check raises once", None),
    Fault("check raises for twelve minutes", (CauseKind.CHECK, "core/stock: complete")),
    Fault("check fails for twelve minutes", (CauseKind.CHECK, "core/stock: complete")),
    Fault("one minute slow", None),
    Fault("ten minutes slow", (CauseKind.SLOW, "core/{}")),
    Fault("sensor off for three minutes", None),
    Fault("sensor off for twelve minutes", (CauseKind.PLATFORM, "sensor automation")),
    Fault("outage of two minutes", None),
    Fault("outage of twenty minutes", (CauseKind.PLATFORM, "sensors")),
    Fault("queue full for two minutes", None),
    Fault("queue full for twelve minutes", (CauseKind.QUEUE, "run queue")),
    Fault("dead letters", (CauseKind.DEAD_LETTERS, "notifications")),
    Fault("file late", None),
    Fault("file missing", (CauseKind.MISSING, "raw/tills")),
    Fault("file empty", (CauseKind.INCOMPLETE, "raw/tills")),
    Fault("file repeated", (CauseKind.INCOMPLETE, "raw/tills")),
    Fault("one file of two", (CauseKind.INCOMPLETE, "raw/tills")),
    Fault("service down for two minutes", None),
    Fault("service down for twelve minutes", (CauseKind.PLATFORM, "Spark")),
)


EXPECTED = ExpectedArrival(
    source="raw/tills", within=timedelta(minutes=10), grace=timedelta(minutes=2), files=2, distinct=True
)


def deliver(fault: Fault, location: Location, hour: int) -> None:
    """Schedule the files of the hour before: at minute one, or whole and right at minute 25 if they are faulty."""
    past = f"2026-10-05-{hour - 1:02}:00"
    whole, again = ArrivedFiles(2, 100, past), ArrivedFiles(2, 100, f"2026-10-05-{hour - 2:02}:00")
    first = {
        "file empty": ArrivedFiles(2, 0, "empty"),
        "file repeated": again,
        "one file of two": ArrivedFiles(1, 50, f"{past} half"),
    }.get(fault.name, whole)
    if fault.name != "file missing":
        location.files[past] = first
        location.arrives("tills", past, hours=hour, minutes=11 if fault.name == "file late" else 1)
    if first is not whole or fault.name == "file missing":
        location.until(hours=hour, minutes=25)
        location.files[past] = whole
        location.arrives("tills", past, hours=hour, minutes=25, seconds=1)


def inject(fault: Fault, location: Location, chain: str, hour: int) -> None:
    """Schedule a fault, and let the hour pass."""
    simulation, at = location.simulation, lambda **more: location.simulation.time(hours=hour, **more)
    for each in location.chains:
        location.arrives(each, f"2026-10-05-{hour:02}:00", hours=hour, minutes=1)
    deliver(fault, location, hour)
    match fault.name:
        case "queue full for two minutes" | "queue full for twelve minutes":
            end = 2 if "two" in fault.name.split() else 12
            simulation.hold_in_queue(f"core/{chain}", at=at(), until=at(minutes=end))
        case "dead letters":
            ledger = ObservationLedger(simulation.instance)
            for minute, letters in ((5, 2), (15, 0)):
                location.until(hours=hour, minutes=minute)
                ledger.tell_dead_letters(letters)
        case "one failure":
            simulation.fail(f"core/{chain}", times=1)
        case "four failures":
            simulation.fail(f"core/{chain}", times=4)
        case "check raises once":
            simulation.fail_check("core/stock", "complete", times=1, how=CheckFate.RAISES)
        case "check raises for twelve minutes":  # it is mended, and its next run by itself passes
            simulation.fail_check("core/stock", "complete", times=1000, how=CheckFate.RAISES)
            simulation.heal(at=at(minutes=12))
        case "check fails for twelve minutes":  # a person mends the data, and evaluates it again
            simulation.fail_check("core/stock", "complete", times=1)
            simulation.evaluate_check("core/stock", "complete", passed=True, at=at(minutes=12))
        case "one minute slow":
            simulation.slow(f"core/{chain}", seconds=60)
        case "ten minutes slow":
            simulation.slow(f"core/{chain}", seconds=600)
        case "sensor off for three minutes" | "sensor off for twelve minutes":
            simulation.switch("automation", on=False, at=at())
            simulation.switch("automation", on=True, at=at(minutes=3 if "three" in fault.name else 12))
        case "outage of two minutes" | "outage of twenty minutes":
            end = 2 if "two" in fault.name.split() else 20
            location.until(hours=hour)
            simulation.outage(at=at(), until=at(minutes=end))
            location.blind_until(hours=hour, minutes=end, seconds=2)
        case "service down for two minutes" | "service down for twelve minutes":
            end = 2 if "two" in fault.name.split() else 12
            location.lose_spark(at())
            if end == 12:
                for each in location.chains:
                    simulation.fail(f"core/{each}", times=9)
            location.until(hours=hour, minutes=end)
            location.doubts = Doubts()
            simulation.heal(at=simulation.clock.now + 1)
    location.until(hours=hour, minutes=35)
    simulation.run_until(at(minutes=58))
    location.looked_at = None  # the quiet end of the hour is not looked at, which is no outage


@dg.asset_check(asset=["core", "stock"], name="complete", blocking=True)
def complete() -> dg.AssetCheckResult:
    """Whether the stock is complete. The simulation decides its outcome."""
    raise NotImplementedError


def assets_of(chains: Sequence[str]) -> list[Any]:
    """Return the source with expected files, and for each chain a source, its table and a mart by the hour."""
    found = [
        *graph(),
        source("tills", HOURS),
        source("stock", HOURS),
        asset("core/stock", "raw/stock", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
        asset("marts/stock", "core/stock", by=HOURS, freshness_policy=lag(minutes=8), **ASAP),
        complete,
    ]
    for name in chains[len(CHAINS) :]:
        found += [
            source(name, HOURS),
            asset(f"core/{name}", f"raw/{name}", by=HOURS, freshness_policy=lag(minutes=5), **ASAP),
            asset(f"marts/{name}", f"core/{name}", by=HOURS, freshness_policy=lag(minutes=60)),
        ]
    return [*found, asset("marts/days", within("core/orders"), by=DAYS, freshness_policy=lag(hours=24))]


def play(seed: int, hours: int, chains: Sequence[str] = CHAINS, among: Sequence[Fault] = FAULTS) -> list[Fault]:
    """Simulate a day, compare its incidents and messages with the list, and return its faults."""
    chance, location = random.Random(seed), Location(assets_of(chains), chains=chains)
    location.expected = [EXPECTED]
    location.look()
    faults = [chance.choice(among) for _ in range(hours)]
    written: list[tuple[int, str, str]] = []
    for hour, fault in enumerate(faults, start=1):
        chain = chance.choice([name for name in chains if name != "stock"])
        if fault.expected is not None:
            kind, subject = fault.expected
            written.append((hour, str(kind), subject.format(chain)))
        inject(fault, location, chain, hour)
    day = location.simulation.start.timestamp()
    found = [(int((each.opened_at - day) // 3600), str(each.cause.kind), each.cause.subject) for each in location.all]
    assert found == written, f"seed {seed}: {[fault.name for fault in faults]}\nfound {found}\nlist {written}"
    assert all(not each.is_open for each in location.all)
    for each in location.all:
        kinds = [message.kind for message in location.book.outbox if message.incident.id == each.id]
        assert kinds.count(MessageKind.OPENED) == kinds.count(MessageKind.CLOSED) == 1
        first = min((asset.deadline or 0.0 for asset in each.assets), default=0.0)
        if each.cause.kind in (CauseKind.FAILING, CauseKind.SLOW, CauseKind.CHECK):
            assert each.opened_at <= first, "an unavoidable breach is reported before the deadline"
    return faults
