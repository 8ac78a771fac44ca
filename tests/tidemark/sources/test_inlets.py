"""Messages in the hands of one run: a queue in memory, and what a run does with them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import DeleteRefused, FakeMessageSource, Message
from dagster_tidemark.sources.received_messages import ReceivedBatch


@contextmanager
def opened(queue: FakeMessageSource, hold_seconds: float = 5, at_once: int = 500) -> Iterator[QueueInlet]:
    found = QueueInlet("memory:pings", lambda: queue, hold_seconds=hold_seconds, at_once=at_once)
    try:
        yield found
    finally:
        found.close()


def received(inlet: QueueInlet) -> ReceivedBatch:
    batch = inlet.receive(None, 0)
    assert batch is not None
    return batch


def bodies(inlet: QueueInlet) -> list[bytes]:
    return [record.body for record in received(inlet).records]


def test_waiting_messages_stay_hidden_and_finished_ones_are_not_extended() -> None:
    queue = FakeMessageSource()
    queue.send(["a", "b"])
    with opened(queue, 0.04) as inlet:
        done, waits = received(inlet).records
        inlet.delete([done.message_id])
        receipt = queue.in_flight.keys() - {"1"}
        time.sleep(0.1)
        queue.hidden.clear()
        time.sleep(0.2)
        assert queue.hidden.keys() == receipt
        assert [record.message_id for record in received(inlet).records] == [waits.message_id]
    assert queue.hidden == dict.fromkeys(receipt, 0), "it is given back in the end"


def test_redelivered_message_that_is_still_held_counts_as_one() -> None:
    queue = FakeMessageSource(max_receives=2)
    queue.send("a")
    with opened(queue) as inlet:
        [first] = received(inlet).records
        queue.redeliver()
        [again] = received(inlet).records
        assert (again.message_id, first.comes_again, again.comes_again) == (first.message_id, True, False)


def test_message_that_is_given_up_is_hidden_for_a_minute() -> None:
    queue = FakeMessageSource()
    queue.send("a")
    with opened(queue) as inlet:
        [record] = received(inlet).records
        inlet.give_up(record.message_id)
        assert inlet.receive(None, 0) is None and queue.hidden == {"1": 60}


def test_failed_queue_is_opened_again_and_held_messages_stay_hidden() -> None:
    class FailsOnce(FakeMessageSource):
        fails = False

        def receive(self, wait_seconds: int) -> list[Message]:
            if self.fails:
                self.fails = False
                raise ConnectionError("the queue is away")
            return super().receive(wait_seconds)

    queue = FailsOnce()
    queue.send("a")
    with opened(queue, 0.04) as inlet:
        received(inlet)
        queue.fails = True
        with pytest.raises(ConnectionError):
            inlet.receive(None, 0)
        queue.hidden.clear()
        assert bodies(inlet) == [b"a"]
        time.sleep(0.2)
        assert queue.hidden.keys() == {"1"}


def test_messages_that_were_not_acknowledged_are_part_of_the_next_batch() -> None:
    queue = FakeMessageSource()
    queue.send(["a", "b"])
    with opened(queue) as inlet:
        assert bodies(inlet) == [b"a", b"b"]
        queue.send("c")
        batch = received(inlet)
        assert [record.body for record in batch.records] == [b"a", b"b", b"c"]
        inlet.acknowledge(batch)
        assert inlet.receive(None, 0) is None and queue.in_flight == {}


def test_refused_message_leaves_the_hand_and_is_not_deleted() -> None:
    queue = FakeMessageSource()
    queue.send(["a", "b"])
    with opened(queue) as inlet:
        batch = received(inlet)
        inlet.acknowledge(batch, {batch.records[0].message_id})
        assert inlet.receive(None, 0) is None and queue.in_flight.keys() == {"1"}


@pytest.mark.parametrize(("error", "stays"), [(ConnectionError("away"), True), (DeleteRefused("no"), False)])
def test_message_stays_in_hand_if_the_queue_does_not_answer_its_deletion(error: Exception, *, stays: bool) -> None:
    class DoesNotDelete(FakeMessageSource):
        def delete(self, messages: Sequence[Message]) -> None:
            raise error

    queue = DoesNotDelete()
    queue.send("a")
    with opened(queue) as inlet:
        with pytest.raises(type(error)):
            inlet.acknowledge(received(inlet))
        assert (inlet.receive(None, 0) is not None) is stays


def test_receive_ends_after_the_wanted_number_of_new_messages() -> None:
    queue = FakeMessageSource()
    queue.send([str(n) for n in range(25)])
    with opened(queue, at_once=1) as inlet:
        assert [len(received(inlet).records) for _ in range(3)] == [10, 20, 25]
