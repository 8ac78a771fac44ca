"""Complete listings of feeds that were never listed completely, some seconds in each tick of the landing sensor.

A new feed, prefix or key may have files that landed before its notifications. The schedule `reconcile_recent` lists
only the last days, and the next complete listing may be a day away. Belongs here: which feeds need a first listing, and
its slices. Does not belong here: complete listings at one go (`sensors.reconcile_schedules`), and the records
(`engine.complete_listings`).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import islice

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.engine.complete_listings import (
    FeedListing,
    note_listing,
    note_progress,
    place_of,
    read_listings,
)
from dagster_tidemark.engine.engine import reporting
from dagster_tidemark.event_log.observations import Ledger, Tags, source_key, version_of, when_listed
from dagster_tidemark.sensors.change_detection import DetectedChanges, changes, observe
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import Bucket, BucketUnavailable, Listing, version_of_listing
from dagster_tidemark.sources.partition_listing import Walk

SLICE_SECONDS = 5.0
_MOST_PARTITIONS = 400  # in a slice; each changed one is reported separately
_PAUSE_SECONDS = 30.0  # after a listing that failed
_DAY_SECONDS = 86_400.0


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
        self, instance: DagsterInstance, ledger: Ledger, bucket: Bucket, seconds: float = SLICE_SECONDS
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
        elif feed in self._told:  # a check reports the held removals, and all files are reported
            note_progress(instance, self._location, feed.name, self._places[feed], 0.0, "")
        self._told.pop(feed, None)

    def _tell(self, instance: DagsterInstance, feed: Feed, begun_at: float, progress: str) -> None:
        if self._told.get(feed) != progress:
            note_progress(instance, self._location, feed.name, self._places[feed], begun_at, progress)
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

    def advance(self, ledger: Ledger, bucket: Bucket, end: float) -> DetectedChanges:
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

    def _compare(self, ledger: Ledger, bucket: Bucket, listings: Mapping[Partition, Listing]) -> DetectedChanges:
        if not listings:
            return DetectedChanges()
        with reporting():
            seen = ledger.latest(self.feed, listings)
            older = {p for p in listings if self._is_older(seen.get(p, {}))}
            found = changes(self.feed, {p: of for p, of in listings.items() if p not in older}, seen, ledger)
            _report(ledger, found)
        # A page may be older than an observation that was made since: such partitions are listed again.
        differing = [p for p in older if version_of_listing(listings[p]) != version_of(seen[p])]
        now = datetime.now(UTC)
        return found + observe(ledger, bucket, {(self.feed, partition): now for partition in differing})

    def _end(self, ledger: Ledger) -> DetectedChanges:
        """Report the vanished partitions and the misplaced files."""
        with reporting():
            seen = ledger.latest(self.feed)
            vanished = [p for p, tags in seen.items() if p not in self._there and not self._is_older(tags)]
            listings = {partition: Listing((), self.walk.listed_at) for partition in vanished}
            found = changes(self.feed, listings, seen, ledger)
            _report(ledger, found)
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


def _report(ledger: Ledger, found: DetectedChanges) -> None:
    ledger.report(found.changed)
    for feed, alarm in found.alarms.items():
        ledger.tell(feed, alarm)
