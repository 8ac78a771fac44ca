"""From a listing to an observation, for everybody who looks at the landing bucket.

Whoever looks (the sensor, a reconcile, a person who presses "Observe", the start of the platform) lists, computes
the same version, and reports the partitions whose version is another than the last observed. Belongs here: that
comparison, and what a disappearance means for it. Does not belong here: who looks, when and where.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

import dagster as dg

from pipelines.automation import adapter
from pipelines.automation.engine import reporting
from pipelines.automation.ledger import (
    ACCEPTED_SUFFIX,
    Ledger,
    Tags,
    holds_files,
    source_key,
    version_of,
    when_listed,
)
from pipelines.boundaries import reached
from pipelines.sources import removals
from pipelines.sources.feed import Feed, Grain, Partition
from pipelines.sources.listing import NO_FILES, Bucket, Listing, arrival, data_version, look, look_at_all


@dataclass
class Found:
    """What a look found.

    Args:
        changed: An observation for each partition that is not as last observed.
        alarms: Feed to why some of its partitions that vanished are not among them.
        held: How many those are.
    """

    changed: list[dg.AssetObservation] = field(default_factory=list)
    alarms: dict[Feed, str] = field(default_factory=dict)
    held: int = 0

    def __add__(self, other: "Found") -> "Found":
        return Found(self.changed + other.changed, self.alarms | other.alarms, self.held + other.held)


def observe(ledger: Ledger, bucket: Bucket, notified: Mapping[tuple[Feed, Partition], datetime]) -> Found:
    """Look at these partitions again and report those that changed."""
    looked: dict[Feed, dict[Partition, Listing]] = {}
    for feed, partition in notified:
        looked.setdefault(feed, {})[partition] = look(bucket, feed, partition)
        reached("after_listing")
    found = Found()
    with reporting():  # of two looks in one process the second compares with what the first has said
        for feed, listings in looked.items():
            told = {p: at for (f, p), at in notified.items() if f == feed}
            found += changes(feed, listings, ledger.latest(feed, listings), ledger, notified=told)
        _report(ledger, found)
    return found


def look_at_feed(
    ledger: Ledger, bucket: Bucket, feed: Feed, *, accept_removals: bool = False, report: bool = True
) -> Found:
    """Look at all of a feed, by one LIST, and report what is not as last observed."""
    found = _compare(ledger, feed, *look_at_all(bucket, feed), accept_removals=accept_removals, report=report)
    if report and not found.alarms:
        ledger.tell(feed, None)
    return found


def look_at_days(
    ledger: Ledger, bucket: Bucket, feed: Feed, days: Collection[date], *, accept_removals: bool = False
) -> Found:
    """Look at some days of a feed, by one LIST each; at all of a feed that is not cut by time."""
    if feed.grain is Grain.NONE:
        return look_at_feed(ledger, bucket, feed, accept_removals=accept_removals)
    found = Found()
    for day in days:
        listings, listed_at = look_at_all(bucket, feed, day)
        of_day = feed.partitions_of(day)
        found += _compare(ledger, feed, listings, listed_at, of_day, accept_removals=accept_removals)
    return found


def _compare(
    ledger: Ledger,
    feed: Feed,
    listings: Mapping[Partition, Listing],
    listed_at: datetime,
    looked_at: Collection[Partition] | None = None,
    *,
    accept_removals: bool,
    report: bool = True,
) -> Found:
    with reporting():
        seen = ledger.latest(feed, looked_at)
        gone = {partition: Listing((), listed_at) for partition in seen if partition not in listings}
        found = changes(feed, {**listings, **gone}, seen, ledger, accept_removals=accept_removals)
        if report:
            _report(ledger, found)
    return found


def _report(ledger: Ledger, found: Found) -> None:
    ledger.report(found.changed)
    for feed, alarm in found.alarms.items():
        ledger.tell(feed, alarm)


def changes(
    feed: Feed,
    listings: Mapping[Partition, Listing],
    seen: Mapping[Partition, Tags],
    ledger: Ledger,
    *,
    notified: Mapping[Partition, datetime] | None = None,
    accept_removals: bool = False,
) -> Found:
    """What differs between these partitions as listed and as last observed, less the removals that are held."""
    found = Found()
    differing = {
        p: listing
        for p, listing in listings.items()
        if _differs(listing, before := seen.get(p, {})) or (accept_removals and _is_gone(listing, before))
    }
    vanished = {p: listing.listed_at for p, listing in differing.items() if not listing.objects}
    fates: Mapping[Partition, removals.Fate] = {}
    if vanished:
        alarmed = _alarm(feed, vanished, ledger.latest(feed))
        fates = removals.decide(
            feed,
            {p: [feed.prefix_of(p)] for p in vanished},  # all files of a partition, by one name
            {},
            now=max(vanished.values()),
            alarmed=alarmed,
            accepted=vanished if accept_removals else (),
        )
        found.held = sum(bool(fate.held) for fate in fates.values())
        if alarmed and found.held:
            found.alarms[feed] = alarmed
    for partition, listing in differing.items():
        fate = fates.get(partition, removals.Fate())
        if fate.held:
            continue
        outcome = {removals.OUTCOME: removals.EXPIRED} if fate.expired else {}
        if fate.gone and accept_removals:
            outcome = {removals.OUTCOME: removals.ACCEPTED}
        previously = when_listed(seen.get(partition, {}))
        arrived_at = arrival(listing, previously_listed_at=previously, notified_at=(notified or {}).get(partition))
        found.changed.append(_observation(feed, partition, listing, arrived_at, outcome))
    return found


def _differs(listing: Listing, before: Tags) -> bool:
    if data_version(listing.objects) == version_of(before):
        return False
    previously = when_listed(before)
    # An older listing is no news: somebody looked later and was faster to say so.
    return previously is None or listing.listed_at >= previously


def _is_gone(listing: Listing, before: Tags) -> bool:
    """Whether a partition was seen to vanish, and a load of it may be waiting for somebody who accepts it."""
    return not listing.objects and before.get(adapter.DATA_VERSION) == NO_FILES and removals.OUTCOME not in before


def _alarm(feed: Feed, vanished: Mapping[Partition, datetime], seen: Mapping[Partition, Tags]) -> str | None:
    holding = {p for p, tags in seen.items() if holds_files(tags)}
    before = {
        p: at
        for p, tags in seen.items()
        if p not in holding and removals.OUTCOME not in tags and (at := when_listed(tags))
    }
    now = max(vanished.values())
    return removals.alarm(feed, holding=holding - set(vanished), vanished={**before, **vanished}, now=now)


def _observation(
    feed: Feed, partition: Partition, listing: Listing, arrived_at: datetime, outcome: Tags
) -> dg.AssetObservation:
    newest = max(listing.objects, key=lambda o: (o.last_modified, o.key), default=None)
    return dg.AssetObservation(
        asset_key=source_key(feed),
        partition=partition,
        tags={
            adapter.DATA_VERSION: data_version(listing.objects) + (ACCEPTED_SUFFIX if _is_accepted(outcome) else ""),
            adapter.LISTED_AT: _stamp(listing.listed_at),
            adapter.ARRIVED_AT: _stamp(arrived_at),
            **outcome,
        },
        metadata={
            "files": len(listing.objects),
            "bytes": sum(o.size for o in listing.objects),
            "newest file": newest.key if newest else "none",
            "arrived at": dg.MetadataValue.timestamp(arrived_at),
        },
    )


def _is_accepted(outcome: Tags) -> bool:
    return outcome.get(removals.OUTCOME) == removals.ACCEPTED


def _stamp(moment: datetime) -> str:
    # Unix seconds: a tag may hold neither the colons nor the plus of ISO 8601.
    return f"{moment.timestamp():.3f}"
