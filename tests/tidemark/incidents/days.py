"""Random days of faults, each with the incidents that a person would count, written down before the day is simulated.

Every hour has one fault, or none, in one of some chains that share nothing, or in another source whose files are
expected ten minutes after each hour. A fault is so short that no deadline (five minutes after the arrival at minute
one) is missed, or so long that one surely is. The list follows from that alone. The chain `stock` has a blocking check,
and a mart that must be built eight minutes after the arrival; only faults of the check are in it. Only the chain
`growth` has runs that become slower. The table `core/bells` is promised for minute 20: a silent source is late then.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.engine.doubts import Cause, Doubts
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.incidents.arrivals import ArrivedFiles
from dagster_tidemark.incidents.incident import CauseKind, MessageKind
from dagster_tidemark.simulation.simulator import CheckFate
from tests.tidemark.incidents.test_causes import Location, graph
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, asset, lag, source, within

CHAINS = ("orders", "prices", "stock")
OF_A_DAY = (*CHAINS, "growth")
FIFTY_ASSETS = (*OF_A_DAY, *(f"chain_{number:02}" for number in range(11)))
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
    Fault("transform flaps", None),
    Fault("slow growth", (CauseKind.SLOW, "core/growth")),
    Fault("notifications unread for twelve minutes", (CauseKind.PLATFORM, "queue landing-events")),
    Fault("source silent", (CauseKind.MISSING, "raw/bells")),
    Fault("paused for three minutes", None),
    Fault("paused for twelve minutes", (CauseKind.PAUSED, "core/{}")),
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
    location.arrives(
        "bells", f"2026-10-05-{hour - 1:02}:00", hours=hour, minutes=25 if fault.name == "source silent" else 1
    )
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
        case "transform flaps":
            for minute in (1, 6, 11):
                simulation.fail(f"core/{chain}", times=1)
                location.until(hours=hour, minutes=minute + 4)
                location.arrives(chain, f"2026-10-05-{hour:02}:00", hours=hour, minutes=minute + 5)
        case "slow growth":
            # Each run is in time; the next is expected to take 300 s or more. A quick one ends the growth.
            for minute, seconds in ((1.0, 120), (6.0, 180), (11.0, 240), (17.0, 330), (22.7, 20)):
                location.until(hours=hour, minutes=minute - 0.5)
                simulation.slow("core/growth", seconds=seconds)
                if minute > 1:
                    location.arrives("growth", f"2026-10-05-{hour:02}:00", hours=hour, minutes=minute)
        case "notifications unread for twelve minutes":
            simulation.switch("landing", on=False, at=at())
            simulation.switch("landing", on=True, at=at(minutes=12))
            location.until(hours=hour)
            unread = Cause("queue landing-events", at(), "the queue landing-events cannot be read")
            sources = [f"raw/{each}" for each in (*location.chains, "tills", "bells")]
            location.doubts = Doubts(sources=dict.fromkeys(sources, unread))
            location.until(hours=hour, minutes=12, seconds=20)
            location.doubts = Doubts()
        case "paused for three minutes" | "paused for twelve minutes":
            end = at(minutes=3 if "three" in fault.name else 12)
            simulation.pause(f"core/{chain}", at=at(), until=end)
        case "service down for two minutes" | "service down for twelve minutes":
            end = 2 if "two" in fault.name.split() else 12
            location.until(hours=hour)  # known before it began, it would make tables of the hour before late
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


AT_TWENTY = dg.FreshnessPolicy.cron(deadline_cron="20 * * * *", lower_bound_delta=timedelta(minutes=10))


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
    if "growth" in chains:  # a day of `play`, which delivers the bells
        found += [
            source("bells", HOURS),
            asset("core/bells", "raw/bells", by=HOURS, freshness_policy=AT_TWENTY),
            asset("marts/bells", "core/bells", by=HOURS),
        ]
    return [*found, asset("marts/days", within("core/orders"), by=DAYS, freshness_policy=lag(hours=24))]


def play(seed: int, hours: int, chains: Sequence[str] = OF_A_DAY, among: Sequence[Fault] = FAULTS) -> list[Fault]:
    """Simulate a day, compare its incidents and messages with the list, and return its faults."""
    chance, location = random.Random(seed), Location(assets_of(chains), chains=chains)
    location.expected = [EXPECTED]
    location.arrives("bells", "2026-10-04-23:00", minutes=59, seconds=30)
    location.files["2026-10-04-23:00"] = ArrivedFiles(2, 100, "2026-10-05--1:00")  # the first hour may repeat it
    location.arrives("tills", "2026-10-04-23:00", minutes=59, seconds=30)
    location.until(minutes=59, seconds=59)
    faults = [chance.choice(among) for _ in range(hours)]
    written: list[tuple[int, str, str]] = []
    late: list[tuple[set[str], set[str]]] = []
    for hour, fault in enumerate(faults, start=1):
        chain = chance.choice([name for name in chains if name not in ("stock", "growth")])
        if fault.expected is not None:
            kind, subject = fault.expected
            written.append((hour, str(kind), subject.format(chain)))
            late.append(_made_late(fault.expected, chain, chains))
        inject(fault, location, chain, hour)
    day = location.simulation.start.timestamp()
    found = [(int((each.opened_at - day) // 3600), str(each.cause.kind), each.cause.subject) for each in location.all]
    assert found == written, f"seed {seed}: {[fault.name for fault in faults]}\nfound {found}\nlist {written}"
    assert all(not each.is_open for each in location.all)
    for each, (must, may) in zip(location.all, late, strict=True):
        named = {asset.asset for asset in each.assets}
        assert must <= named <= may, f"{each.cause.key} names {named}"
        kinds = [message.kind for message in location.book.outbox if message.incident.id == each.id]
        assert kinds.count(MessageKind.OPENED) == kinds.count(MessageKind.CLOSED) == 1
        first = min((asset.deadline or 0.0 for asset in each.assets), default=0.0)
        if each.cause.kind in _FORESEEN and each.cause.subject != "sensors":
            left, lead = first - each.opened_at, _LEAD
            assert left >= lead, f"{each.cause.key}: {left:.0f} s before the deadline, a run takes {lead:.0f} s"
    return faults


_FORESEEN = (CauseKind.FAILING, CauseKind.SLOW, CauseKind.CHECK, CauseKind.QUEUE, CauseKind.PLATFORM)
"""Kinds whose breach is known before the deadline. An outage is known at its end, and a person chose a pause."""
_LEAD = 15.0
"""Seconds before the deadline. A run takes 22 s, and these days look every 20 s. With a look every 10 s, as in
production, the time that is left is that of a run: a repair at once still meets the contract."""


def _made_late(expected: tuple[CauseKind, str], chain: str, chains: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the assets that an incident must name, and those that it may name."""
    kind, subject = expected
    below = {"marts/hourly", "marts/report", "marts/days"}  # of the chain `orders`
    every = {f"{layer}/{each}" for each in chains for layer in ("core", "marts")} | below
    if kind is CauseKind.PLATFORM:
        return {f"core/{each}" for each in chains}, every | {"core/bells"}
    if kind is CauseKind.CHECK:
        return {"marts/stock"}, {"marts/stock"}
    if kind in (CauseKind.MISSING, CauseKind.INCOMPLETE):
        late = {"raw/bells": "core/bells"}.get(subject, subject)
        return {late}, {late}
    if kind is CauseKind.DEAD_LETTERS:
        return set(), set()
    of = subject.removeprefix("core/") if subject == "core/growth" else chain
    return {f"core/{of}"}, {f"core/{of}", f"marts/{of}", *(below if of == "orders" else ())}
