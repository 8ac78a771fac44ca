"""Listings of the landing bucket: one partition, several partitions, a whole feed, or misplaced objects.

Belongs here: the choice of LIST requests, and the assignment of objects to partitions. Does not belong here: the
meaning of a listing (`listing`), the calls to a server (`s3`), and the callers.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import chain, islice

from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import Bucket, LandedObject, Listing
from dagster_tidemark.sources.misplaced import Collector, Misplaced, Span, holds_partitions

_MOST_PAGES = 20
"""Maximum number of LIST requests for a folder that a notification named. The listing of a whole feed has no limit."""


def look(bucket: Bucket, feed: Feed, partition: Partition) -> Listing:
    """Return the objects of one partition, by one LIST below its prefix."""
    listing = bucket.list(feed.prefix_of(partition))
    return sorted_out(feed, partition, listing.objects, listing.listed_at)


def look_at_each(bucket: Bucket, feed: Feed, partitions: Collection[Partition]) -> dict[Partition, Listing]:
    """Return the objects of each partition: by one LIST each, or one LIST for several partitions of a day."""
    together: dict[str, list[Partition]] = {}
    for partition in partitions:
        together.setdefault(feed.shared_prefix_of(partition), []).append(partition)
    found: dict[Partition, Listing] = {}
    for prefix, some in together.items():
        if len(some) == 1:
            found[some[0]] = look(bucket, feed, some[0])
            continue
        listing = bucket.list(prefix)
        below: dict[Partition, list[LandedObject]] = {}
        for landed in listing.objects:
            below.setdefault(feed.classify(landed.key).partition, []).append(landed)
        for partition in some:
            found[partition] = sorted_out(feed, partition, below.get(partition, ()), listing.listed_at)
    return {partition: found[partition] for partition in partitions}


class Walk:
    """Iterator over a feed's partitions, or the partitions below some prefixes, in key order. Lists each prefix once.

    The whole listing is never in memory at once. `listed_at` and `beside` are complete after the last partition.
    """

    def __init__(
        self, bucket: Bucket, feed: Feed, *, start: date = date.min, prefixes: Sequence[str] | None = None
    ) -> None:
        self._feed, self.start = feed, start
        self._pages = chain.from_iterable(map(bucket.pages, [feed.prefix] if prefixes is None else sorted(prefixes)))
        self._beside: Collector | None = None
        self.listed_at: datetime

    @property
    def beside(self) -> dict[str, Misplaced]:
        """Misplaced objects outside the partitions, by folder."""
        return self._beside.folders() if self._beside else {}

    def __iter__(self) -> Iterator[tuple[Partition, Listing]]:
        return chain.from_iterable(self.by_page())

    def by_page(self) -> Iterator[list[tuple[Partition, Listing]]]:
        """Yield the partitions that each page completes: none while a page only continues a partition."""
        feed, of_partition, prefix = self._feed, list[LandedObject](), ""
        for page in self._pages:
            if self._beside is None:
                self.listed_at = page.listed_at
                self._beside = Collector(feed, Span.at(page.listed_at, self.start))
            done: list[tuple[Partition, Listing]] = []
            for landed in page.objects:
                if prefix and _is_below(prefix, landed.key):
                    of_partition.append(landed)
                    continue
                done += self._partition(of_partition)
                of_partition, prefix = [], ""
                if not self._beside.add(landed):
                    of_partition, prefix = [landed], feed.prefix_of(feed.classify(landed.key).partition)
            yield done
        yield list(self._partition(of_partition))

    def _partition(self, objects: list[LandedObject]) -> Iterator[tuple[Partition, Listing]]:
        if objects:
            partition = self._feed.classify(objects[0].key).partition
            listing = sorted_out(self._feed, partition, objects, self.listed_at)
            if listing.objects or listing.misplaced:
                yield partition, listing


def look_beside_all(bucket: Bucket, feed: Feed, *, start: date = date.min) -> dict[str, Misplaced]:
    """Return the misplaced objects outside a feed's partitions, by folder. List the whole feed once.

    Args:
        start: The first day of the feed's partitions.
    """
    walk = Walk(bucket, feed, start=start)
    for _ in walk:  # the partitions themselves are not needed
        pass
    return walk.beside


def look_beside(
    bucket: Bucket, feed: Feed, folder: str, *, start: date, now: datetime | None = None
) -> dict[str, Misplaced]:
    """Return the misplaced objects of a folder that a notification named. List the folder once."""
    span = Span.at(now or datetime.now(UTC), start)
    collector = Collector(feed, span)
    # If a folder also contains partitions, only objects directly in it are misplaced; otherwise all its objects are.
    is_shared = holds_partitions(feed, folder, span)
    for landed in bucket.list_folder(folder) if is_shared else _objects_of(bucket, folder, collector):
        collector.add(landed)
    return {name: said for name, said in collector.folders().items() if name == folder}


def _objects_of(bucket: Bucket, folder: str, collector: Collector) -> Iterator[LandedObject]:
    """Yield the objects of a folder, until the folder is known to be full or the page limit is reached."""
    for page in islice(bucket.pages(folder), _MOST_PAGES):
        yield from page.objects
        if collector.is_full(folder):
            return


def sorted_out(feed: Feed, partition: Partition, objects: Collection[LandedObject], listed_at: datetime) -> Listing:
    """Return the listing of a partition: its data, and its misplaced objects."""
    prefix = feed.prefix_of(partition)
    below = [o for o in objects if _is_below(prefix, o.key)]
    data = tuple(o for o in below if is_data(feed, partition, o.key))
    known = set(data)
    misplaced = tuple(o for o in below if o not in known and feed.is_meant_as_data(o.key))
    return Listing(data, listed_at, misplaced)


def is_data(feed: Feed, partition: Partition, key: str) -> bool:
    """Return True if a key is data of a partition: directly below its prefix, and named like data."""
    prefix = feed.prefix_of(partition)
    return _is_below(prefix, key) and "/" not in key[len(prefix) :] and feed.is_named_like_data(key)


def _is_below(prefix: str, key: str) -> bool:
    return key.startswith(prefix) if prefix.endswith("/") else key == prefix
