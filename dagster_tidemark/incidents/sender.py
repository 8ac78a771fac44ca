"""Sending: messages of the outbox, in order, each at least once, by one process at a time.

Each attempt is stored before the message is sent, and its result after. If a process dies in between, the next one
sends the message again, with the same id. The right to send is a lease in the same book, extended with
each stored attempt, so two daemons do not send at once. `tidemark alert test` sends a test incident by each channel
without the outbox, and stores nothing. Does not belong here: messages (`incidents.lifecycle`) and protocols
(`incidents.channels`).
"""

import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.incidents.channels.channel import UNSET, Channel, ChannelUnavailable, Delivery, MessageRefused
from dagster_tidemark.incidents.incident import (
    Book,
    CauseKind,
    ChannelState,
    Incident,
    IncidentMessage,
    Lease,
    MessageKind,
    RootCause,
    TimelineStep,
    incident_id,
)
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.incidents.wording import one_line
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.planner.user_code import LimitedCall, called
from dagster_tidemark.settings import Settings

DEAD_SECONDS = 60.0
"""A channel that has failed to send, or refused messages, for this long counts as dead."""
LEASE_SECONDS = 30.0
"""More than twice the time limit of an attempt."""
_LONGEST_ATTEMPT = 20.0
"""A host with eight addresses that do not answer takes longer, and a user's own channel may hang."""
_MOST_SAID = 500  # characters of an error, which is stored
_LONGEST_THREAD = 1_000  # characters, likewise
GIVEN_UP_SECONDS = 86_400.0
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_FEW = 3  # failing messages that are not taken for a failing channel
_BUSY_SECONDS = 600.0
"""A channel that limits the rate counts as failing after it has refused a message for this long."""
_LONGEST_ASKED = 3600.0
"""A channel may ask for a longer pause, but not for one that hides it for days."""


@dataclass(frozen=True)
class Sending:
    """Result of a call of the sender.

    Args:
        sent: Number of messages sent.
        archived: True if closed incidents moved to the history.
        book: The book afterwards.
    """

    sent: int
    archived: bool
    book: Book


@dataclass(frozen=True)
class Sender:
    """The sender of a code location's messages.

    Args:
        clock: Returns the time in Unix seconds.
        holder: Name of this process in the lease.
    """

    store: IncidentStore
    channels: Sequence[Channel]
    settings: Settings
    clock: Callable[[], float]
    holder: str
    _open: dict[str, LimitedCall[object]] = field(default_factory=dict)
    """The last attempt of each channel that may still be open."""

    @classmethod
    def started(
        cls, store: IncidentStore, channels: Sequence[Channel], settings: Settings, clock: Callable[[], float]
    ) -> "Sender":
        """Return a sender with its own name in the lease."""
        return cls(store, channels, settings, clock, uuid.uuid4().hex)

    def send(self, *, seconds: float) -> Sending:
        """Send the messages that are due. Move closed incidents without messages to the history.

        Args:
            seconds: No attempt begins after this time.
        """
        began, sent = time.monotonic(), 0
        book = self.store.read()
        if not book.outbox and not any(self._is_stale(book, channel) for channel in self.channels):
            return self._archived(book, sent)
        book = self.store.change(self._leased)
        if not self._leads(book):
            return Sending(0, False, book)
        self.store.change(self._prepared)
        tried = set[str]()
        while time.monotonic() - began < seconds:
            message = self._next(self.store.read(), tried)
            if message is None:
                break
            tried.add(message.id)
            sent += self._attempt(message)
        return self._archived(self.store.change(self._released), sent)

    def _archived(self, book: Book, sent: int) -> Sending:
        after = self.store.archive(book)
        return Sending(sent, after is not book, after)

    def _is_stale(self, book: Book, channel: Channel) -> bool:
        """Return True if the stored problem of a channel is out of date."""
        state, problem = book.channels.get(channel.label, ChannelState()), _problem(channel)
        return state.error != problem if problem else _is_unset(state)

    def _leased(self, book: Book) -> Book:
        now = self.clock()
        lease = book.lease
        # A lease that ends later than any lease can was written before the clock was set back.
        if lease is not None and lease.holder != self.holder and now < lease.until <= now + LEASE_SECONDS:
            return book
        return replace(book, lease=Lease(self.holder, now + LEASE_SECONDS))

    def _released(self, book: Book) -> Book:
        return replace(book, lease=None) if self._leads(book) else book

    def _leads(self, book: Book) -> bool:
        return book.lease is not None and book.lease.holder == self.holder

    def _prepared(self, book: Book) -> Book:
        """Store the problems of channels that cannot send, and postpone the messages of channels in quiet hours.

        A message may have been written before the quiet hours, and a failure may have delayed it. Messages for channels
        that no longer exist are dropped.
        """
        states, now = dict(book.channels), self.clock()
        quiet = {each.label: end for each in self.channels if (end := each.route.silent_until(now)) is not None}
        for channel in self.channels:
            state, problem = states.get(channel.label, ChannelState()), _problem(channel)
            if problem:
                since = state.failing_since if state.failing_since is not None else self.clock()
                states[channel.label] = replace(state, failing_since=since, error=problem)
            elif _is_unset(state):
                states[channel.label] = replace(state, failing_since=None, error="")
        known = {channel.label for channel in self.channels}
        states = {name: state for name, state in states.items() if name in known}
        waiting = (message for message in book.outbox if message.channel in known)
        outbox = tuple(replace(each, next_try=quiet.get(each.channel, min(each.next_try, now))) for each in waiting)
        return replace(book, channels=states, outbox=outbox)

    def _next(self, book: Book, tried: set[str]) -> IncidentMessage | None:
        """Return the next due message. A channel gets the messages of an incident in their order."""
        now, waiting = self.clock(), set[tuple[str, str]]()
        blocked = {each.channel for each in book.outbox if _pauses(book, each.channel, now)}
        # After a failure the other incidents go first: a message that fails each time must not hold them up.
        failed = {(each.channel, each.incident.id): each.attempts for each in book.outbox if each.attempts}
        for message in sorted(book.outbox, key=lambda m: (failed.get((m.channel, m.incident.id), 0), m.at)):
            place = (message.channel, message.incident.id)
            is_due = message.next_try <= now and message.channel not in blocked and not _lasts(message.pause_until, now)
            if is_due and place not in waiting and message.id not in tried:
                return message
            waiting.add(place)
        return None

    def _attempt(self, message: IncidentMessage) -> bool:
        """Try to send a message once. Return True if it was sent."""
        channel = next(each for each in self.channels if each.label == message.channel)
        began = self.store.change(lambda book: self._with_attempt(book, message.id))
        if not self._leads(began) or not any(each.id == message.id for each in began.outbox):
            return False  # another process has taken over
        incident = next((each for each in began.incidents if each.id == message.incident.id), message.incident)
        thread = incident.threads.get(message.channel, "")
        now = self.clock()
        try:
            if problem := _problem(channel):
                raise ChannelUnavailable(problem)
            thread = self._within_time(channel, Delivery(message, thread, now, self.settings))
        except MessageRefused as error:
            outcome = partial(self._given_up, message=message, said=_redacted(channel, str(error)))
        except ChannelUnavailable as error:
            said = _redacted(channel, str(error))
            outcome = partial(self._failed, message=message, said=said, error=error)
        except Exception as error:  # a user's own channel may raise anything
            said = _redacted(channel, f"{type(error).__name__}: {error}")
            outcome = partial(self._failed, message=message, said=said, error=None)
        else:
            outcome = partial(self._sent, message=message, thread=thread)
        self.store.change(outcome)
        return outcome.func == self._sent

    def _within_time(self, channel: Channel, delivery: Delivery) -> str:
        """Send a message, and return its thread.

        Raises:
            ChannelUnavailable: the attempt takes too long, or an earlier one has not ended: two at once could arrive
                in another order.
        """
        before = self._open.get(channel.label)
        if before is not None and before.is_open:
            raise ChannelUnavailable("the last attempt has not ended")
        attempt = self._open[channel.label] = LimitedCall[object](channel.label, partial(channel.send, delivery))
        if not attempt.wait(_LONGEST_ATTEMPT):
            raise ChannelUnavailable(f"no answer within {_LONGEST_ATTEMPT:.0f} s")
        try:
            thread = attempt.result()
        except SystemExit as error:
            raise RuntimeError(f"it called sys.exit({error.code!r})") from None
        # The message is sent, so an odd result of a user's own channel must not cause a repetition.
        return thread if isinstance(thread, str) and len(thread) <= _LONGEST_THREAD else ""

    def _with_attempt(self, book: Book, id_: str) -> Book:
        leased = self._leased(book)
        if not self._leads(leased):
            return book
        outbox = tuple(replace(each, attempts=each.attempts + 1) if each.id == id_ else each for each in leased.outbox)
        return replace(leased, outbox=outbox)

    def _sent(self, book: Book, message: IncidentMessage, thread: str) -> Book:
        now, state = self.clock(), book.channels.get(message.channel, ChannelState())
        state = replace(state, failing_since=None, error="", sent=state.sent + 1, last_sent_at=now)

        def _threaded(incident: Incident) -> Incident:
            step = TimelineStep(now, f"sent {message.kind}", message.channel)
            threads = incident.threads | ({message.channel: thread} if thread else {})
            return replace(incident, threads=threads, timeline=(*incident.timeline, step))

        return _without(book, message, state, _threaded)

    def _given_up(self, book: Book, message: IncidentMessage, said: str) -> Book:
        state = book.channels.get(message.channel, ChannelState())
        # A wrong key lets a channel refuse every message: until it takes one, it counts as failing.
        since = state.failing_since if state.failing_since is not None else self.clock()
        state = replace(state, failing_since=since, given_up=state.given_up + 1, error=f"refused: {said}")
        step = TimelineStep(self.clock(), f"given up {message.kind}", f"{message.channel}: {said}")
        return _without(book, message, state, lambda each: replace(each, timeline=(*each.timeline, step)))

    def _failed(self, book: Book, message: IncidentMessage, said: str, error: ChannelUnavailable | None) -> Book:
        now = self.clock()
        waited = now - max(message.at, message.next_try)  # quiet hours may last a weekend
        if waited > GIVEN_UP_SECONDS:
            return self._given_up(book, message, f"not sent for a day: {said}")
        attempts = next((each.attempts for each in book.outbox if each.id == message.id), 1)
        pause = growing_pause(attempts, _FIRST_PAUSE, _LONGEST_PAUSE)
        asked = error.retry_after if error is not None else None
        asked = asked if isinstance(asked, int | float) and math.isfinite(asked) else None
        state = book.channels.get(message.channel, ChannelState())
        if error is not None and error.is_busy and waited < _BUSY_SECONDS:
            state = replace(state, error=said)  # a channel that answers is not dead
        else:
            since = state.failing_since if state.failing_since is not None else now
            state = replace(state, failing_since=since, error=said)
        # If few messages fail, the fault may be in them: each has its own pause, and others are sent soon. If many do,
        # the next message would meet the same fault, and the pause of the channel grows, too.
        failing = {each.id for each in book.outbox if each.channel == message.channel and each.error} | {message.id}
        failing_for = now - state.failing_since if state.failing_since is not None else pause
        of_channel = _FIRST_PAUSE if len(failing) <= _FEW else min(max(_FIRST_PAUSE, failing_for), _LONGEST_PAUSE)
        state = replace(state, pause_until=now + (of_channel if asked is None else min(asked, _LONGEST_ASKED)))
        outbox = tuple(
            replace(each, error=said, pause_until=now + pause) if each.id == message.id else each
            for each in book.outbox
        )
        return replace(book, outbox=outbox, channels=book.channels | {message.channel: state})


def _problem(channel: Channel) -> str:
    """Return why a channel cannot send at all; empty if it can."""
    found: object = called(channel.problem)
    return _redacted(channel, str(found)) if found else ""


def _redacted(channel: Channel, said: str) -> str:
    """Return an error without the values of the channel's secrets."""
    found: object = called(channel.redacted, said)
    if isinstance(found, str):
        return one_line(found, _MOST_SAID)
    return "its error is not shown, because it may contain secrets: `redacted` of the channel fails"


def _pauses(book: Book, channel: str, now: float) -> bool:
    return _lasts(book.channels.get(channel, ChannelState()).pause_until, now)


def _lasts(pause_until: float, now: float) -> bool:
    """Return True during a pause. An end that is too far away was written before the clock was set back."""
    return now < pause_until <= now + _LONGEST_ASKED


def _is_unset(state: ChannelState) -> bool:
    """Return True if a variable of the channel was not set at the last check."""
    return UNSET in state.error


def _without(book: Book, message: IncidentMessage, state: ChannelState, change: Callable[[Incident], Incident]) -> Book:
    if not any(each.id == message.id for each in book.outbox):
        return book
    outbox = tuple(each for each in book.outbox if each.id != message.id)
    incidents = tuple(change(each) if each.id == message.incident.id else each for each in book.incidents)
    return replace(book, outbox=outbox, incidents=incidents, channels=book.channels | {message.channel: state})


def dead(book: Book, now: float) -> dict[str, str]:
    """Return the channels that have sent nothing for a minute since a failure or refusal, each with the reason."""
    return {
        name: state.error
        for name, state in book.channels.items()
        if state.failing_since is not None and now - state.failing_since >= DEAD_SECONDS
    }


def undelivered(book: Book, now: float) -> Iterable[IncidentMessage]:
    """Return the messages that wait longer than usual."""
    return (each for each in book.outbox if now - max(each.at, each.next_try) > DEAD_SECONDS)


def sent_by(channel: Channel, settings: Settings, now: float) -> str:
    """Send the two messages of a test incident: opened and closed. Return the error; empty if both were taken."""
    if problem := channel.problem():
        return problem
    cause = RootCause(CauseKind.PLATFORM, "test", "this is a test; nothing is late", now, remedy="nothing")
    id_ = incident_id(settings.code_location, cause.key, now)
    incident = Incident(id_, cause, now, timeline=(TimelineStep(now, "opened"),))
    closed = Incident(id_, cause, now, closed_at=now)
    messages = (
        IncidentMessage(f"{id_}-1", MessageKind.OPENED, channel.label, now, incident),
        IncidentMessage(f"{id_}-2", MessageKind.CLOSED, channel.label, now, closed),
    )
    thread = ""
    try:
        for message in messages:
            thread = channel.send(Delivery(message, thread, now, settings))
    except TidemarkError as error:
        return channel.redacted(str(error))
    except Exception as error:  # a user's own channel may raise anything, and the other channels are still tested
        return channel.redacted(f"{type(error).__name__}: {error}")
    return ""


def uncovered(assets: AnyGraph, channels: Sequence[Channel]) -> list[str]:
    """Return the assets with a contract that no channel gets incidents about."""
    nodes = [assets.get(key) for key in sorted(assets.get_all_asset_keys())]
    return [
        node.key.to_user_string()
        for node in nodes
        if node.freshness_policy is not None
        and not any(
            channel.route.takes_asset(node.key.to_user_string(), node.owners or (), node.group_name or "")
            for channel in channels
        )
    ]
