"""Checks of a whole arrangement from the place where they are called: `tidemark doctor`.

One module for each part: `arrangement` (settings, packages, Dagster's instance), `catalog`, `spark`, `bucket`,
`queues` (with topics). Each check really uses its part, and leaves nothing behind. Belongs here: the list of all
checks, in the order of the report. Does not belong here: the state of contracts (`cli.status`), and printing
(`cli.doctor`).
"""

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
