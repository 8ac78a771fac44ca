"""Topics on Kafka: that each exists, and that its partitions have leaders."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial

from dagster_tidemark.doctor.checks import Check, CheckFailed
from dagster_tidemark.settings import Settings


def checks(settings: Settings, topics: Iterable[str]) -> Iterator[Check]:
    """Yield a check for each topic; none if Kafka is off."""
    for topic in topics:
        remedy = (
            f"create the topic {topic}, or correct TIDEMARK_KAFKA_BOOTSTRAP_SERVERS={settings.kafka_bootstrap_servers}"
        )
        yield Check(f"topic {topic}", partial(described, settings, topic), remedy)


def described(settings: Settings, topic: str) -> str:
    """Describe a topic.

    Raises:
        CheckFailed: partitions have no leader.
        KafkaUnavailable, TopicUnknown, KafkaRefused: the topic cannot be described.
    """
    from dagster_tidemark.sources.kafka_client import KafkaClient

    with closing(KafkaClient(settings.kafka_options(), topic)) as client:
        found = client.look()
    if found.leaderless:
        raise CheckFailed(f"{len(found.leaderless)} partitions have no leader", "start the brokers that hold them")
    return f"{len(found.partitions)} partitions"
