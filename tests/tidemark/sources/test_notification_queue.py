"""What is worked on stays hidden from other receivers, and nobody waits for it."""

import time

import pytest

from dagster_tidemark.sources.notification_queue import FakeMessageSource, QueueOutlet, holding
from tests.live.waiting import eventually


def test_held_messages_are_extended_until_the_work_ends() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with holding(queue, every_seconds=0.04) as hold:
        hold.add(queue.receive(0))
        eventually(lambda: queue.extended >= 3, seconds=30, every=0.01)
    extended = queue.extended
    time.sleep(0.1)
    assert queue.extended == extended


def test_messages_processed_at_once_are_not_extended() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with holding(queue) as hold:
        hold.add(queue.receive(0))
    assert queue.extended == 0


def test_failed_message_extension_ends_the_hold_but_not_the_work() -> None:
    class Away(FakeMessageSource):
        def extend(self, messages: object) -> None:
            raise ConnectionError("the queue is away")

    queue = Away()
    queue.send("a")
    with holding(queue, every_seconds=0.01) as hold:
        hold.add(queue.receive(0))
        eventually(lambda: "the queue is away" in str(hold.fault), seconds=30, every=0.01)


def test_message_received_too_often_becomes_a_dead_letter() -> None:
    queue = FakeMessageSource(max_receives=2)
    queue.send("a")
    for _ in range(2):
        assert [m.body for m in queue.receive(0)] == ["a"]
        queue.redeliver()
    assert (queue.waiting, [m.body for m in queue.dead]) == ([], ["a"])


def test_outlet_opens_its_queue_at_the_first_send_and_again_after_a_fault() -> None:
    class Away(FakeMessageSource):
        def send(self, bodies: object) -> None:
            raise ConnectionError("the queue is away")

    queue, opened = FakeMessageSource(), list[FakeMessageSource]()

    def connect() -> FakeMessageSource:
        opened.append(queue if opened else Away())
        return opened[-1]

    outlet = QueueOutlet(connect)
    assert not opened
    with pytest.raises(ConnectionError):
        outlet.send(["a"])
    outlet.send(["b"])
    outlet.send(["c"])
    assert ([message.body for message in queue.waiting], len(opened)) == (["b", "c"], 2)
