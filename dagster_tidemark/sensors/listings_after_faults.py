"""Listings of the newest partitions, once after a fault of the queue or the bucket.

SQS hides a message as soon as it executes a receive, also if the answer never reaches the receiver: the sensor gets the
message after its visibility timeout. Messages of partitions that could not be listed return after a pause of minutes.
Belongs here: which places are listed again without waiting for their messages. Does not belong here: the comparison
with the last observations (`sensors.change_detection`).
"""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from dagster_tidemark.event_log.observations import Ledger
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sensors.change_detection import DetectedChanges, look_at_days, observe
from dagster_tidemark.sensors.reconcile_schedules import last_days
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import Bucket, BucketUnavailable

Place = tuple[Feed, Partition]

_DAYS = 2  # today and yesterday, in UTC
_SECONDS = 10.0  # in one tick
_MOST_PLACES = 400
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 30.0
_BETWEEN_SECONDS = 60.0  # a queue may fail at every second tick, and hidden messages return by themselves


class ListingsAfterFaults:
    """Feeds and partitions that the sensor lists again.

    Args:
        lost_for: Seconds after the recovery during which lost receives may still take messages: the longest wait of a
            receive, because the queue may execute waiting requests only when it recovers. So the tick whose receive
            waited in vain also lists.
    """

    def __init__(self, feeds: Sequence[Feed], lost_for: float) -> None:
        self._feeds, self._lost_for = feeds, lost_for
        self._owed: list[Feed] = []
        self._due_at = float("inf")
        self._listed_at = float("-inf")
        self._places: dict[Place, tuple[datetime, str]] = {}
        self._failures = 0
        self._again_at = float("-inf")

    @property
    def unlisted(self) -> Mapping[Place, str]:
        """Partitions that could not be listed since their notification, with the reason."""
        return {place: why for place, (_, why) in self._places.items()}

    def note_fault(self) -> None:
        """Note that the queue did not answer: a message may be hidden, and no receiver has it."""
        self._owed, self._due_at = list(self._feeds), float("inf")

    def note_answer(self, begun: float) -> None:
        """Note that the queue answers again.

        Args:
            begun: Start of the answered request, by `time.monotonic`.
        """
        if self._owed:
            due_at = max(begun + self._lost_for, self._listed_at + _BETWEEN_SECONDS)
            self._due_at = min(self._due_at, due_at)

    def note_places(self, notified: Mapping[Place, datetime], failed: Mapping[Place, str]) -> None:
        """Note the notified partitions that could not be listed, and forget the listed ones."""
        for place in notified.keys() - failed.keys():
            self._places.pop(place, None)
        for place in notified.keys() & failed.keys():
            if place in self._places or len(self._places) < _MOST_PLACES:
                self._places[place] = notified[place], failed[place]
                self._put_off()

    def step(self, ledger: Ledger, bucket: Bucket) -> tuple[DetectedChanges, Collection[Feed]]:
        """List the due places for some seconds. Return the changes, and the feeds whose newest days were listed."""
        found, listed, end = DetectedChanges(), list[Feed](), time.monotonic() + _SECONDS
        if time.monotonic() < self._again_at:
            return found, listed
        if self._places:
            notified = {place: at for place, (at, _) in self._places.items()}
            found += observe(ledger, bucket, notified)
            self.note_places(notified, found.failed)
        while self._owed and self._due_at <= time.monotonic() < end:
            try:
                found += look_at_days(ledger, bucket, self._owed[0], last_days(_DAYS))
            except BucketUnavailable as fault:
                found.failed[self._owed[0], None] = str(fault)
                self._put_off()
                break
            listed.append(self._owed.pop(0))
            self._listed_at = time.monotonic()
        if not found.failed:
            self._failures = 0
        return found, listed

    def _put_off(self) -> None:
        """Pause, unless a pause has begun at this moment: many places may fail together."""
        if time.monotonic() >= self._again_at:
            self._failures += 1
            self._again_at = time.monotonic() + growing_pause(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)
