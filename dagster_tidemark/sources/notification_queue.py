"""What a queue of notifications has to offer, whatever system it is, and a fake of it.

To add another system, write a class with the methods of `MessageSource` beside `sources.sqs`.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from dagster_tidemark.errors import Transient

HOLD_SECONDS = 20
"""How long what was received stays hidden from other receivers. Short, so that a killed receiver's messages are soon
somebody else's; a receiver that lives extends it (`Hold`)."""


_LATER = (60, 120, 240, 480, 900)
"""Seconds after which a message that could not be followed comes back, by how often it was received."""


@dataclass(frozen=True)
class Message:
    """A message that was received, for the `receives`-th time, and not deleted yet.

    Args:
        message_id: The same each time it is received.
        sent_at: When the queue took it, in Unix seconds.
    """

    body: str
    receipt: str
    receives: int = 1
    message_id: str = ""
    sent_at: float = 0.0


class DeleteRefused(Transient):
    """The queue kept messages it was asked to delete. They come back, and are then found unchanged: harmless."""


class QueueUnavailable(Transient):
    """A queue does not answer, or refuses; the message says which."""


class MessageSource(Protocol):
    """A queue that redelivers what is not deleted, and gives up by itself on what is redelivered too often.

    All may be called from several threads at once.
    """

    def receive(self, wait_seconds: int) -> list[Message]:
        """Some messages, hidden from other receivers for `HOLD_SECONDS`; waits for the first at most so long."""
        ...

    def extend(self, messages: Sequence[Message], seconds: int = HOLD_SECONDS) -> None:
        """Hide these for so long from now on. One that cannot be hidden comes twice, which is harmless."""
        ...

    def delete(self, messages: Sequence[Message]) -> None:
        """Acknowledge: these are never delivered again.

        Raises:
            DeleteRefused: some will be. The others are deleted.
        """
        ...

    def dead_letters(self) -> int | None:
        """About how many messages the queue has given up; None if it never does.

        Raises:
            QueueUnavailable: nobody may ask, or gets an answer.
        """
        ...


@runtime_checkable
class GivesUp(Protocol):
    """A source with a limit of receives, after which it gives a message up."""

    def most_receives(self) -> int | None:
        """Return the number of receives after which a message does not come again; None if there is no limit.

        Raises:
            QueueUnavailable: the source does not answer, or refuses the question.
        """
        ...


class MessageSink(Protocol):
    """A queue that messages are sent to."""

    def send(self, bodies: Sequence[str]) -> None:
        """Send these, in their order as far as the queue keeps one.

        Raises:
            QueueUnavailable: some may not have been sent.
        """
        ...


class Hold:
    """Messages in hand, hidden from others while they are worked on."""

    def __init__(self, queue: MessageSource, every_seconds: float) -> None:
        self.queue = queue
        self._every = every_seconds
        self._lock = threading.Lock()
        self._held: list[tuple[float, Sequence[Message]]] = []
        self._deferred: set[Message] = set()
        self._ended = threading.Event()
        self.fault: Exception | None = None  # why extending ended early; what is held may come back

    def add(self, messages: Sequence[Message]) -> None:
        """From now on these are extended when it is time."""
        with self._lock:
            self._held.append((time.monotonic() + self._every, messages))

    def defer(self, messages: Sequence[Message]) -> None:
        """These come back later: what they ask for is not to be had now, and each receive is one less they have."""
        with self._lock:
            self._deferred |= set(messages)
        for seconds in sorted({_later(message) for message in messages}):
            self.queue.extend([message for message in messages if _later(message) == seconds], seconds)

    def release(self, messages: Sequence[Message]) -> None:
        """These are not extended any more."""
        gone = {message.receipt for message in messages}
        with self._lock:
            left = [(at, [m for m in some if m.receipt not in gone]) for at, some in self._held]
            self._held = [(at, some) for at, some in left if some]

    def _run(self) -> None:
        while not self._ended.wait(self._every / 4):
            now = time.monotonic()
            with self._lock:
                due = [m for at, messages in self._held if at <= now for m in messages if m not in self._deferred]
                self._held = [(at, m) if at > now else (now + self._every, m) for at, m in self._held]
            try:
                self.queue.extend(due)
            except Exception as error:
                self.fault = error
                return


def _later(message: Message) -> int:
    return _LATER[min(message.receives, len(_LATER)) - 1]


@contextmanager
def holding(queue: MessageSource, every_seconds: float = HOLD_SECONDS / 3) -> Iterator[Hold]:
    """Keep what is added hidden from other receivers until the block ends."""
    hold = Hold(queue, every_seconds)
    thread = threading.Thread(target=hold._run, name="hold", daemon=True)
    thread.start()
    try:
        yield hold
    finally:
        hold._ended.set()
        thread.join()


@dataclass
class FakeMessageSource:
    """A queue in memory, for tests: what was received and not deleted comes back with `redeliver`.

    Args:
        max_receives: After so many receives a message goes to `dead` instead.
    """

    waiting: list[Message] = field(default_factory=list)
    in_flight: dict[str, Message] = field(default_factory=dict)
    dead: list[Message] = field(default_factory=list)
    max_receives: int = 5
    sent: int = 0
    extended: int = 0
    hidden: dict[str, int] = field(default_factory=dict)
    _receives: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, bodies: str | Sequence[str]) -> None:
        for body in [bodies] if isinstance(bodies, str) else bodies:
            self.sent += 1
            message_id = f"message-{self.sent}"
            self.waiting.append(Message(body, receipt=str(self.sent), message_id=message_id, sent_at=time.time()))

    def receive(self, wait_seconds: int) -> list[Message]:
        with self._lock:
            received, self.waiting = self.waiting[:10], self.waiting[10:]
            for message in received:
                self._receives[message.receipt] = self._receives.get(message.receipt, 0) + 1
            received = [replace(message, receives=self._receives[message.receipt]) for message in received]
            self.in_flight.update({message.receipt: message for message in received})
            return received

    def extend(self, messages: Sequence[Message], seconds: int = HOLD_SECONDS) -> None:
        self.extended += len(messages)
        self.hidden |= {message.receipt: seconds for message in messages}

    def delete(self, messages: Sequence[Message]) -> None:
        with self._lock:
            for message in messages:
                self.in_flight.pop(message.receipt, None)

    def dead_letters(self) -> int | None:
        return len(self.dead)

    def most_receives(self) -> int | None:
        return self.max_receives

    def redeliver(self) -> None:
        with self._lock:
            for message in self.in_flight.values():
                gone = self._receives[message.receipt] >= self.max_receives
                (self.dead if gone else self.waiting).append(message)
            self.in_flight = {}
