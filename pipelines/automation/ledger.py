"""Where observations of the landing bucket are written down, and how they are read again.

Belongs here: the event log as seen by those who look at the bucket, and what an observation's tags say. Does not
belong here: what is observed (`automation.observing`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

import dagster as dg
from dagster import DagsterInstance

from pipelines.automation import adapter
from pipelines.boundaries import reached
from pipelines.sources.feed import Feed, Partition
from pipelines.sources.listing import NO_FILES

Tags = Mapping[str, str]
ALARM = "alarm"
ACCEPTED_SUFFIX = "-accepted"
"""Beside the version of no files: what was held back in a load is news once it is accepted."""


class Ledger(Protocol):
    """Where observations are written down."""

    def latest(self, feed: Feed, partitions: Collection[Partition] | None = None) -> Mapping[Partition, Tags]:
        """The tags of the latest observation of each of these partitions, or of all."""
        ...

    def report(self, observations: Sequence[dg.AssetObservation]) -> None:
        """Write these down; they are durable when this returns."""
        ...

    def tell(self, feed: Feed, alarm: str | None) -> None:
        """Let the check on removals fail with an alarm, or pass; unchanged, nothing is written."""
        ...


class EventLog:
    """The ledger of a Dagster instance: its event log."""

    def __init__(self, instance: DagsterInstance) -> None:
        self._instance = instance

    def latest(self, feed: Feed, partitions: Collection[Partition] | None = None) -> Mapping[Partition, Tags]:
        wanted = {p for p in partitions or () if p is not None} or None
        return adapter.latest_observations(self._instance, source_key(feed), wanted)

    def report(self, observations: Sequence[dg.AssetObservation]) -> None:
        for observation in observations:
            self._instance.report_runless_asset_event(observation)
            reached("after_observation")

    def tell(self, feed: Feed, alarm: str | None) -> None:
        key = removals_check(feed)
        said = adapter.latest_check_metadata(self._instance, key)
        if said is not None and alarm == said.get(ALARM):
            return
        evaluation = dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=alarm is None,
            description=alarm,
            metadata={ALARM: alarm} if alarm else {},
        )
        self._instance.report_runless_asset_event(evaluation)


def holds_files(tags: Tags) -> bool:
    """Whether a partition held files when it was observed with these tags."""
    return version_of(tags) != NO_FILES


def removals_check(feed: Feed) -> dg.AssetCheckKey:
    """The check that fails while removals of a feed are held."""
    return dg.AssetCheckKey(source_key(feed), "removals")


def source_key(feed: Feed) -> dg.AssetKey:
    """The source asset of a feed."""
    return dg.AssetKey(["raw", feed.name])


def version_of(tags: Tags) -> str:
    """The data version an observation with these tags saw."""
    return tags.get(adapter.DATA_VERSION, NO_FILES).removesuffix(ACCEPTED_SUFFIX)


def when_listed(tags: Tags) -> datetime | None:
    """When it was listed, UTC."""
    return datetime.fromtimestamp(float(tags[adapter.LISTED_AT]), UTC) if adapter.LISTED_AT in tags else None
