"""A sender that dies anywhere loses nothing, keeps the order, and repeats only with the same id."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.incidents.channels.channel import ChannelUnavailable, Delivery, FakeChannel, MessageRefused
from dagster_tidemark.incidents.incident import Book, CauseKind, ChannelState, LateAsset, RootCause, Trouble
from dagster_tidemark.incidents.lifecycle import reviewed
from dagster_tidemark.incidents.routing import QuietHours
from dagster_tidemark.incidents.sender import GIVEN_UP_SECONDS, LEASE_SECONDS, Sender, dead, undelivered
from dagster_tidemark.incidents.store import BookBusy, IncidentStore
from dagster_tidemark.settings import Settings
from tests.tidemark.postgres import has_postgres, postgres_instance

NOW = 1_790_000_000.0


class Killed(BaseException):
    """The process dies here: nothing is caught."""


@pytest.fixture(scope="module")
def instance() -> Iterator[DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def written(store: IncidentStore, channel: FakeChannel, causes: int = 3) -> list[str]:
    """Open and close incidents, and return the ids of their messages in the order of writing."""
    troubles = [Trouble(RootCause(CauseKind.FAILING, f"a{n}", "fails", NOW), (LateAsset("x"),)) for n in range(causes)]
    for at, found in ((NOW - 300, troubles), (NOW - 200, []), (NOW - 100, [])):
        store.change(lambda book, f=found, t=at: reviewed(book, f, [channel.route], t, location="here"))  # type: ignore[misc]
    return [message.id for message in store.read().outbox]


WRITES, SENDS = 40, 6
"""Points where a sender may die with three incidents: before and after each write, and before each message is sent."""


def dies_at(point: int, store: IncidentStore, channel: FakeChannel, settings: Settings, clock: Clock) -> bool:
    """Let a sender die at a point. Return False if it ends before."""
    count = itertools.count()

    def _replaced(*args: Any) -> bool:
        if point < WRITES and next(count) == point:
            raise Killed
        done = original(*args)
        if point < WRITES and next(count) == point:
            raise Killed
        return done

    def _sends(_: Delivery) -> None:
        if point >= WRITES and next(count) == point - WRITES:
            raise Killed

    original = instance_store.replace_saved
    dying = FakeChannel(sent=channel.sent, before=_sends)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(instance_store, "replace_saved", _replaced)
        Sender.started(store, [dying], settings, clock).send(seconds=60)
        return False
    return True


def survives(store: IncidentStore, settings: Settings, points: Sequence[int]) -> tuple[int, int]:
    """Kill one sender after the other, let a last one end, and compare what is on the wire.

    Return the number of kills and of repeats. A sender that has less left to do ends before its point.
    """
    clock, channel, kills = Clock(), FakeChannel(), 0
    ids = written(store, channel)
    for point in points:
        kills += dies_at(point, store, channel, settings, clock)
        clock.now += LEASE_SECONDS + 1
    Sender.started(store, [channel], settings, clock).send(seconds=60)
    got = [delivery.message.id for delivery in channel.sent]
    assert set(got) == set(ids), f"lost at {points}"
    for incident in {id_.rpartition("-")[0] for id_ in ids}:
        first_seen = dict.fromkeys(id_ for id_ in got if id_.startswith(incident))
        assert list(first_seen) == sorted(first_seen), "an incident is opened before it is closed"
    assert store.read().outbox == () and store.read().incidents == ()
    assert len(store.closed()) == 3
    return kills, len(got) - len(set(got))


def test_killed_incident_sender_loses_no_message_and_repeats_at_most_one(
    instance: DagsterInstance, settings: Settings
) -> None:
    every = [survives(IncidentStore(instance, f"kill {n}"), settings, [n]) for n in range(WRITES + SENDS)]
    assert max(repeats for _, repeats in every) <= 1
    assert [kills for kills, _ in every[:24]] == [1] * 24 and [kills for kills, _ in every[WRITES:]] == [1] * SENDS


def test_only_one_of_two_concurrent_incident_senders_sends_messages(store: IncidentStore, settings: Settings) -> None:
    clock, channel = Clock(), FakeChannel()
    ids = written(store, channel)
    second = Sender.started(store, [channel], settings, clock)
    inner = FakeChannel(sent=channel.sent, before=lambda _: second.send(seconds=60))
    Sender.started(store, [inner], settings, clock).send(seconds=60)
    assert [delivery.message.id for delivery in channel.sent] == sorted(ids, key=ids.index)


def test_unavailable_channel_waits_for_retry_after_and_is_dead_after_a_minute(
    store: IncidentStore, settings: Settings
) -> None:
    clock = Clock()
    answers = [ChannelUnavailable("busy", retry_after=30, is_busy=True), *[ChannelUnavailable("down")] * 6]

    def _answers(_: Delivery) -> None:
        if answers:
            raise answers.pop(0)

    channel = FakeChannel(before=_answers)
    ids, sender = written(store, channel, causes=1), None
    sender = Sender.started(store, [channel], settings, clock)
    sender.send(seconds=60)
    clock.now += 29
    sender.send(seconds=60)
    assert len(answers) == 6, "it asked for 30 seconds"
    assert dead(store.read(), clock.now + 1000) == {}, "a channel that limits the rate is not dead"
    clock.now += 1
    for _ in range(12):
        sender.send(seconds=60)
        clock.now += 10
    assert dead(store.read(), clock.now) == {"fake": "down"}
    for _ in range(10):
        clock.now += 400
        sender.send(seconds=60)
    assert [delivery.message.id for delivery in channel.sent] == ids and dead(store.read(), clock.now) == {}
    assert any(name == "sent late" for name, _ in channel.sent[0].report.facts), "the message says how old it is"


def test_refused_incident_message_is_dropped_and_the_next_message_is_sent(
    store: IncidentStore, settings: Settings
) -> None:
    def _refuses(delivery: Delivery) -> None:
        if delivery.message.incident.cause.subject == "a0":
            raise MessageRefused("too long")

    channel = FakeChannel(before=_refuses)
    written(store, channel)
    Sender.started(store, [channel], settings, Clock()).send(seconds=60)
    assert {delivery.message.incident.cause.subject for delivery in channel.sent} == {"a1", "a2"}
    assert store.read().outbox == () and store.read().channels["fake"].given_up == 2
    (given_up,) = [each for each in store.closed() if each.cause.subject == "a0"]
    assert any(step.said == "fake: too long" for step in given_up.timeline)


def test_channel_that_refuses_every_message_is_dead_after_a_minute_until_it_takes_one(
    store: IncidentStore, settings: Settings
) -> None:
    refusals = [MessageRefused("it answers with 400: Invalid routing key")] * 2

    def _refuses(_: Delivery) -> None:
        if refusals:
            raise refusals.pop()

    clock, channel = Clock(), FakeChannel(before=_refuses)
    written(store, channel, causes=1)
    sender = Sender.started(store, [channel], settings, clock)
    sender.send(seconds=60)
    assert not channel.sent and store.read().outbox == ()
    assert dead(store.read(), clock.now + 60) == {"fake": "refused: it answers with 400: Invalid routing key"}
    written(store, channel, causes=1)
    sender.send(seconds=60)
    assert channel.sent and dead(store.read(), clock.now + 60) == {}


def test_failing_incident_message_delays_no_other_and_is_dropped_after_a_day(
    store: IncidentStore, settings: Settings
) -> None:
    def _fails(delivery: Delivery) -> None:
        if delivery.message.incident.cause.subject == "a0":
            raise ValueError("a fault of this channel")

    channel, clock = FakeChannel(before=_fails), Clock()
    written(store, channel)
    sender = Sender.started(store, [channel], settings, clock)
    for _ in range(12):
        sender.send(seconds=60)
        clock.now += 301
    assert len(channel.sent) == 4 and len(store.read().outbox) == 2
    clock.now += GIVEN_UP_SECONDS
    for _ in range(3):
        sender.send(seconds=60)
        clock.now += 301
    assert store.read().outbox == ()


def test_failed_message_from_before_the_quiet_hours_is_sent_after_them(
    store: IncidentStore, settings: Settings
) -> None:
    answers = [ChannelUnavailable("down")]

    def _answers(_: Delivery) -> None:
        if answers:
            raise answers.pop()

    clock = Clock()
    assert datetime.fromtimestamp(clock.now, UTC).time() == time(14, 13, 20)
    channel = FakeChannel(before=_answers, quiet=QuietHours("14:14", "23:30"))
    ids, sender = written(store, channel, causes=1), Sender.started(store, [channel], settings, clock)
    sender.send(seconds=60)
    assert not answers and not channel.sent
    for _ in range(9):  # until 23:13
        clock.now += 3600
        sender.send(seconds=60)
        assert not channel.sent, "it sends nothing in quiet hours"
        assert not [*undelivered(store.read(), clock.now)], "a message that waits for their end is not overdue"
    clock.now += 2 * 3600
    sender.send(seconds=60)
    assert [delivery.message.id for delivery in channel.sent] == ids


def test_message_waits_for_the_end_of_a_quiet_weekend_and_is_tried_again_after_a_failure(
    store: IncidentStore, settings: Settings
) -> None:
    answers = [ChannelUnavailable("down")]

    def _answers(_: Delivery) -> None:
        if answers:
            raise answers.pop()

    clock = Clock()
    saturday = datetime(2026, 11, 28, 0, 5, tzinfo=UTC).timestamp()
    weekend = QuietHours("00:00", "00:00", days=("sat", "sun"))
    channel = FakeChannel(before=_answers, quiet=weekend)
    (trouble,) = [Trouble(RootCause(CauseKind.FAILING, "a", "fails", NOW), (LateAsset("x"),))]
    for at, found in ((saturday - 600, [trouble]), (saturday, []), (saturday + 100, [])):
        store.change(lambda book, f=found, t=at: reviewed(book, f, [channel.route], t, location="here"))  # type: ignore[misc]
    sender = Sender.started(store, [channel], settings, clock)
    for hour in range(47):
        clock.now = saturday + 200 + hour * 3600
        sender.send(seconds=60)
    assert answers and not channel.sent, "Sunday is quiet, too"
    for _ in range(2):
        clock.now += 2 * 3600
        sender.send(seconds=60)
    assert [delivery.message.kind for delivery in channel.sent] == ["opened", "closed"]


def test_channel_that_asks_for_a_pause_of_a_year_is_tried_again_after_an_hour(
    store: IncidentStore, settings: Settings
) -> None:
    answers = [ChannelUnavailable("busy", retry_after=31_536_000, is_busy=True)]

    def _answers(_: Delivery) -> None:
        if answers:
            raise answers.pop()

    clock, channel = Clock(), FakeChannel(before=_answers)
    ids, sender = written(store, channel, causes=1), Sender.started(store, [channel], settings, clock)
    sender.send(seconds=60)
    clock.now += 3599
    sender.send(seconds=60)
    assert not channel.sent
    clock.now += 2
    sender.send(seconds=60)
    assert [delivery.message.id for delivery in channel.sent] == ids


def test_channel_that_limits_the_rate_for_ten_minutes_is_dead_until_it_takes_a_message(
    store: IncidentStore, settings: Settings
) -> None:
    is_busy = True

    def _answers(_: Delivery) -> None:
        if is_busy:
            raise ChannelUnavailable("it answers with 429", retry_after=1, is_busy=True)

    clock, channel = Clock(), FakeChannel(before=_answers)
    ids, sender = written(store, channel, causes=1), Sender.started(store, [channel], settings, clock)
    for _ in range(40):
        sender.send(seconds=60)
        if clock.now - NOW < 400:
            assert dead(store.read(), clock.now) == {}
        clock.now += 30
    assert dead(store.read(), clock.now) == {"fake": "it answers with 429"}
    is_busy = False
    clock.now += 300
    sender.send(seconds=60)
    assert [delivery.message.id for delivery in channel.sent] == ids and dead(store.read(), clock.now) == {}


def test_sending_reads_no_runs_and_no_events(
    store: IncidentStore, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = FakeChannel()
    ids = written(store, channel)
    monkeypatch.setattr(type(store.instance), "event_log_storage", property(lambda _: pytest.fail("it reads events")))
    for name in ("get_runs", "get_run_records", "get_event_records", "fetch_run_status_changes"):
        monkeypatch.setattr(store.instance, name, lambda *_, **__: pytest.fail("it reads runs"))
    Sender.started(store, [channel], settings, Clock()).send(seconds=60)
    assert [delivery.message.id for delivery in channel.sent] == ids, "so failed runs in the log change nothing"


def test_concurrent_change_of_the_incident_store_is_never_overwritten(instance: DagsterInstance) -> None:
    store = IncidentStore(instance, "two")

    def _with(name: str, meanwhile: Callable[[], object] = lambda: None) -> Callable[[Book], Book]:
        def _change(book: Book) -> Book:
            channel = FakeChannel(name=name)
            trouble = Trouble(RootCause(CauseKind.FAILING, name, "fails", NOW))
            changed = reviewed(book, [trouble], [channel.route], NOW, location="here", may_close=False)
            meanwhile()
            return changed

        return _change

    once = iter([lambda: store.change(_with("first"))])
    store.change(_with("second", lambda: next(once, lambda: None)()))
    assert {each.cause.subject for each in store.read().incidents} == {"first", "second"}
    counts = itertools.count()

    def _always_late(book: Book) -> Book:
        store.change(lambda now: replace(now, channels={"any": ChannelState(sent=next(counts))}))
        return replace(book, channels={"other": ChannelState()})

    with pytest.raises(BookBusy):
        store.change(_always_late)


@pytest.mark.skipif(not has_postgres(), reason="the programs of PostgreSQL are not installed")
def test_incident_store_is_updated_atomically_on_postgresql() -> None:
    with postgres_instance() as instance:
        test_concurrent_change_of_the_incident_store_is_never_overwritten(instance)
        assert instance_store.replace_saved(instance, "tidemark/any", None, "1")
        assert not instance_store.replace_saved(instance, "tidemark/any", None, "2"), "another process made it first"
        assert not instance_store.replace_saved(instance, "tidemark/any", "0", "2")
        assert instance_store.replace_saved(instance, "tidemark/any", "1", "2")
        assert instance_store.saved(instance, "tidemark/any") == "2"
