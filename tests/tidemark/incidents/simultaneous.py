"""Two faults in the same hour, of classes that do not hide each other: each is one incident of its own.

The faults, and the incident that each causes, are those of `days`. A fault that needs a person or a service at a later
time of the hour is a step: a time, and what happens then.
"""

from collections.abc import Callable

from dagster_tidemark.engine.doubts import Doubts
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.incidents.arrivals import ArrivedFiles
from dagster_tidemark.incidents.incident import MessageKind
from tests.tidemark.incidents.days import CHAINS, EXPECTED, FAULTS, assets_of
from tests.tidemark.incidents.test_causes import HOUR_1, Location

Steps = list[tuple[float, Callable[[], object]]]
PAST = "2026-10-05-00:00"
OF_FAULT = {fault.name: fault for fault in FAULTS}


def play_hour(faults: dict[str, str]) -> None:
    """Play an hour with some faults, each in its chain, and compare its incidents and messages with the list."""
    location = Location(assets_of(CHAINS), chains=CHAINS)
    location.expected = [EXPECTED]
    location.look()
    for chain in location.chains:
        location.arrives(chain, HOUR_1, hours=1, minutes=1)
    file = next((name for name in faults if "file" in name), "nothing")
    steps = _delivered(location, file)
    for name, chain in faults.items():
        steps += _begun(location, name, chain)
    start = location.simulation.start.timestamp()
    for at, step in sorted(steps, key=lambda each: each[0]):
        location.until(seconds=at - start)
        step()
    location.until(hours=1, minutes=45)
    causes = ((OF_FAULT[name].expected, chain) for name, chain in faults.items())
    written = sorted((str(cause[0]), cause[1].format(chain)) for cause, chain in causes if cause is not None)
    assert sorted((str(each.cause.kind), each.cause.subject) for each in location.all) == written
    for each in location.all:
        assert not each.is_open, each.cause.subject
        kinds = [message.kind for message in location.book.outbox if message.incident.id == each.id]
        assert kinds.count(MessageKind.OPENED) == kinds.count(MessageKind.CLOSED) == 1, (each.cause.subject, kinds)


def _delivered(location: Location, fault: str) -> Steps:
    """Schedule the file of the hour before: whole at minute one, or at minute 25 if it is missing or faulty."""
    simulation, whole = location.simulation, ArrivedFiles(2, 100, PAST)
    faulty = {"file empty": ArrivedFiles(2, 0, "empty"), "one file of two": ArrivedFiles(1, 50, "half")}
    first = faulty.get(fault, whole)
    if fault != "file missing":
        location.files[PAST] = first
        location.arrives("tills", PAST, hours=1, minutes=1)
    if first is whole and fault != "file missing":
        return []

    def _completed() -> None:
        location.files[PAST] = whole
        location.arrives("tills", PAST, hours=1, minutes=25, seconds=1)

    return [(simulation.time(hours=1, minutes=25), _completed)]


def _begun(location: Location, fault: str, chain: str) -> Steps:
    """Schedule a fault of twelve minutes, or longer, and return its steps."""
    simulation = location.simulation
    begin, end = simulation.time(hours=1), simulation.time(hours=1, minutes=12)
    match fault:
        case "four failures":
            simulation.fail(f"core/{chain}", times=4)
        case "ten minutes slow":
            simulation.slow(f"core/{chain}", seconds=600)
        case "check fails for twelve minutes":
            simulation.fail_check("core/stock", "complete", times=1)
            simulation.evaluate_check("core/stock", "complete", passed=True, at=end)
        case "sensor off for twelve minutes":
            simulation.switch("automation", on=False, at=begin)
            simulation.switch("automation", on=True, at=end)
        case "dead letters":
            ledger = ObservationLedger(simulation.instance)
            return [(begin + 300, lambda: ledger.tell_dead_letters(2)), (end, lambda: ledger.tell_dead_letters(0))]
        case "service down for twelve minutes":
            return [(begin, lambda: _goes_down(location)), (end, lambda: _comes_back(location))]
    return []


def _goes_down(location: Location) -> None:
    location.lose_spark(location.simulation.clock.now)
    for chain in location.chains:
        location.simulation.fail(f"core/{chain}", times=9)


def _comes_back(location: Location) -> None:
    location.doubts = Doubts()
    location.simulation.heal(at=location.simulation.clock.now + 1)
