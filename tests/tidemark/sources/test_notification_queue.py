"""What is worked on stays hidden from other receivers, and nobody waits for it."""

import time

from dagster_tidemark.sources.notification_queue import FakeMessageSource, holding


def test_what_is_in_hand_is_extended_until_it_is_done() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with holding(queue, every_seconds=0.04) as hold:
        hold.add(queue.receive(0))
        time.sleep(0.3)
    assert queue.extended >= 3
    extended = queue.extended
    time.sleep(0.1)
    assert queue.extended == extended


def test_what_was_done_at_once_is_not_extended() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with holding(queue) as hold:
        hold.add(queue.receive(0))
    assert queue.extended == 0


def test_a_queue_that_does_not_answer_ends_the_holding_and_not_the_work() -> None:
    class Away(FakeMessageSource):
        def extend(self, messages: object) -> None:
            raise ConnectionError("the queue is away")

    queue = Away()
    queue.send("a")
    with holding(queue, every_seconds=0.01) as hold:
        hold.add(queue.receive(0))
        time.sleep(0.1)
    assert "the queue is away" in str(hold.fault)


def test_a_message_received_too_often_is_dead() -> None:
    queue = FakeMessageSource(max_receives=2)
    queue.send("a")
    for _ in range(2):
        assert [m.body for m in queue.receive(0)] == ["a"]
        queue.redeliver()
    assert (queue.waiting, [m.body for m in queue.dead]) == ([], ["a"])
