"""Random histories of causes: one opening and one closing message for each cause and channel.

The generator writes down when each cause begins and ends before anything is run. The oracle computes from that alone
what each channel must get; it imports nothing of the library.
"""

import random
from dataclasses import dataclass, field, replace

import pytest

from dagster_tidemark.incidents.incident import (
    Acknowledgement,
    Book,
    CauseKind,
    LateAsset,
    MessageKind,
    Mute,
    RootCause,
    Trouble,
)
from dagster_tidemark.incidents.lifecycle import acknowledged, muted, reviewed
from dagster_tidemark.incidents.routing import QuietHours, Route
from tests.sampling import sample

LOOK = 10.0
NOON = 1_790_000_000.0 - 1_790_000_000.0 % 86_400 + 43_200


@dataclass
class Fault:
    """A cause from `begin` to `end`, with the assets that it makes late, each from a time on."""

    subject: str
    begin: float
    end: float
    assets: dict[str, float]


@dataclass
class Day:
    """Faults, and the looks at them."""

    faults: list[Fault] = field(default_factory=list)
    until: float = 0.0

    def troubles(self, at: float) -> list[Trouble]:
        found = []
        for fault in self.faults:
            if fault.begin <= at < fault.end:
                late = tuple(
                    LateAsset(asset, is_late=True, deadline=at) for asset, a in fault.assets.items() if a <= at
                )
                found.append(Trouble(RootCause(CauseKind.FAILING, fault.subject, "it fails", fault.begin), late))
        return found


def random_day(seed: int) -> Day:
    """Return faults of which some flap, overlap others, or share assets."""
    chance, day = random.Random(seed), Day()
    for number in range(chance.randint(1, 12)):
        begin = chance.uniform(0, 20_000)
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            end = begin + chance.choice([30.0, 300.0, 4000.0]) * chance.uniform(0.5, 1.5)
            names = chance.sample([f"asset {n}" for n in range(8)], chance.randint(1, 5))
            day.faults.append(Fault(f"cause {number}", begin, end, {n: chance.uniform(begin, end) for n in names}))
            first = next(iter(day.faults[-1].assets))
            day.faults[-1].assets[first] = begin
            begin = end + chance.choice([20.0, 45.0, 100.0, 5000.0])
    day.until = max(fault.end for fault in day.faults) + 200
    return day


def expected(day: Day) -> list[tuple[str, float, float]]:
    """Return each incident that a person would count: the cause, and the looks that first and last saw it.

    A pause of less than a minute between two looks is no end.
    """
    seen: dict[str, list[list[float]]] = {}
    steps = int(day.until // 10) + 30
    for step in range(steps):
        at = step * 10.0
        for fault in day.faults:
            if fault.begin <= at < fault.end:
                spans = seen.setdefault(fault.subject, [])
                if spans and at - spans[-1][1] <= 60.0:  # it was missed at most five times in between
                    spans[-1][1] = at
                else:
                    spans.append([at, at])
    return sorted((subject, *span) for subject, spans in seen.items() for span in spans)  # type: ignore[misc]


@pytest.mark.parametrize("seed", sample(range(60), *range(6)))
def test_each_cause_opens_and_closes_one_incident_per_channel(seed: int) -> None:
    day, book = random_day(seed), Book()
    routes = [Route("all"), Route("some", assets=["asset 1", "asset 2"])]
    for step in range(int(day.until // LOOK) + 30):
        book = reviewed(book, day.troubles(step * LOOK), routes, step * LOOK, location="here")
    wanted = expected(day)
    found = sorted((each.cause.subject, each.opened_at, each.closed_at) for each in book.incidents)
    assert [(subject, opened) for subject, opened, _ in found] == [(subject, first) for subject, first, _ in wanted]
    for (*_, closed), (*_, last) in zip(found, wanted, strict=True):
        assert closed == last + LOOK + 60.0
    for route in routes:
        kinds: dict[str, list[MessageKind]] = {}
        for message in book.outbox:
            if message.channel == route.name:
                kinds.setdefault(message.incident.id, []).append(message.kind)
        told = [each for each in book.incidents if route.takes(each)]
        assert kinds.keys() == {each.id for each in told}
        for of in kinds.values():
            assert of[0] is MessageKind.OPENED and of[-1] is MessageKind.CLOSED
            assert set(of[1:-1]) <= {MessageKind.CHANGED}
    assert len({message.id for message in book.outbox}) == len(book.outbox)


LATE = Trouble(RootCause(CauseKind.MISSING, "raw/tills", "no data", 0.0, "raw/tills"), (LateAsset("marts/sales"),))


def looked(book: Book, at: float, *routes: Route, troubles: tuple[Trouble, ...] = (LATE,)) -> Book:
    return reviewed(book, troubles, routes or [Route("all")], at, location="here")


def kinds(book: Book) -> list[MessageKind]:
    return [message.kind for message in book.outbox]


def test_incident_changes_are_sent_at_most_every_ten_minutes() -> None:
    book = looked(Book(), NOON)
    for number in range(1, 100):
        more = tuple(LateAsset(f"marts/{n}") for n in range(number))
        book = looked(book, NOON + 30.0 * number, troubles=(replace(LATE, late=(*LATE.late, *more)),))
    assert kinds(book) == [MessageKind.OPENED, *[MessageKind.CHANGED] * 4]


def test_passed_deadline_is_sent_as_a_change_after_an_early_warning() -> None:
    book = looked(Book(), NOON, troubles=(replace(LATE, late=(LateAsset("marts/sales", deadline=NOON + 60),)),))
    late = (LateAsset("marts/sales", deadline=NOON + 60, is_late=True),)
    book = looked(book, NOON + 601, troubles=(replace(LATE, late=late),))
    assert kinds(book) == [MessageKind.OPENED, MessageKind.CHANGED]


def test_quiet_hours_delay_the_opening_message_and_drop_incidents_closed_within_them() -> None:
    quiet = Route("night", quiet=QuietHours("11:00", "13:00"))
    healed = looked(looked(Book(), NOON, quiet), NOON + 200, quiet, troubles=())
    healed = looked(healed, NOON + 300, quiet, troubles=())
    assert not healed.open and healed.outbox == ()
    book = looked(looked(Book(), NOON, quiet), NOON + 3599, quiet)
    assert book.outbox == ()
    assert kinds(looked(book, NOON + 3600, quiet)) == [MessageKind.OPENED]


def test_closing_message_within_quiet_hours_is_sent_when_they_end() -> None:
    quiet = Route("night", quiet=QuietHours("12:10", "13:00"))
    book = looked(Book(), NOON, quiet)
    for second in (700, 800):
        book = looked(book, NOON + second, quiet, troubles=())
    assert kinds(book) == [MessageKind.OPENED, MessageKind.CLOSED]
    assert book.outbox[1].next_try == NOON + 3600


@pytest.mark.parametrize("what", ["marts/*", "raw/tills"])
def test_muted_incident_is_recorded_and_sent_if_it_outlasts_the_mute(what: str) -> None:
    book = muted(Book(), Mute(what, NOON - 1, NOON + 100, "known"))
    book = looked(book, NOON)
    assert len(book.open) == 1 and book.outbox == ()
    assert kinds(looked(book, NOON + 101)) == [MessageKind.OPENED]


def test_mute_of_some_assets_does_not_hide_other_assets() -> None:
    both = replace(LATE, late=(LateAsset("marts/sales"), LateAsset("core/orders")))
    book = muted(Book(), Mute("marts/*", NOON - 1, NOON + 100, "known"))
    assert kinds(looked(book, NOON, troubles=(both,))) == [MessageKind.OPENED]


def test_acknowledged_incident_sends_no_changes_until_the_acknowledgement_ends() -> None:
    book = looked(Book(), NOON)
    (incident,) = book.open
    book = acknowledged(book, incident.id, Acknowledgement(NOON + 5, NOON + 2000, "looking"))
    grown = replace(LATE, late=(*LATE.late, LateAsset("marts/more")))
    for second in (10, 700, 1999):
        book = looked(book, NOON + second, troubles=(grown,))
    assert kinds(book) == [MessageKind.OPENED, MessageKind.ACKNOWLEDGED]
    assert looked(book, NOON + 2001, troubles=()).open, "it stays open"
    other = replace(LATE, late=(*grown.late, LateAsset("marts/third")))
    assert kinds(looked(book, NOON + 2001, troubles=(other,)))[-1] is MessageKind.CHANGED


def test_partial_evaluation_closes_no_incident() -> None:
    book = looked(Book(), NOON)
    for second in range(10, 1000, 10):
        book = reviewed(book, [], [Route("all")], NOON + second, location="here", may_close=False)
    assert len(book.open) == 1


def test_incident_stays_open_while_a_platform_fault_hides_its_assets() -> None:
    blind = Trouble(RootCause(CauseKind.PLATFORM, "S3", "unreachable", NOON), (LateAsset("marts/sales"),))
    book = looked(Book(), NOON)
    for second in range(10, 1000, 10):
        book = looked(book, NOON + second, troubles=(blind,))
    assert {each.cause.subject for each in book.open} == {"raw/tills", "S3"}


def test_routes_select_incidents_by_owner_group_and_asset_key() -> None:
    late = (LateAsset("marts/sales", owners=("team:sales",), group="marts"),)
    (incident,) = looked(Book(), NOON, troubles=(replace(LATE, late=late),)).open
    takes = [Route("a", owners=["team:sales"]), Route("b", groups=["marts"]), Route("c", assets=["raw/*"]), Route("d")]
    lacks = [Route("e", owners=["team:core"]), Route("f", groups=["core"]), Route("g", assets=["core/*"])]
    assert all(route.takes(incident) for route in takes) and not any(route.takes(incident) for route in lacks)


@pytest.mark.parametrize(("failed_after", "incidents"), [(-300.0, 1), (20.0, 2)])
def test_reader_that_failed_before_its_check_passed_stays_in_the_incident_of_the_check(
    failed_after: float, incidents: int
) -> None:
    late = (LateAsset("marts/stock", deadline=NOON, is_late=True),)
    check = Trouble(RootCause(CauseKind.CHECK, "core/stock: complete", "it has no result", 0.0), late)
    passed = NOON + 100
    failing = Trouble(RootCause(CauseKind.FAILING, "marts/stock", "it fails", passed + failed_after), late)
    book = looked(Book(), NOON, troubles=(check,))
    for second in (0, 10, 20, 30, 40):
        book = looked(book, passed + second, troubles=(failing,))
    assert len(book.open) == incidents


@pytest.mark.parametrize(("failed_after", "incidents"), [(-300.0, 1), (20.0, 2)])
def test_reader_that_failed_in_the_run_of_its_failing_input_stays_in_the_incident_of_the_input(
    failed_after: float, incidents: int
) -> None:
    late = (LateAsset("marts/stock", deadline=NOON, is_late=True),)
    failing = Trouble(RootCause(CauseKind.FAILING, "core/stock", "it fails", NOON - 300.0, "core/stock"), late)
    built = NOON + 100
    reader = RootCause(CauseKind.FAILING, "marts/stock", "it fails", built + failed_after, "marts/stock")
    book = looked(Book(), NOON, troubles=(failing,))
    for second in (0, 10, 20, 30, 40):
        book = looked(book, built + second, troubles=(Trouble(reader, late),))
    assert len(book.open) == incidents
