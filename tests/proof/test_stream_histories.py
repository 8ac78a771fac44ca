"""Fifty random histories of messages, corrections and shifts on the real thing; and an SQS that somebody else wrote."""

import pytest

from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.sqs import SqsQueue
from tests.proof.test_elasticmq import client, queue
from tests.tidemark.streams import toy
from tests.tidemark.streams.test_alert_reaction import Post, any_order, post

__all__ = ["client", "post", "queue"]


@pytest.mark.parametrize("seed", range(100, 150))
def test_any_order_of_messages_and_shifts_gives_the_same_alerts(post: Post, seed: int) -> None:
    any_order(post, seed)


def test_shift_works_with_another_sqs_implementation(cloud: Settings, queue: SqsQueue) -> None:
    stream = toy.stream(toy.new_name())
    bodies = [toy.ping(f"g{n}", minute=n % 50) for n in range(200)]
    queue.send([*bodies[:100], "junk", *bodies[100:]])
    shift = toy.shift(stream, cloud, [QueueInlet("sqs:elsewhere", lambda: queue)])
    while shift.step():
        pass
    assert sorted(row["gadget"] for row in toy.kept(stream, cloud)) == sorted(f"g{n}" for n in range(200))
    assert shift.counts.refused >= 1
