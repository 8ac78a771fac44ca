"""Hazards of incidents: poisoned messages, hanging channels, clocks set back, damaged books, and awkward hours.

Each case states what must happen before it is run. The oracle of quiet hours reads a wall clock minute by minute.
"""

import json
import math
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.incidents import sender as sending
from dagster_tidemark.incidents.arrivals import LOOK_BACK
from dagster_tidemark.incidents.channels.channel import ChannelUnavailable, Delivery, FakeChannel
from dagster_tidemark.incidents.channels.webhook import described
from dagster_tidemark.incidents.expected import ExpectationRefused
from dagster_tidemark.incidents.incident import (
    Acknowledgement,
    ArrivalState,
    Book,
    CauseKind,
    LateAsset,
    Lease,
    MessageKind,
    Mute,
    RootCause,
    Trouble,
)
from dagster_tidemark.incidents.lifecycle import acknowledged, muted, reviewed
from dagster_tidemark.incidents.routing import QuietHours, Route
from dagster_tidemark.incidents.sender import Sender
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.incidents.wording import title
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import INCIDENTS, INCIDENTS_CLOSED
from tests.tidemark.incidents.test_arrivals import EXPECTED, HOUR, Feed
from tests.tidemark.incidents.test_sender import NOW, Clock

NOON = NOW - NOW % 86_400 + 43_200
DAY = 86_400.0


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def fails(subject: str, *late: str, said: str = "it fails", since: float = NOW) -> Trouble:
    cause = RootCause(CauseKind.FAILING, subject, said, since, subject)
    return Trouble(cause, tuple(LateAsset(each, is_late=True) for each in late or ("marts/x",)))


EVERYTHING = Route("all")


def looked(book: Book, at: float, *troubles: Trouble, route: Route = EVERYTHING) -> Book:
    return reviewed(book, troubles, [route], at, location="here")


def noted(store: IncidentStore, at: float, *troubles: Trouble, routes: tuple[Route, ...]) -> None:
    store.change(lambda book: reviewed(book, troubles, routes, at, location="here"))


def kinds(book: Book) -> list[MessageKind]:
    return [message.kind for message in book.outbox]


# Sending.


def test_message_that_fails_each_time_delays_no_later_incident(store: IncidentStore, settings: Settings) -> None:
    attempts: list[float] = []

    def _fails(delivery: Delivery) -> None:
        if delivery.message.incident.cause.subject == "poison":
            attempts.append(clock.now)
            raise ChannelUnavailable("it answers with 404: this thread was deleted")

    clock, channel = Clock(), FakeChannel(before=_fails)
    sender, troubles = Sender.started(store, [channel], settings, clock), [fails("poison")]
    began: dict[str, float] = {}
    for tick in range(120):  # ten minutes
        if tick % 40 == 25:
            began[f"cause {tick}"] = clock.now
            troubles.append(fails(f"cause {tick}", f"marts/{tick}"))
        noted(store, clock.now, *troubles, routes=(channel.route,))
        sender.send(seconds=60)
        clock.now += 5
    sent = {delivery.message.incident.cause.subject: delivery.now for delivery in channel.sent}
    assert sent.keys() == began.keys()
    assert max(sent[each] - at for each, at in began.items()) <= 10, "seconds until a message about another cause"
    assert 5 <= len(attempts) <= 9, "the pauses of the message itself grow"


def test_channel_that_never_returns_delays_no_other_channel(
    store: IncidentStore, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_LONGEST_ATTEMPT", 0.4)
    ended, calls = threading.Event(), list[str]()

    def _hangs(delivery: Delivery) -> None:
        calls.append(delivery.message.id)
        ended.wait(10)

    clock = Clock()
    hanging, working = FakeChannel(name="hanging", before=_hangs), FakeChannel(name="working")
    sender = Sender.started(store, [hanging, working], settings, clock)
    noted(store, clock.now, fails("a"), routes=(hanging.route, working.route))
    sender.send(seconds=60)
    assert len(working.sent) == 1 and store.read().channels["hanging"].error == "no answer within 0 s"
    clock.now += 400
    sender.send(seconds=60)
    assert len(calls) == 1, "a second attempt could overtake the first"
    assert store.read().channels["hanging"].error == "the last attempt has not ended"
    ended.set()
    assert sender._open["hanging"].wait(10)
    clock.now += 400
    sender.send(seconds=60)
    assert len(hanging.sent) == 2 and store.read().outbox == ()
    assert {delivery.message.id for delivery in hanging.sent} == {calls[0]}, "the same id: a receiver drops it"


@pytest.mark.parametrize("asked", [math.nan, math.inf, -math.inf, -5.0, 1e300])
def test_odd_retry_after_of_a_users_channel_neither_damages_the_book_nor_hides_the_channel(
    store: IncidentStore, settings: Settings, asked: float
) -> None:
    answers = [ChannelUnavailable("busy", retry_after=asked)]

    def _answers(_: Delivery) -> None:
        if answers:
            raise answers.pop()

    clock, channel = Clock(), FakeChannel(before=_answers)
    sender = Sender.started(store, [channel], settings, clock)
    noted(store, clock.now, fails("a"), routes=(channel.route,))
    sender.send(seconds=60)
    assert len(store.read().open) == 1 and math.isfinite(store.read().channels["fake"].pause_until)
    clock.now += 3601
    sender.send(seconds=60)
    assert len(channel.sent) == 1


@pytest.mark.parametrize("back", [60.0, 3700.0, DAY, 400 * DAY])
def test_clock_that_is_set_back_delays_messages_by_an_hour_at_most(
    store: IncidentStore, settings: Settings, back: float
) -> None:
    answers = [ChannelUnavailable("busy", retry_after=3600, is_busy=True)]

    def _answers(_: Delivery) -> None:
        if answers:
            raise answers.pop()

    clock, channel = Clock(), FakeChannel(before=_answers)
    noted(store, clock.now, fails("a"), routes=(channel.route,))
    Sender.started(store, [channel], settings, clock).send(seconds=60)
    # A process that ended without releasing its lease, before the clock was set back.
    store.change(lambda book: replace(book, lease=Lease("dead", clock.now + sending.LEASE_SECONDS)))
    clock.now -= back
    waited = 0.0
    while not channel.sent and waited <= 8000:
        Sender.started(store, [channel], settings, clock).send(seconds=60)
        clock.now += 300
        waited += 300
    assert channel.sent and waited <= 3600 + min(back, 3600) + 600


@pytest.mark.parametrize("back", [30.0, 5000.0, DAY])
def test_incident_grows_and_closes_after_the_clock_was_set_back(back: float) -> None:
    book = looked(Book(), NOON, fails("a"))
    book = looked(book, NOON + 700)  # it has ended
    for step in range(0, 100, 10):
        book = looked(book, NOON + 700 - back + step)
    assert not book.open and kinds(book) == [MessageKind.OPENED, MessageKind.CLOSED]
    book = looked(Book(), NOON, fails("a"))
    for step in range(0, 700, 10):
        book = looked(book, NOON - back + step, fails("a", "marts/x", "marts/y"))
    assert kinds(book)[:2] == [MessageKind.OPENED, MessageKind.CHANGED] and len(kinds(book)) == 2


def test_error_of_any_text_is_stored_in_one_short_line(store: IncidentStore, settings: Settings) -> None:
    def _raises(_: Delivery) -> None:
        raise ValueError("half a \ud800 letter\nand \x00 more" * 1_000)

    clock, channel = Clock(), FakeChannel(before=_raises)
    noted(store, clock.now, fails("a"), routes=(channel.route,))
    Sender.started(store, [channel], settings, clock).send(seconds=60)
    error = store.read().channels["fake"].error
    assert error.startswith("ValueError: half a ? letter and more") and len(error) <= 500


# The book.


def test_cause_with_unpaired_surrogates_is_stored(store: IncidentStore) -> None:
    noted(store, NOW, fails("a", said="file '\udcff.csv'"), fails("b", "marts/y"), routes=(Route("all"),))
    assert sorted(each.cause.said for each in store.read().open) == ["file '?.csv'", "it fails"]


def damaged(store: IncidentStore, change: dict[str, object]) -> None:
    """Replace members of the first incident and message in the stored book."""
    key = INCIDENTS + store.location
    found = json.loads(instance_store.saved(store.instance, key) or "")
    found["incidents"][0]["cause"] |= change
    found["outbox"][0]["incident"]["cause"] |= change
    instance_store.save(store.instance, key, json.dumps(found))


@pytest.mark.parametrize("change", [{"kind": "a kind of a newer version"}, {"since": None}, {"subject": 7}])
def test_unreadable_incident_is_left_out_and_everything_else_stays(
    store: IncidentStore, change: dict[str, object]
) -> None:
    noted(store, NOW, fails("a"), fails("b", "marts/y"), routes=(Route("all"),))
    store.change(lambda book: muted(book, Mute("marts/z", NOW, NOW + DAY, "known")))
    before = store.read()
    damaged(store, change)
    book = store.read()
    assert [each.cause.subject for each in book.incidents] == ["b"] and book.incidents == before.incidents[1:]
    assert book.outbox == before.outbox[1:] and book.mutes == before.mutes


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{", '"x"', '{"version": 99, "mutes": 3}', '{"incidents": {"a": 1}}']
)
def test_text_that_is_no_book_is_an_empty_one(store: IncidentStore, text: str) -> None:
    instance_store.save(store.instance, INCIDENTS + store.location, text)
    assert store.read() == Book()


def test_outbox_of_an_older_version_is_sent(store: IncidentStore, settings: Settings) -> None:
    channel, clock = FakeChannel(), Clock()
    noted(store, NOW, fails("a"), routes=(channel.route,))
    key = INCIDENTS + store.location
    found = json.loads(instance_store.saved(store.instance, key) or "")
    for message in found["outbox"]:
        for name in ("pause_until", "attempts", "error"):
            del message[name]
    instance_store.save(store.instance, key, json.dumps(found | {"a member of a newer version": [1]}))
    Sender.started(store, [channel], settings, clock).send(seconds=60)
    assert len(channel.sent) == 1


def test_unreadable_closed_incident_takes_no_other_from_the_history(store: IncidentStore) -> None:
    book = looked(Book(), NOON, fails("a"), fails("b", "marts/y"), route=Route("none", assets=["none"]))
    for second in (10, 100):
        book = looked(book, NOON + second)
    store.archive(store.change(lambda _: book))
    assert len(store.closed()) == 2
    key = INCIDENTS_CLOSED + store.location
    found = json.loads(instance_store.saved(store.instance, key) or "")
    found[0]["cause"]["kind"] = "a kind of a newer version"
    instance_store.save(store.instance, key, json.dumps(found))
    assert len(store.closed()) == 1


# Hours.

ZONES = ("UTC", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Chatham")
NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def is_quiet(quiet: QuietHours, at: float) -> bool:
    """Read a wall clock: the hours began today before now, or yesterday and end today."""
    clock = datetime.fromtimestamp(at, ZoneInfo(quiet.timezone))
    said = f"{clock:%H:%M}"
    today, yesterday = NAMES[clock.weekday()], NAMES[clock.weekday() - 1]
    if quiet.begin < quiet.end:
        return today in quiet.days and quiet.begin <= said < quiet.end
    return (today in quiet.days and said >= quiet.begin) or (yesterday in quiet.days and said < quiet.end)


@pytest.mark.parametrize("zone", ZONES)
def test_quiet_hours_match_the_wall_clock(zone: str) -> None:
    chance, checked = random.Random(zone), 0
    for _ in range(150):
        begin, end = (f"{chance.randrange(24):02}:{chance.choice(['00', '30', '45'])}" for _ in range(2))
        quiet = QuietHours(begin, end, zone, tuple(chance.sample(NAMES, chance.randint(1, 7))))
        at = NOW + chance.randrange(525_600) * 60.0
        offsets = {datetime.fromtimestamp(at + h * 3600, ZoneInfo(zone)).utcoffset() for h in range(-26, 27)}
        if len(offsets) > 1:
            continue  # clocks change: a time of day may be there twice or not at all
        checked += 1
        found = quiet.end_after(at)
        assert (found is not None) == is_quiet(quiet, at), (quiet, at)
        if found is not None:
            assert at < found <= at + DAY
            assert all(is_quiet(quiet, minute) for minute in range(int(at), int(found), 900)), "no gap before the end"
            assert f"{datetime.fromtimestamp(found, ZoneInfo(zone)):%H:%M}" == end
    assert checked > 100


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        # Berlin, 2026-03-29: the clock jumps from 02:00 to 03:00; 2026-10-25: it goes from 03:00 back to 02:00.
        ("2026-03-29T00:30+01:00", "22:00", "2026-03-29T04:00:00+00:00"),
        ("2026-10-25T00:30+02:00", "22:00", "2026-10-25T05:00:00+00:00"),
        ("2026-03-29T03:10+02:00", "02:00", "2026-03-29T04:00:00+00:00"),
        ("2026-10-25T02:30+01:00", "02:00", "2026-10-25T05:00:00+00:00"),
    ],
)
def test_quiet_night_with_a_clock_change_ends_by_the_local_clock(begin: str, end: str, expected: str) -> None:
    found = QuietHours(end, "06:00", "Europe/Berlin").end_after(datetime.fromisoformat(begin).timestamp())
    assert found is not None and datetime.fromtimestamp(found, UTC).isoformat() == expected


def test_mute_that_ends_in_quiet_hours_is_followed_by_a_message_when_they_end() -> None:
    route = Route("night", quiet=QuietHours("12:30", "13:00"))
    book = muted(Book(), Mute("marts/x", NOON, NOON + 2000, "known"))
    for second in range(0, 3600, 60):
        book = looked(book, NOON + second, fails("a"), route=route)
    assert book.outbox == () and len(book.open) == 1
    assert kinds(looked(book, NOON + 3600, fails("a"), route=route)) == [MessageKind.OPENED]


def test_acknowledgement_that_ends_in_quiet_hours_is_followed_by_news_when_they_end() -> None:
    route = Route("night", quiet=QuietHours("12:30", "13:00"))
    book = looked(Book(), NOON, fails("a"), route=route)
    book = acknowledged(book, book.open[0].id, Acknowledgement(NOON + 5, NOON + 2000, "looking"))
    book = looked(book, NOON + 10, fails("a"), route=route)
    grown = fails("a", "marts/x", "marts/y")
    for second in range(20, 3600, 60):
        book = looked(book, NOON + second, grown, route=route)
    assert kinds(book) == [MessageKind.OPENED, MessageKind.ACKNOWLEDGED]
    book = looked(book, NOON + 3600, grown, route=route)
    assert kinds(book)[2:] == [MessageKind.CHANGED]


# Causes that move, merge, flap, or lose their asset.


def test_new_owner_gets_the_incident_and_the_old_one_its_end() -> None:
    old, new = Route("old", owners=["team:old"]), Route("new", owners=["team:new"])

    def _look(book: Book, at: float, owner: str | None) -> Book:
        late = (LateAsset("marts/x", is_late=True, owners=(owner or "",)),)
        return reviewed(book, [replace(fails("a"), late=late)] if owner else [], [old, new], at, location="here")

    book = _look(Book(), NOON, "team:old")
    book = _look(book, NOON + 10, "team:new")
    book = _look(_look(book, NOON + 20, None), NOON + 100, None)
    assert [(each.channel, each.kind) for each in book.outbox] == [
        ("old", "opened"),
        ("new", "opened"),
        ("old", "closed"),
        ("new", "closed"),
    ]


def test_incident_of_an_asset_that_a_deploy_removes_closes_once() -> None:
    book = looked(Book(), NOON, fails("gone", "gone", "marts/x"))
    for second in range(10, 400, 10):
        book = looked(book, NOON + second)
    assert kinds(book) == [MessageKind.OPENED, MessageKind.CLOSED] and not book.open


def test_cause_that_flaps_faster_than_a_minute_is_one_incident() -> None:
    book = Book()
    for second in range(0, 3000, 10):
        book = looked(book, NOON + second, *([fails("a")] if second % 60 < 30 else []))
    assert len(book.incidents) == 1 and kinds(book) == [MessageKind.OPENED]


def test_two_causes_of_one_asset_are_two_incidents_that_end_apart() -> None:
    missing = Trouble(
        RootCause(CauseKind.MISSING, "raw/a", "no data", 0.0, "raw/a"), (LateAsset("marts/x", is_late=True),)
    )
    book = looked(Book(), NOON, fails("a"), missing)
    for second in range(10, 200, 10):
        book = looked(book, NOON + second, missing)
    for second in range(200, 400, 10):
        book = looked(book, NOON + second)
    ended = {each.cause.subject: each.closed_at for each in book.incidents}
    assert kinds(book).count(MessageKind.OPENED) == kinds(book).count(MessageKind.CLOSED) == 2
    assert ended == {"a": NOON + 70, "raw/a": NOON + 260}
    first, second_ = (title(each.incident, each.kind) for each in book.outbox if each.kind is MessageKind.CLOSED)
    (of_missing,) = (each.id for each in book.incidents if each.cause.subject == "raw/a")
    assert first == f"closed after 1 min 10 s: marts/x is still late, see {of_missing}"
    assert second_ == "closed after 4 min 20 s: marts/x is no longer late"


def test_closing_message_tells_recovered_assets_from_those_that_another_incident_makes_late() -> None:
    book = looked(Book(), NOON, fails("a", "marts/x", "marts/y", "marts/z"), fails("b", "marts/y"))
    for second in (10, 80):
        book = looked(book, NOON + second, fails("b", "marts/y"))
    (closed,) = (each.incident for each in book.outbox if each.kind is MessageKind.CLOSED)
    (other,) = book.open
    recovered = "marts/x, marts/z are no longer late"
    assert title(closed, MessageKind.CLOSED) == (
        f"closed after 1 min 20 s: {recovered}, marts/y is still late, see {other.id}"
    )
    assert described(closed)["still_late_by"] == {"marts/y": other.id}


# Expected arrivals.


def test_miss_with_a_grace_of_more_than_a_week_is_reported() -> None:
    feed, grace = Feed(), timedelta(hours=60)
    for hours in (0, 1):
        feed.lands(f"{hours:03}", hours * HOUR + 60)
    expected = replace(EXPECTED, grace=LOOK_BACK + grace)
    due = 3 * HOUR + 600  # of the hour 2
    overdue = due + LOOK_BACK.total_seconds() + grace.total_seconds()
    assert feed.states(expected, overdue - 1)["002"] is ArrivalState.PENDING
    assert feed.states(expected, overdue + 1)["002"] is ArrivalState.MISSING
    assert feed.states(expected, overdue + LOOK_BACK.total_seconds() - 1)["002"] is ArrivalState.MISSING
    assert "002" not in feed.states(expected, overdue + LOOK_BACK.total_seconds() + 1)


def test_key_that_appears_or_vanishes_is_judged_by_its_own_windows() -> None:
    feed = Feed("berlin")
    for hour in range(4):
        feed.lands(f"berlin|{hour:03}", (hour + 1) * HOUR)
    feed.keys = ("berlin", "paris")
    feed.lands("berlin|004", 5 * HOUR, size=100)
    found = feed.states(replace(EXPECTED, usual=0.5), 6 * HOUR)
    assert found["berlin|004"] is ArrivalState.ON_TIME and found["paris|004"] is ArrivalState.MISSING
    feed.keys = ("paris",)
    assert not [key for key in feed.states(EXPECTED, 6 * HOUR) if str(key).startswith("berlin")]


class Calendar:
    """A calendar that computes its dates when asked, as the package `holidays` does."""

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and (day.month, day.day) in {(1, 1), (12, 25), (12, 26)}


@pytest.mark.parametrize(
    ("day_of_window", "zone", "is_due"),
    [
        ("2026-12-31", "Europe/Berlin", False),  # due on 1 January
        ("2027-01-01", "Europe/Berlin", True),
        ("2026-12-24", "Asia/Kathmandu", False),
        ("2026-12-26", "Asia/Kathmandu", True),
        ("2026-12-30", "Pacific/Kiritimati", True),
    ],
)
def test_holiday_counts_on_the_day_when_data_is_due(day_of_window: str, zone: str, is_due: bool) -> None:
    expected = ExpectedArrival(source="raw/a", by="06:00", timezone=zone, except_on=Calendar())
    begin = datetime.fromisoformat(day_of_window).replace(tzinfo=ZoneInfo(zone)).timestamp()
    due = expected.due_at(Window(begin, begin + DAY))
    assert (due is not None) == is_due
    if due is not None:
        assert due == begin + DAY + 6 * 3600


def test_calendar_that_changes_while_a_window_is_missing_ends_the_miss() -> None:
    feed = Feed()
    feed.lands("000", 60)
    holidays = set[date]()
    expected = replace(EXPECTED, except_on=holidays)
    assert feed.states(expected, 3 * HOUR)["001"] is ArrivalState.MISSING
    holidays.add(date(1970, 1, 1))
    assert feed.states(expected, 3 * HOUR)["001"] is ArrivalState.NOT_EXPECTED


@pytest.mark.parametrize(
    "dates",
    [
        {"2026-12-25": "Christmas"},
        {datetime(2026, 12, 25): "Christmas"},
        ["2026-12-25"],
        (date(2026, 12, day) for day in (25, 26)),
        iter([date(2026, 12, 25)]),
    ],
)
def test_calendar_that_would_never_match_or_only_once_is_refused(dates: object) -> None:
    with pytest.raises(ExpectationRefused, match="except_on"):
        ExpectedArrival(source="raw/a", by="06:00", except_on=dates)  # type: ignore[arg-type]
    ExpectedArrival(source="raw/a", by="06:00", except_on={date(2026, 12, 25): "Christmas"})
