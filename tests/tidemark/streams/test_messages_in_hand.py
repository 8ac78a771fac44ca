"""Messages that a run at deliveries has in hand, from a queue in memory."""

import time
from typing import Any, cast

from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import FakeMessageSource
from dagster_tidemark.streams.deliveries.worker import Delivering, MessageInHand
from tests.tidemark.streams import toy


def held_by(queue: FakeMessageSource) -> tuple[Delivering, MessageInHand]:
    """A run with one message in hand."""
    queue.send("a")
    inlet = QueueInlet("memory:deliveries", lambda: queue)
    run = Delivering(cast("Any", None), inlet, FakeMessageSource(), toy.Heard(), lambda: None)
    run._receive()
    [held] = run._held.values()
    return run, held


def test_redelivered_message_keeps_its_history() -> None:
    queue = FakeMessageSource()
    run, held = held_by(queue)
    held.looks = 3
    queue.redeliver()
    run._receive()
    assert list(run._held.values()) == [held] and held.looks == 3
    run.inlet.close()


def test_wait_for_messages_ends_when_a_held_message_is_due() -> None:
    run, held = held_by(FakeMessageSource())
    held.chore.again_at = time.monotonic() + 0.2
    began = time.monotonic()
    run._receive()
    assert held.chore.again_at <= time.monotonic() and 0.15 < time.monotonic() - began < 1.5
    run.inlet.close()


def test_message_that_fails_in_the_run_is_given_up_after_three_tries() -> None:
    queue = FakeMessageSource()
    run, held = held_by(queue)  # it has no verdicts, so that each try raises
    while not run.counts.failed:
        held.chore.again_at = 0.0
        run._try(held)
    assert (held.chore.failures, run._held, queue.hidden) == (3, {}, {"1": 60})
    run.inlet.close()
