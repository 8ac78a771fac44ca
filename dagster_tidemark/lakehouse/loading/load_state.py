"""State that a load queries before it reads files: listed files, known files, and the resulting steps.

Belongs here: the queries, and their order, which ensures that no change is missed. Does not belong here: the decisions
(`load_plan`, `sources.removals`) and their execution (`load`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import write
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, LoadStep, Version, Where, held_keys, steps
from dagster_tidemark.lakehouse.loading.provenance import Entries, known_files, rows_of_partitions
from dagster_tidemark.lakehouse.loading.spec import Landing, Load
from dagster_tidemark.lakehouse.read import SnapshotExpired
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources import removals
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.listing import LandedObject, Listing
from dagster_tidemark.sources.misplaced import OUTSIDE_LAYOUT, Misplaced
from dagster_tidemark.sources.partition_listing import Walk, look_at_each
from dagster_tidemark.sources.removals import RemovedFiles


@dataclass(frozen=True)
class Observed:
    """Facts from a source's earlier observations, which a new listing cannot show.

    Args:
        vanished: Partitions that were empty at the last observation, with the time of the first such observation.
            Expired and accepted removals are not included (see `sources.removals`).
        accepted: Partitions whose removal a person accepted.
        holding: Partitions that had files at the last observation; None if unknown.
    """

    vanished: Mapping[Partition, datetime] = field(default_factory=dict)
    accepted: Collection[Partition] = ()
    holding: Collection[Partition] | None = None


@dataclass(frozen=True)
class LoadState:
    """Listed and known files at one moment, and the resulting steps.

    `rows` is the number of rows in the table by file version. `misplaced` has the files outside the asset's partitions
    (None if unknown). `entries` are the quarantine entries of the load's partitions and of misplaced files. `archived`
    has those `unavailable` files that the load does not try again if their rows stay. `read_again` has the partitions
    that are read again because a person asked for it.
    """

    snapshot_id: int | None
    listed: Mapping[Partition, list[SourceFile]]
    misplaced: Sequence[SourceFile] | None
    known: Mapping[Partition, Collection[KnownFile]]
    rows: Mapping[Version, int]
    entries: Sequence[Entries]
    fates: Mapping[Partition, RemovedFiles]
    alarm: str | None
    steps: Mapping[Partition, LoadStep]
    unavailable: Mapping[SourceFile, str] = field(default_factory=dict)
    archived: frozenset[SourceFile] = frozenset()
    read_again: frozenset[Partition] = frozenset()

    def without(
        self, unavailable: Mapping[SourceFile, str], code_version: str, *, archived: Collection[SourceFile] = ()
    ) -> "LoadState":
        """Return the state without the given files, which are listed but unavailable.

        The rows and quarantine entries of these files stay. A partition that keeps such rows is not read again as a
        whole, as with expired files.

        Args:
            unavailable: The files, with the reasons.
            archived: The files among them that must not be tried again.
        """
        left_out = {*self.unavailable, *unavailable}
        listed = {p: [file for file in files if file not in left_out] for p, files in self.listed.items()}
        fates = dict(self.fates)
        for file in left_out:
            if any(k.key == file.key for k in self.known.get(file.partition, ())):
                fate = fates.get(file.partition, RemovedFiles())
                fates[file.partition] = replace(fate, withheld=fate.withheld | {file.key})
        return replace(
            self,
            listed=listed,
            steps=steps(listed, self.known, fates, code_version, self.read_again),
            unavailable={**self.unavailable, **unavailable},
            archived=self.archived | frozenset(archived),
        )

    def is_held(self, file: SourceFile) -> bool:
        """Return True if this version of a file has rows in the table, or a quarantine entry for the whole file."""
        known = self.known.get(file.partition, ())
        return any((k.key, k.version) == (file.key, file.version) and k.where is not Where.REJECTED_ROWS for k in known)


def look(
    spark: SparkSession,
    landing: Landing,
    load: Load,
    partitions: Sequence[Partition],
    observed: Callable[[], Observed],
    misplaced: Collection[Misplaced] | None = None,
) -> LoadState:
    """Query the table, the quarantine and the bucket, and decide the steps.

    Args:
        misplaced: Observed files outside the partitions; None if unknown.
    """
    # The order matters: a commit after the snapshot makes this load start again, and a file that arrives after the
    # listing starts a new load.
    snapshot = write.current_snapshot(spark, load.table)
    with ThreadPoolExecutor(1) as pool:
        # The pool lists S3, and this thread calls Spark. A Spark call from the pool hung forever when an older session
        # was garbage-collected during the call and closed its client.
        asked_for = pool.submit(look_at_each, landing, load.feed, partitions)
        found = known_files(spark, load, partitions, snapshot)
        listings = asked_for.result()
    listed = {p: source_files(load.feed, listing, p) for p, listing in listings.items()}
    # Only data files count as present: a file counts as gone if it was renamed to an ending that the feed lacks.
    data = {p: [o.key for o in listing.objects] for p, listing in listings.items()}
    held = held_keys(load.feed, found.files)
    now = max((listing.listed_at for listing in listings.values()), default=datetime.now(UTC))
    lost = [p for p in partitions if held.get(p) and not data[p] and removals.follows(load.feed, p, now)]
    alarm, accepted = _alarm(spark, landing, load, observed(), lost) if lost else (None, ())
    fates = removals.decide(
        load.feed,
        held,
        data,
        now=now,
        alarmed=alarm,
        accepted=accepted,
    )
    to_do = steps(listed, found.files, fates, load.code_version, load.read_again)
    beside = None if misplaced is None else [_beside(of) for of in misplaced]
    return LoadState(
        snapshot,
        listed,
        beside,
        found.files,
        found.rows,
        found.entries,
        fates,
        alarm,
        to_do,
        read_again=load.read_again,
    )


def holds_the_same(spark: SparkSession, load: Load, found: LoadState, snapshot_id: int | None) -> bool:
    """Return True if the table has at a snapshot the same file versions of the load's partitions as this load found.

    Then commits between the two snapshots were about other partitions, and the load's steps are not outdated.
    """
    if snapshot_id is None:
        return False
    try:
        then = known_files(spark, load, list(found.listed), snapshot_id)
    except SnapshotExpired:
        return False
    return then.rows == found.rows and _in_table(then.files) == _in_table(found.known)


def _in_table(known: Mapping[Partition, Collection[KnownFile]]) -> set[tuple[Partition, KnownFile]]:
    return {(partition, file) for partition, files in known.items() for file in files if file.where is Where.TABLE}


def _alarm(
    spark: SparkSession, landing: Landing, load: Load, observed: Observed, lost: Sequence[Partition]
) -> tuple[str | None, Collection[Partition]]:
    walk = Walk(landing, load.feed)
    there = {p for p, listing in walk if listing.objects}
    loaded = {p for p in rows_of_partitions(spark, load.table) if load.feed.layout.has(p)} | {*lost}
    # Partitions before the feed's first day do not count, because they would make the share of lost partitions smaller.
    holding = there if observed.holding is None else there & {*observed.holding, *loaded}
    missing = loaded - there
    # A partition that was observed as empty earlier keeps the earlier time.
    before = {p: at for p, at in observed.vanished.items() if p not in there}
    vanished = dict.fromkeys(missing - set(observed.accepted), walk.listed_at) | before
    return removals.alarm(load.feed, holding=holding, vanished=vanished, now=walk.listed_at), observed.accepted


def source_files(feed: Feed, listing: Listing, partition: Partition) -> list[SourceFile]:
    """Return the files of a partition's listing, including misplaced ones."""
    misplaced = (
        replace(source_file(o, partition), misplaced=OUTSIDE_LAYOUT, message=_why_misplaced(feed, o.key))
        for o in listing.misplaced
    )
    return [*(source_file(o, partition) for o in listing.objects), *misplaced]


def _why_misplaced(feed: Feed, key: str) -> str:
    """Return the reason why a file in a partition's folder is not a file of the feed."""
    name = key.rpartition("/")[2]
    if feed.is_named_like_data(key):
        return "not a file of this feed: it is in a subfolder of its partition; move it up to the partition's folder"
    ending = name[name.find(".", 1) :] if "." in name[1:] else name
    taken = ", ".join(feed.endings)
    return (
        f"not a file of this feed: it has a different ending; expected {taken}, found {ending}; rename it, or declare "
        "its format and suffixes"
    )


def _beside(of: Misplaced) -> SourceFile:
    arrived_at = datetime.fromtimestamp(of.arrived_at, UTC)
    return SourceFile(of.name, of.version, arrived_at, None, misplaced=of.reason, message=str(of))


def source_file(landed: LandedObject, partition: Partition) -> SourceFile:
    """Return a listed object as a file of a partition."""
    of_listing = landed.source_version, landed.last_modified, partition, landed.size, landed.etag, landed.version_id
    return SourceFile(landed.key, *of_listing)
