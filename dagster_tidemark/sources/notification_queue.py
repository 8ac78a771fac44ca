"""Interface of a notification queue, independent of the queue system, and a fake queue.

To add another system, write a class with the methods of `MessageSource` in a module next to `sources.sqs`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from dagster_tidemark.errors import Transient

LONGEST_MESSAGE = 250_000
"""Most bytes of a message to send: SQS accepts 256 KB. A longer one would never be sent, and would hold up others."""
HOLD_SECONDS = 20
"""Time that received messages stay hidden from other receivers. It is short, so that another receiver soon gets the
messages of a killed receiver. A live receiver extends this time (`Hold`)."""


_LATER = (60, 120, 240, 480, 900)
"""Seconds until a message that could not be processed is delivered again, by the number of its receives."""


@dataclass(frozen=True)
class Message:
    """A message that was received, for the `receives`-th time, and not deleted yet.

    Args:
        message_id: The message's id, the same at each receive.
        sent_at: The time when the queue accepted the message, in Unix seconds.
    """

    body: str
    receipt: str
    receives: int = 1
    message_id: str = ""
    sent_at: float = 0.0


def are_sent_since(messages: Sequence[Message], at: float) -> bool:
    """Return True if all messages were sent after a time (Unix seconds).

    A receiver that began at that time has then read, as far as the queue keeps an order, what waited before.
    """
    return all(message.sent_at >= at for message in messages)


class DeleteRefused(Transient):
    """The queue did not delete some messages. They are delivered again, which is harmless."""


class QueueUnavailable(Transient):
    """A queue does not answer, or refuses the request; the message names the queue."""


class MessageSource(Protocol):
    """A queue that redelivers undeleted messages, and gives up messages that were redelivered too often.

    All methods are thread-safe.
    """

    def receive(self, wait_seconds: int) -> list[Message]:
        """Receive messages, waiting up to `wait_seconds` for the first. They stay hidden for `HOLD_SECONDS`."""
        ...

    def extend(self, messages: Sequence[Message], seconds: int = HOLD_SECONDS) -> None:
        """Hide messages for `seconds` from now. If hiding fails, a message may harmlessly be delivered twice."""
        ...

    def delete(self, messages: Sequence[Message]) -> None:
        """Delete messages, so that they are never delivered again.

        Raises:
            DeleteRefused: some messages were not deleted. The others were.
        """
        ...

    def dead_letters(self) -> int | None:
        """Return the approximate number of messages that the queue has given up; None if it never gives any up.

        Raises:
            QueueUnavailable: the queue does not answer, or refuses the question.
        """
        ...


@runtime_checkable
class GivesUp(Protocol):
    """A source that gives up a message after a certain number of receives."""

    def most_receives(self) -> int | None:
        """Return the number of receives after which a message is not delivered again; None if there is no limit.

        Raises:
            QueueUnavailable: the source does not answer, or refuses the question.
        """
        ...


class MessageSink(Protocol):
    """A queue that messages are sent to."""

    def send(self, bodies: Sequence[str]) -> None:
        """Send messages, in order if the queue keeps an order.

        Raises:
            QueueUnavailable: some messages may not have been sent.
        """
        ...


class QueueOutlet:
    """Sends messages to a queue.

    Args:
        connect: Opens the queue. Called at the first use, and again after a fault.
    """

    def __init__(self, connect: Callable[[], MessageSink]) -> None:
        self.connect = connect
        self._queue: MessageSink | None = None

    def send(self, bodies: Sequence[str]) -> None:
        """Send messages, as a `MessageSink`."""
        self._queue = self._queue or self.connect()
        try:
            self._queue.send(bodies)
        except BaseException:  # a client in an unknown state is not used again
            self._queue = None
            raise


class Hold:
    """Keeps received messages hidden from other receivers while they are processed."""

    def __init__(self, queue: MessageSource, every_seconds: float) -> None:
        self.queue = queue
        self._every = every_seconds
        self._lock = threading.Lock()
        self._held: list[tuple[float, Sequence[Message]]] = []
        self._deferred: set[Message] = set()
        self._ended = threading.Event()
        self.fault: Exception | None = None  # the error that ended the extensions; messages may then be delivered again

    def add(self, messages: Sequence[Message]) -> None:
        """Keep messages hidden from now on, by regular extensions."""
        with self._lock:
            self._held.append((time.monotonic() + self._every, messages))

    def defer(self, messages: Sequence[Message]) -> None:
        """Delay the redelivery of messages that cannot be processed now: each receive counts towards a limit."""
        with self._lock:
            self._deferred |= set(messages)
        for seconds in sorted({_later(message) for message in messages}):
            self.queue.extend([message for message in messages if _later(message) == seconds], seconds)

    def release(self, messages: Sequence[Message]) -> None:
        """Stop keeping messages hidden."""
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
            except Exception as error:  # of any client; the code that uses this hold reads `fault`
                self.fault = error
                return


def _later(message: Message) -> int:
    return _LATER[min(message.receives, len(_LATER)) - 1]


@contextmanager
def holding(queue: MessageSource, every_seconds: float = HOLD_SECONDS / 3) -> Iterator[Hold]:
    """Keep the added messages hidden from other receivers until the block ends."""
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
    """A queue in memory, for tests. `redeliver` returns received and undeleted messages to the queue.

    Args:
        max_receives: The number of receives after which a message moves to `dead` instead.
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
