"""The listings that the landing sensor makes without a notification, after it has processed those of a tick.

Belongs here: their state between ticks, and their log lines. Does not belong here: the choice of files
(`sensors.first_listings`, `sensors.listings_after_faults`).
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

import dagster as dg

from dagster_tidemark.dagster_internals.instance_store import identity_of
from dagster_tidemark.event_log.observations import Ledger
from dagster_tidemark.sensors.change_detection import DetectedChanges
from dagster_tidemark.sensors.first_listings import FirstListings
from dagster_tidemark.sensors.listings_after_faults import ListingsAfterFaults
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import Bucket

_LATE_SECONDS = 30.0  # a tick that has lasted so long lists nothing else


@dataclass
class ListingsBeside:
    """The state of a bucket's listings in a code server."""

    first: FirstListings
    after_faults: ListingsAfterFaults
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of_location(
        cls, location: str, feeds: Sequence[Feed], start: date, *, lost_for: float
    ) -> Callable[[dg.DagsterInstance, str], "ListingsBeside"]:
        """Return a function that returns the state for an instance and the name of a bucket, always the same one.

        Args:
            location: The code location, as in the keys of its records.
            start: First day with partitions.
            lost_for: As in `ListingsAfterFaults`.
        """
        kept: dict[tuple[str, str], ListingsBeside] = {}  # a code server has one instance, tests have several

        def _beside(instance: dg.DagsterInstance, bucket: str) -> ListingsBeside:
            key = identity_of(instance), bucket
            if key not in kept:
                kept[key] = cls(
                    FirstListings(instance, location, feeds, bucket, start), ListingsAfterFaults(feeds, lost_for)
                )
            return kept[key]

        return _beside

    def step(
        self, context: dg.SensorEvaluationContext, ledger: Ledger, bucket: Bucket, begun: float
    ) -> DetectedChanges:
        """List the due places for some seconds, and log the results.

        Args:
            begun: Start of the tick, by `time.monotonic`.
        """
        # A tick that Dagster has given up on may still be listing.
        if time.monotonic() - begun > _LATE_SECONDS or not self._lock.acquire(blocking=False):
            return DetectedChanges()
        try:
            return self._step(context, ledger, bucket)
        finally:
            self._lock.release()

    def _step(self, context: dg.SensorEvaluationContext, ledger: Ledger, bucket: Bucket) -> DetectedChanges:
        found, listed = self.after_faults.step(ledger, bucket)
        if listed:
            names = ", ".join(feed.name for feed in listed)
            context.log.info(f"listed after a fault: {names}; {len(found.changed)} partitions changed")
        of_first, said = self.first.step(context.instance, ledger, bucket)
        for sentence in said:
            context.log.info(sentence)
        found += of_first
        for alarm in found.alarms.values():
            context.log.error(alarm)
        return found
