"""What a queue of notifications has to offer, whatever system it is, and a fake of it."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """A message that was received and not deleted yet."""

    body: str
    receipt: str


class MessageSource(Protocol):
    """A queue that redelivers what is not deleted."""

    def receive(self, wait_seconds: int) -> list[Message]:
        """Up to ten messages; waits for the first one at most so long."""
        ...

    def delete(self, messages: list[Message]) -> None:
        """Acknowledge: these are never delivered again."""
        ...


@dataclass
class FakeMessageSource:
    """A queue in memory, for tests: what was received and not deleted comes back with `redeliver`."""

    waiting: list[Message] = field(default_factory=list)
    in_flight: dict[str, Message] = field(default_factory=dict)
    sent: int = 0

    def send(self, body: str) -> None:
        self.sent += 1
        self.waiting.append(Message(body, receipt=str(self.sent)))

    def receive(self, wait_seconds: int) -> list[Message]:
        received, self.waiting = self.waiting[:10], self.waiting[10:]
        self.in_flight.update({message.receipt: message for message in received})
        return received

    def delete(self, messages: list[Message]) -> None:
        for message in messages:
            del self.in_flight[message.receipt]

    def redeliver(self) -> None:
        self.waiting += self.in_flight.values()
        self.in_flight = {}
