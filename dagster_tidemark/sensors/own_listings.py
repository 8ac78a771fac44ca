"""The landing sensor's own listings, which no notification requests: of new feeds, and after a fault.

A new feed, prefix or key may have files that landed before its notifications. The schedule `reconcile_recent` lists
only the last days, and the next complete listing may be a day away. So the sensor lists such feeds completely, some
seconds in each tick.

SQS hides a message as soon as it executes a receive, also if the answer never reaches the receiver: the sensor gets the
message after its visibility timeout. Messages of partitions that could not be listed return after a pause of minutes.
So the sensor lists the newest partitions once after a fault of the queue or the bucket.

Belongs here: which feeds and partitions are listed, their state between ticks, and log lines. Does not belong here:
complete listings at one go (`sensors.reconcile_schedules`), the comparison with the last observations
(`sensors.change_detection`), and the records of listings (`engine.complete_listings`).
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import islice

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals.instance_store import identity_of
from dagster_tidemark.engine.complete_listings import (
    FeedListing,
    note_listing,
    note_progress,
    place_of,
    read_listings,
)
from dagster_tidemark.engine.engine import reporting
from dagster_tidemark.event_log.observations import ObservationLedger, Tags, source_key, version_of, when_listed
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sensors.change_detection import DetectedChanges, changes, look_at_days, observe, report_changes
from dagster_tidemark.sensors.reconcile_schedules import last_days
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import Bucket, BucketUnavailable, Listing, version_of_listing
from dagster_tidemark.sources.partition_listing import Walk

Place = tuple[Feed, Partition]

_LATE_SECONDS = 30.0  # a tick that has lasted so long lists nothing else

# First listings.
SLICE_SECONDS = 5.0
_MOST_PARTITIONS = 400  # in a slice; each changed one is reported separately
_PAUSE_SECONDS = 30.0  # after a listing that failed
_DAY_SECONDS = 86_400.0

# Listings after faults.
_FAULT_DAYS = 2  # today and yesterday, in UTC
_FAULT_SECONDS = 10.0  # in one tick
_MOST_PLACES = 400
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 30.0
_BETWEEN_SECONDS = 60.0  # a queue may fail at every second tick, and hidden messages return by themselves


class FirstListings:
    """The feeds of an instance that need a first listing, and the listing that is under way.

    After a restart of the code server a listing begins again: the reported partitions are then unchanged.

    Args:
        location: The code location, as in the keys of its records.
        bucket: Name of the bucket.
        start: First day with partitions.
    """

    def __init__(
        self, instance: DagsterInstance, location: str, feeds: Sequence[Feed], bucket: str, start: date
    ) -> None:
        self._location, self._start = location, start
        self._places = {feed: place_of(feed, bucket, start) for feed in feeds}
        known = read_listings(instance, location, [feed.name for feed in feeds])
        left = [feed for feed in feeds if known[feed.name].place != self._places[feed]]
        for feed in left:
            if known[feed.name] == FeedListing() and _is_older_than_records(instance, feed):
                note_listing(instance, location, feed.name, 0.0, self._places[feed])
                left = [other for other in left if other is not feed]
        self._left = left
        self._told: dict[Feed, str] = {}
        self._under_way: _FirstListing | None = None
        self._again_at = float("-inf")

    def step(
        self, instance: DagsterInstance, ledger: ObservationLedger, bucket: Bucket, seconds: float = SLICE_SECONDS
    ) -> tuple[DetectedChanges, list[str]]:
        """List for some seconds, report the changed partitions, and record the progress.

        Returns:
            The changes, and a sentence for each feed that was listed completely.
        """
        found, said, end = DetectedChanges(), list[str](), time.monotonic() + seconds
        if not self._left or time.monotonic() < self._again_at:
            return found, said
        begun = time.time()
        while self._left:
            feed = self._left[0]
            listing = self._under_way = self._under_way or _FirstListing(feed, Walk(bucket, feed, start=self._start))
            try:
                found += listing.advance(ledger, bucket, end)
            except BucketUnavailable as fault:
                # Other feeds may be listable. This one begins again.
                self._left = [*self._left[1:], feed]
                self._under_way, self._again_at = None, time.monotonic() + _PAUSE_SECONDS
                self._tell(instance, feed, listing.begun_at, f"it cannot be listed: {fault}")
                break
            except BaseException:  # the pages of this slice are not reported
                self._under_way = None
                raise
            if listing.is_complete:
                self._left, self._under_way = self._left[1:], None
                self._completed(instance, listing)
                said.append(f"feed {feed.name} was listed completely for the first time: {listing}")
            if time.monotonic() >= end:
                break
        for feed in self._left:
            if self._under_way is not None and feed is self._under_way.feed:
                self._tell(instance, feed, self._under_way.begun_at, f"{self._under_way} so far")
            elif feed not in self._told:
                self._tell(instance, feed, begun, "other feeds are listed first")
        return found, said

    def _completed(self, instance: DagsterInstance, listing: "_FirstListing") -> None:
        feed, held = listing.feed, listing.held
        if not held:
            note_listing(instance, self._location, feed.name, listing.begun_at, self._places[feed])
        elif feed in self._told:  # a check reports the removals that were held back
            note_progress(instance, self._location, feed.name, self._places[feed], begun_at=0.0, progress="")
        self._told.pop(feed, None)

    def _tell(self, instance: DagsterInstance, feed: Feed, begun_at: float, progress: str) -> None:
        if self._told.get(feed) != progress:
            note_progress(instance, self._location, feed.name, self._places[feed], begun_at=begun_at, progress=progress)
            self._told[feed] = progress


@dataclass
class _FirstListing:
    """The complete listing of a feed, page by page."""

    feed: Feed
    walk: Walk
    begun_at: float = field(default_factory=time.time)
    is_complete: bool = False
    held: int = 0
    files: int = 0
    _there: set[Partition] = field(default_factory=set)
    _pages: Iterator[list[tuple[Partition, Listing]]] = field(init=False)
    _waiting: dict[Partition, Listing] = field(default_factory=dict)  # listed, not compared yet

    def __post_init__(self) -> None:
        self._pages = self.walk.by_page()

    def __str__(self) -> str:
        return f"{self.files:,} files in {len(self._there):,} partitions"

    def advance(self, ledger: ObservationLedger, bucket: Bucket, end: float) -> DetectedChanges:
        """List pages until a time (by `time.monotonic`), and report the partitions that differ. Read at least one page.

        Raises:
            BucketUnavailable: the bucket does not answer. The listing cannot be continued.
        """
        is_read = False
        while len(self._waiting) < _MOST_PARTITIONS and not is_read:
            page = next(self._pages, None)
            self._waiting |= page or ()
            is_read = page is None
            if time.monotonic() >= end:
                break
        listings = dict(islice(self._waiting.items(), _MOST_PARTITIONS))
        found = self._compare(ledger, bucket, listings)
        if found.failed:
            raise BucketUnavailable(next(iter(found.failed.values())))
        self._there |= listings.keys()
        self.files += sum(len(listing.objects) for listing in listings.values())
        for partition in listings:
            del self._waiting[partition]
        if is_read and not self._waiting:
            self.is_complete = True
            found += self._end(ledger)
        self.held += found.held
        return found

    def _compare(
        self, ledger: ObservationLedger, bucket: Bucket, listings: Mapping[Partition, Listing]
    ) -> DetectedChanges:
        if not listings:
            return DetectedChanges()
        with reporting():
            seen = ledger.latest(self.feed, listings)
            older = {p for p in listings if self._is_older(seen.get(p, {}))}
            found = changes(self.feed, {p: of for p, of in listings.items() if p not in older}, seen, ledger)
            report_changes(ledger, found)
        # A page may be older than an observation that was made since: such partitions are listed again.
        differing = [p for p in older if version_of_listing(listings[p]) != version_of(seen[p])]
        now = datetime.now(UTC)
        return found + observe(ledger, bucket, {(self.feed, partition): now for partition in differing})

    def _end(self, ledger: ObservationLedger) -> DetectedChanges:
        """Report the vanished partitions and the misplaced files."""
        with reporting():
            seen = ledger.latest(self.feed)
            vanished = [p for p, tags in seen.items() if p not in self._there and not self._is_older(tags)]
            listings = {partition: Listing((), self.walk.listed_at) for partition in vanished}
            found = changes(self.feed, listings, seen, ledger)
            report_changes(ledger, found)
            # Folders that notifications have reported stay: their pages may have been read before.
            ledger.tell_misplaced(self.feed, {**(ledger.misplaced(self.feed) or {}), **self.walk.beside})
        return found

    def _is_older(self, before: Tags) -> bool:
        """Return True if this listing began before a partition was observed."""
        observed_at = when_listed(before)
        return observed_at is not None and observed_at >= self.walk.listed_at


def _is_older_than_records(instance: DagsterInstance, feed: Feed) -> bool:
    """Return True if a feed without a record was observed a day ago: an earlier release has then listed it at night."""
    before = time.time() - _DAY_SECONDS
    wanted = dg.AssetRecordsFilter(source_key(feed), before_timestamp=before)
    return bool(instance.fetch_observations(wanted, limit=1).records)


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

    def step(self, ledger: ObservationLedger, bucket: Bucket) -> tuple[DetectedChanges, Collection[Feed]]:
        """List the due places for some seconds. Return the changes, and the feeds whose newest days were listed."""
        found, listed, end = DetectedChanges(), list[Feed](), time.monotonic() + _FAULT_SECONDS
        if time.monotonic() < self._again_at:
            return found, listed
        if self._places:
            notified = {place: at for place, (at, _) in self._places.items()}
            found += observe(ledger, bucket, notified)
            self.note_places(notified, found.failed)
        while self._owed and self._due_at <= time.monotonic() < end:
            try:
                found += look_at_days(ledger, bucket, self._owed[0], last_days(_FAULT_DAYS))
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


@dataclass
class OwnListings:
    """The state of a bucket's listings in a code server."""

    first: FirstListings
    after_faults: ListingsAfterFaults
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of_location(
        cls, location: str, feeds: Sequence[Feed], start: date, *, lost_for: float
    ) -> Callable[[dg.DagsterInstance, str], "OwnListings"]:
        """Return a function that returns the state for an instance and the name of a bucket, always the same one.

        Args:
            location: The code location, as in the keys of its records.
            start: First day with partitions.
            lost_for: As in `ListingsAfterFaults`.
        """
        kept: dict[tuple[str, str], OwnListings] = {}  # a code server has one instance, tests have several

        def _of(instance: dg.DagsterInstance, bucket: str) -> OwnListings:
            key = identity_of(instance), bucket
            if key not in kept:
                kept[key] = cls(
                    FirstListings(instance, location, feeds, bucket, start), ListingsAfterFaults(feeds, lost_for)
                )
            return kept[key]

        return _of

    def step(
        self, context: dg.SensorEvaluationContext, ledger: ObservationLedger, bucket: Bucket, begun: float
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

    def _step(self, context: dg.SensorEvaluationContext, ledger: ObservationLedger, bucket: Bucket) -> DetectedChanges:
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
