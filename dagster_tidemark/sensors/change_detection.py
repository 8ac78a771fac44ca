"""Change detection in the landing bucket: from a listing to an observation.

The landing sensor, a reconcile, the button "Observe" and the start of the platform list objects, compute the same
version, and report the partitions whose version differs from the last observed one. Belongs here: that comparison, also
for vanished files. Does not belong here: the callers, and the choice of partitions to list.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from time import monotonic
from typing import TypeVar

import dagster as dg

from dagster_tidemark.engine.engine import reporting
from dagster_tidemark.event_log.observations import (
    CONTENT,
    ObservationLedger,
    Tags,
    holds_files,
    source_key,
    version_of,
    when_listed,
)
from dagster_tidemark.failpoints import reached
from dagster_tidemark.sources import removals
from dagster_tidemark.sources.feed import Feed, Grain, Partition
from dagster_tidemark.sources.listing import (
    ACCEPTED_SUFFIX,
    AGAIN_SUFFIX,
    Bucket,
    BucketUnavailable,
    Listing,
    arrival,
    content_of,
    version_of_listing,
)
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.sources.partition_listing import Walk, look, look_at_each, look_beside
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, LISTED_AT, OUTCOME

T = TypeVar("T")
_MOST_FAULTS = 50
_MOST_SECONDS_OF_FAULTS = 15.0  # a folder that does not answer may take 40 s, and Dagster gives up on a tick after 60


@dataclass
class DetectedChanges:
    """Result of comparing listings with the last observations.

    Args:
        changed: An observation for each partition that differs from its last observation.
        alarms: The reason why some vanished partitions of a feed are held and not in `changed`, by feed.
        held: The number of held partitions: their removal waits, see `sources.removals`.
        failed: Partitions and misplaced folders that could not be listed, with the reason.
    """

    changed: list[dg.AssetObservation] = field(default_factory=list)
    alarms: dict[Feed, str] = field(default_factory=dict)
    held: int = 0
    failed: dict[tuple[Feed, str | None], str] = field(default_factory=dict)

    def __add__(self, other: "DetectedChanges") -> "DetectedChanges":
        return DetectedChanges(
            self.changed + other.changed,
            self.alarms | other.alarms,
            self.held + other.held,
            self.failed | other.failed,
        )


def observe(
    ledger: ObservationLedger, bucket: Bucket, notified: Mapping[tuple[Feed, Partition], datetime]
) -> DetectedChanges:
    """List notified partitions again, and report the changed ones."""
    looked: dict[Feed, dict[Partition, Listing]] = {}
    found = DetectedChanges()
    patience = _Patience(bucket)
    for feed, partition in notified:
        if (listing := patience.look(feed, partition)) is not None:
            looked.setdefault(feed, {})[partition] = listing
            reached("after_listing")
    with reporting():  # if two threads compare at once, the second must use the report of the first
        for feed, listings in looked.items():
            told = {p: at for (f, p), at in notified.items() if f == feed}
            seen = ledger.latest(feed, listings)
            for partition in [p for p, listing in listings.items() if _is_older(listing, seen.get(p, {}))]:
                # A later listing was reported first, or the server's clock is slow.
                del listings[partition]
                if (again := patience.look(feed, partition)) is not None:
                    listings[partition] = _not_before(again, seen[partition])
            found += changes(feed, listings, seen, ledger, notified=told)
        report_changes(ledger, found)
    found.failed |= patience.failed
    return found


def observe_beside(
    ledger: ObservationLedger, bucket: Bucket, folders: Mapping[Feed, Collection[str]]
) -> DetectedChanges:
    """List the misplaced folders that notifications named, and report their objects in the check `misplaced`."""
    patience = _Patience(bucket)
    for feed, names in folders.items():
        beside: dict[str, Misplaced] = {}
        for name in sorted(names):
            found = patience.ask(feed, name, partial(look_beside, bucket, feed, name, start=ledger.start))
            beside |= found or {}
        looked_at = {name for name in names if (feed, name) not in patience.failed}
        if looked_at:
            with reporting():
                said = ledger.misplaced(feed) or {}
                ledger.tell_misplaced(feed, {n: m for n, m in said.items() if n not in looked_at} | beside)
    return DetectedChanges(failed=patience.failed)


class _Patience:
    """Lister of partitions that gives up if the bucket is unreachable, or if too many requests fail.

    `failed` contains the places that could not be listed, with the reason.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.failed: dict[tuple[Feed, str | None], str] = {}
        self._bucket = bucket
        self._seconds = 0.0
        self._given_up: str | None = None

    def look(self, feed: Feed, partition: Partition) -> Listing | None:
        """Return the listing of a partition; None if the request fails or the bucket was given up."""
        return self.ask(feed, partition, partial(look, self._bucket, feed, partition))

    def ask(self, feed: Feed, place: str | None, question: Callable[[], T]) -> T | None:
        """Return the bucket's answer about a place; None if the request fails or the bucket was given up."""
        if self._given_up is None:
            begun = monotonic()
            try:
                return question()
            except BucketUnavailable as fault:
                self.failed[feed, place] = str(fault)
                self._given_up = self._why_to_give_up(fault, monotonic() - begun)
        else:
            self.failed[feed, place] = self._given_up
        return None

    def _why_to_give_up(self, fault: BucketUnavailable, seconds: float) -> str | None:
        self._seconds += seconds
        if len(self.failed) >= _MOST_FAULTS or self._seconds >= _MOST_SECONDS_OF_FAULTS:
            return str(fault)
        try:
            self._bucket.probe()
        except BucketUnavailable as away:
            return str(away)
        return None


def ask_again(
    ledger: ObservationLedger, bucket: Bucket, feed: Feed, partitions: Collection[Partition]
) -> DetectedChanges:
    """Report partitions as changed, even if they are unchanged, so that a load reads them again.

    Raises:
        BucketUnavailable: the bucket does not answer. Nothing was reported.
    """
    looked = look_at_each(bucket, feed, partitions)
    with reporting():
        seen = ledger.latest(feed, looked)
        listings = {p: _not_before(listing, seen.get(p, {})) for p, listing in looked.items()}
        found = changes(feed, listings, seen, ledger)
        changed = {observation.partition for observation in found.changed}
        for partition, listing in listings.items():
            if partition not in changed and listing.objects:
                again = _observation(feed, partition, listing, listing.listed_at, {})
                tags = dict(again.tags) | {DATA_VERSION: _asked_again(again.tags, seen.get(partition, {}))}
                found.changed.append(again._replace(tags=tags))
        report_changes(ledger, found)
    return found


def _asked_again(tags: Tags, before: Tags) -> str:
    """Return a data version that differs from the last one although the files do not."""
    times = before.get(DATA_VERSION, "").partition(AGAIN_SUFFIX)[2]
    return f"{version_of(tags)}{AGAIN_SUFFIX}{int(times) + 1 if times.isdecimal() else 1}"


def look_at_feed(
    ledger: ObservationLedger,
    bucket: Bucket,
    feed: Feed,
    *,
    accept_removals: bool = False,
    report: bool = True,
) -> DetectedChanges:
    """List a whole feed, by one LIST, and report the partitions that differ from their last observation.

    Raises:
        BucketUnavailable: the bucket does not answer.
    """
    found = _compare(
        ledger, feed, Walk(bucket, feed, start=ledger.start), accept_removals=accept_removals, report=report
    )
    if report and not found.alarms:
        ledger.tell(feed, None)
    return found


def look_at_days(
    ledger: ObservationLedger,
    bucket: Bucket,
    feed: Feed,
    days: Collection[date],
    *,
    accept_removals: bool = False,
) -> DetectedChanges:
    """List some days (UTC) of a feed and report the changed partitions.

    A day takes one LIST, or one for each key if the folders of keys are above the folder of the day. A feed without a
    time dimension is listed as a whole.
    """
    if feed.grain is Grain.NONE:
        return look_at_feed(ledger, bucket, feed, accept_removals=accept_removals)
    found = DetectedChanges()
    local = dict.fromkeys(each for day in days for each in feed.layout.times.local_days(day))
    # Several days may belong to one week or month.
    parts = {tuple(feed.prefixes_of_day(day)): feed.partitions_of(day) for day in local}
    for prefixes, partitions in parts.items():
        walk = Walk(bucket, feed, start=ledger.start, prefixes=prefixes)
        found += _compare(ledger, feed, walk, partitions, prefixes, accept_removals=accept_removals)
    return found


def _compare(
    ledger: ObservationLedger,
    feed: Feed,
    walk: Walk,
    partitions: Collection[Partition] | None = None,
    prefixes: tuple[str, ...] = ("",),
    *,
    accept_removals: bool,
    report: bool = True,
) -> DetectedChanges:
    with reporting():
        seen = ledger.latest(feed, partitions)
        # Keep listings of changed partitions only, to save memory.
        there: set[Partition] = set()
        differing: dict[Partition, Listing] = {}
        for partition, listing in walk:
            there.add(partition)
            if _differs(listing, before := seen.get(partition, {})):
                differing[partition] = _not_before(listing, before)
        gone = {p: _not_before(Listing((), walk.listed_at), seen[p]) for p in seen if p not in there}
        found = changes(feed, differing | gone, seen, ledger, accept_removals=accept_removals)
        if report:
            report_changes(ledger, found)
            said = ledger.misplaced(feed)
            elsewhere = {name: of for name, of in (said or {}).items() if not name.startswith(prefixes)}
            ledger.tell_misplaced(feed, elsewhere | walk.beside)
    return found


def report_changes(ledger: ObservationLedger, found: DetectedChanges) -> None:
    """Report the changed partitions, and the alarms about feeds."""
    ledger.report(found.changed)
    for feed, alarm in found.alarms.items():
        ledger.tell(feed, alarm)


def changes(
    feed: Feed,
    listings: Mapping[Partition, Listing],
    seen: Mapping[Partition, Tags],
    ledger: ObservationLedger,
    *,
    notified: Mapping[Partition, datetime] | None = None,
    accept_removals: bool = False,
) -> DetectedChanges:
    """Return the differences between the listings and the last observations, except removals that are held."""
    found = DetectedChanges()
    differing = {
        p: listing
        for p, listing in listings.items()
        if _differs(listing, before := seen.get(p, {})) or (accept_removals and _is_gone(listing, before))
    }
    vanished = {
        p: listing.listed_at
        for p, listing in differing.items()
        if not listing.objects and (holds_files(seen.get(p, {})) or accept_removals)
    }
    fates: Mapping[Partition, removals.RemovedFiles] = {}
    if vanished:
        alarmed = _alarm(feed, vanished, ledger.latest(feed))
        fates = removals.decide(
            feed,
            {p: [feed.prefix_of(p)] for p in vanished},  # one key represents all files of a partition
            {},
            now=max(vanished.values()),
            alarmed=alarmed,
            accepted=vanished if accept_removals else (),
        )
        found.held = sum(bool(fate.held) for fate in fates.values())
        if alarmed and found.held:
            found.alarms[feed] = alarmed
    for partition, listing in differing.items():
        fate = fates.get(partition, removals.RemovedFiles())
        if fate.held:
            continue
        before = seen.get(partition, {})
        outcome = _outcome(fate, listing, before, accept_removals=accept_removals)
        arrived_at = arrival(
            listing, previously_listed_at=when_listed(before), notified_at=(notified or {}).get(partition)
        )
        found.changed.append(_observation(feed, partition, listing, arrived_at, outcome))
    return found


def _outcome(fate: removals.RemovedFiles, listing: Listing, before: Tags, *, accept_removals: bool) -> Tags:
    if fate.expired:
        return {OUTCOME: removals.EXPIRED}
    if fate.gone:
        return {OUTCOME: removals.ACCEPTED} if accept_removals else {}
    if listing.objects:
        return {}
    # The partition has only misplaced files, as before: the outcome of an earlier removal still applies.
    if before:
        return {OUTCOME: before[OUTCOME]} if OUTCOME in before else {}
    return {OUTCOME: removals.NOTHING}


def _differs(listing: Listing, before: Tags) -> bool:
    return version_of_listing(listing) != version_of(before)


def _is_older(listing: Listing, before: Tags) -> bool:
    previously = when_listed(before)
    return _differs(listing, before) and previously is not None and listing.listed_at < previously


def _not_before(listing: Listing, before: Tags) -> Listing:
    """Return the listing, with a time that is not before the last observation even if the server's clock is slow."""
    return replace(listing, listed_at=max(listing.listed_at, when_listed(before) or listing.listed_at))


def _is_gone(listing: Listing, before: Tags) -> bool:
    """Return True if a partition was observed as vanished, and its removal may still wait for acceptance."""
    return not listing.objects and bool(before) and not holds_files(before) and OUTCOME not in before


def _alarm(feed: Feed, vanished: Mapping[Partition, datetime], seen: Mapping[Partition, Tags]) -> str | None:
    holding = {p for p, tags in seen.items() if holds_files(tags)}
    before = {
        p: at for p, tags in seen.items() if p not in holding and OUTCOME not in tags and (at := when_listed(tags))
    }
    now = max(vanished.values())
    return removals.alarm(feed, holding=holding - set(vanished), vanished={**before, **vanished}, now=now)


def _observation(
    feed: Feed, partition: Partition, listing: Listing, arrived_at: datetime, outcome: Tags
) -> dg.AssetObservation:
    newest = max(listing.objects, key=lambda o: (o.last_modified, o.key), default=None)
    is_accepted = outcome.get(OUTCOME) == removals.ACCEPTED
    return dg.AssetObservation(
        asset_key=source_key(feed),
        partition=partition,
        tags={
            DATA_VERSION: version_of_listing(listing) + (ACCEPTED_SUFFIX if is_accepted else ""),
            LISTED_AT: _stamp(listing.listed_at),
            ARRIVED_AT: _stamp(arrived_at),
            **outcome,
        },
        metadata={
            "files": len(listing.objects),
            "bytes": sum(o.size for o in listing.objects),
            CONTENT: content_of(listing.objects),
            "newest file": newest.key if newest else "none",
            **({"misplaced files": len(listing.misplaced)} if listing.misplaced else {}),
            "arrived at": dg.MetadataValue.timestamp(arrived_at),
        },
    )


def _stamp(moment: datetime) -> str:
    # Unix seconds, because a tag may contain neither the colons nor the plus of ISO 8601.
    return f"{moment.timestamp():.3f}"
