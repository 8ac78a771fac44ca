"""All checks of a deployment, in the order of the report."""

from dataclasses import dataclass

from dagster_tidemark.doctor import arrangement, bucket, catalog, queues, spark
from dagster_tidemark.doctor.checks import Check
from dagster_tidemark.settings import Settings


@dataclass(frozen=True)
class Declared:
    """Queues and topics that the streams of a code location use.

    Args:
        received: Queues that are received from.
        sent: Queues that are only sent to.
        topics: Topics that are read.
    """

    received: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def checks_of(settings: Settings, declared: Declared) -> list[Check]:
    """Return the checks."""
    return [
        *arrangement.checks(settings),
        catalog.check(settings),
        *spark.checks(settings),
        bucket.check(settings),
        *queues.checks(settings, declared.received, declared.sent),
        *queues.topic_checks(settings, declared.topics),
    ]
