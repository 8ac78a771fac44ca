"""One-time downloads of the platform, and their progress on the console.

Belongs here: the jars that this start needs, and their progress. Does not belong here: the download itself
(`dagster_tidemark.local.spark.jars`).
"""

import time
from collections.abc import Callable
from functools import partial

from rich.console import Console

from dagster_tidemark.local.kafka.server import JARS as BROKER_JARS
from dagster_tidemark.local.spark.jars import KAFKA, LAKE, Report, fetch_jars
from dagster_tidemark.settings import Settings


def fetch_all_jars(settings: Settings, console: Console, *, own_kafka: bool) -> None:
    """Fetch the missing jars of all services that will start.

    Raises:
        JarsMissing: some could not be fetched.
    """
    for bundle, title, size, is_needed in (
        (LAKE, "Spark's jars", "80 MB", True),
        (BROKER_JARS, "Kafka's jars", "37 MB", own_kafka),
        (KAFKA, "Spark's jars for Kafka", "10 MB", settings.own_spark and settings.kafka_bootstrap_servers),
    ):
        if is_needed and not bundle.is_complete(settings):
            _fetch(console, title, size, partial(fetch_jars, settings, bundle))


def _fetch(console: Console, title: str, size: str, fetch: Callable[[Report], object]) -> None:
    with console.status(f"{title} (about {size}, once)") as status:
        shown = -1

        def report(count: int, total: int) -> None:
            nonlocal shown
            status.update(f"{title}: {count} of {total}")
            if not console.is_terminal and count // 10 > shown // 10:
                console.print(f"{title}: {count} of {total}")
            shown = max(shown, count)

        started = time.monotonic()
        fetch(report)
    console.print(f"{title} ({time.monotonic() - started:.1f} s)", highlight=False)
