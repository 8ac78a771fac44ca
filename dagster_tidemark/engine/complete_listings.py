"""Complete listings of feeds. Each is a completed check of the feed's source, as of the start of the listing.

Everything that arrived before that start is in the listing, whether or not a notification named it. Each feed has its
own record, so that two listings that end at once do not replace each other's. Belongs here: the records in the
instance's storage. Does not belong here: the listings (`sensors.reconcile_schedules`, `sensors.own_listings`), and
their effect on contracts (`engine.doubts`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.tags import LOOKED

_LISTED = "listed"


@dataclass(frozen=True)
class FeedListing:
    """The record of a feed.

    Args:
        at: Start of the latest complete listing (Unix seconds); 0 if there was none.
        place: Identity of the listed place, from `place_of`.
        begun_at: Start of the first listing that is under way; 0 if none is.
        progress: Numbers of files and partitions of that listing so far, or the fault that stopped it.
    """

    at: float = 0.0
    place: str = ""
    begun_at: float = 0.0
    progress: str = ""


def place_of(feed: Feed, bucket: str, start: date) -> str:
    """Return the identity of a feed's place: it changes with the bucket, the prefix, the partitions and the endings.

    Args:
        start: First day with partitions.
    """
    layout = feed.layout
    keys = {name: sorted(known) for name, known in sorted(layout.keys.items())}
    said = [bucket, feed.prefix, feed.grain, layout.folders, keys, layout.timezone, feed.endings, str(start)]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def key_of(location: str, feed: str) -> str:
    """Return the key of a feed's record."""
    return f"{LOOKED}{location}/{_LISTED}/{feed}"


def note_listing(instance: DagsterInstance, location: str, feed: str, at: float, place: str = "") -> None:
    """Record that a feed was listed completely, and that all changes were reported.

    Args:
        at: Start of the listing (Unix seconds).
        place: Identity of the listed place, from `place_of`.
    """
    while True:
        before = instance_store.saved(instance, key_of(location, feed))
        known = listing_in(before)
        latest = FeedListing(at, place) if at >= known.at else replace(known, begun_at=0.0, progress="")
        if instance_store.replace_saved(instance, key_of(location, feed), before, _text(latest)):
            return


def note_progress(
    instance: DagsterInstance, location: str, feed: str, place: str, *, begun_at: float, progress: str
) -> None:
    """Record that the first listing of a place is under way, unless another process has listed it completely.

    Args:
        begun_at: Start of the listing (Unix seconds); 0 if it has ended.
    """
    before = instance_store.saved(instance, key_of(location, feed))
    if listing_in(before).place != place:
        under_way = FeedListing(begun_at=begun_at, progress=progress)
        instance_store.replace_saved(instance, key_of(location, feed), before, _text(under_way))


def read_listings(instance: DagsterInstance, location: str, feeds: Iterable[str]) -> dict[str, FeedListing]:
    """Return the records of feeds, by feed."""
    keys = {feed: key_of(location, feed) for feed in feeds}
    return listings_in(instance_store.saved_values(instance, keys.values()), location, keys)


def listings_in(saved: Mapping[str, str], location: str, feeds: Iterable[str]) -> dict[str, FeedListing]:
    """Return the records of feeds, by feed, from saved values by key."""
    return {feed: listing_in(saved.get(key_of(location, feed))) for feed in feeds}


def listing_in(text: str | None) -> FeedListing:
    """Return a saved record. Unreadable records are empty."""
    try:
        said = json.loads(text or "{}")
        return FeedListing(
            float(said.get("at", 0.0)),
            str(said.get("place", "")),
            float(said.get("begun_at", 0.0)),
            str(said.get("progress", "")),
        )
    except (AttributeError, TypeError, ValueError):
        return FeedListing()


def _text(listing: FeedListing) -> str:
    return json.dumps(asdict(listing))
