"""Messages in the hands of one run: a queue in memory, and what a run does with them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dagster_tidemark.sources.notification_queue import FakeMessageSource
from dagster_tidemark.streams.messages_in_hand import InHand


@contextmanager
def in_hand(queue: FakeMessageSource, hold_seconds: float = 5) -> Iterator[InHand]:
    found = InHand(lambda: queue, hold_seconds=hold_seconds)
    try:
        yield found
    finally:
        found.close()


def test_waiting_messages_stay_hidden_and_finished_ones_are_not_extended() -> None:
    queue = FakeMessageSource()
    queue.send(["a", "b"])
    with in_hand(queue, 0.04) as hand:
        assert hand.receive(0) == 2
        done, waits = hand.due()
        hand.done(done)
        waits.again_in(60)
        assert hand.due() == []
        time.sleep(0.1)
        queue.hidden.clear()
        time.sleep(0.2)
        assert list(queue.hidden) == [waits.message.receipt]
    assert queue.hidden == {waits.message.receipt: 0}, "it is given back in the end"


def test_redelivered_message_that_is_still_held_counts_as_one() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with in_hand(queue) as hand:
        hand.receive(0)
        [held] = hand.due()
        held.looks = 3
        queue.redeliver()
        hand.receive(0)
        assert hand.due() == [held] and (held.looks, held.message.receives) == (3, 2)


def test_released_message_is_hidden_for_a_minute() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with in_hand(queue) as hand:
        hand.receive(0)
        [held] = hand.due()
        hand.let_go(held)
        assert hand.due() == [] and queue.hidden == {held.message.receipt: 60}


def test_failed_queue_is_opened_again_and_held_messages_stay_hidden() -> None:
    class FailsOnce(FakeMessageSource):
        fails = False

        def receive(self, wait_seconds: int) -> list:  # type: ignore[type-arg]
            if self.fails:
                self.fails = False
                raise ConnectionError("the queue is away")
            return super().receive(wait_seconds)

    queue = FailsOnce()
    queue.send("a")
    with in_hand(queue, 0.04) as hand:
        hand.receive(0)
        [held] = hand.due()
        queue.fails = True
        try:
            hand.receive(0)
            raise AssertionError("no fault")
        except ConnectionError:
            pass
        held.again_in(0.3)
        queue.hidden.clear()
        hand.receive(1)
        assert list(queue.hidden) == [held.message.receipt]


def test_wait_for_messages_ends_when_a_held_message_is_due() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with in_hand(queue) as hand:
        hand.receive(0)
        [held] = hand.due()
        held.again_in(0.2)
        began = time.monotonic()
        hand.receive(30)
        assert hand.due() == [held] and 0.15 < time.monotonic() - began < 5
