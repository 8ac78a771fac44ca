"""What a load finds before it reads anything: what lies there, what is known, and so what there is to do.

Belongs here: the questions, and that they are asked in an order in which no answer can be overtaken unnoticed. Does
not belong here: the decisions (`plan`, `sources.removals`) and doing anything about them (`load`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from pipelines.lakehouse import write
from pipelines.lakehouse.declaration import Landing, Load
from pipelines.lakehouse.files import SourceFile
from pipelines.lakehouse.ledger import Entries, known_files, rows_of_partitions
from pipelines.lakehouse.plan import KnownFile, Step, keys_of, steps
from pipelines.sources import removals
from pipelines.sources.feed import Partition
from pipelines.sources.listing import LandedObject, Listing, look_at_all, look_at_each
from pipelines.sources.removals import Fate
from pipelines.sources.strays import OUTSIDE_LAYOUT, days_of, strays


@dataclass(frozen=True)
class Observed:
    """What the observations of a source say about removals, see `sources.removals`.

    Args:
        vanished: Partitions last observed as empty (neither expired nor accepted), with when.
        accepted: Partitions whose removal a person accepted.
    """

    vanished: Mapping[Partition, datetime] = field(default_factory=dict)
    accepted: Collection[Partition] = ()


@dataclass(frozen=True)
class Situation:
    """What is there and what is known, at one moment, and so what there is to do.

    `entries` are those of all partitions of the asset, `strays` lie beside the hours of `days`; the others are about
    the load's partitions.
    """

    snapshot_id: int | None
    listed: Mapping[Partition, list[SourceFile]]
    days: frozenset[str]
    strays: Sequence[SourceFile]
    known: Mapping[Partition, Collection[KnownFile]]
    entries: Sequence[Entries]
    fates: Mapping[Partition, Fate]
    alarm: str | None
    steps: Mapping[Partition, Step]


def look(
    spark: SparkSession,
    landing: Landing,
    load: Load,
    partitions: Sequence[Partition],
    observed: Callable[[], Observed],
    days: Collection[str] = (),
) -> Situation:
    """Ask.

    Args:
        days: Further days beside whose hours objects may lie that belong to none.
    """
    # In this order: what others commit after the snapshot is noticed, what lands after the listing is told by another.
    snapshot = write.current_snapshot(spark, load.table)
    looked_at = frozenset({*days, *days_of(partitions)})
    with ThreadPoolExecutor(1) as pool:
        # S3 is asked while Spark works, not Spark while S3 is listed: a call from the pool hung for ever when an older
        # session was collected in the middle of it, and closed its client.
        asked_for = pool.submit(look_at_each, landing, load.feed, partitions)
        asked_beside = pool.submit(_strays, landing, load, looked_at)
        known, entries = known_files(spark, load, partitions, snapshot)
        listings, beside = asked_for.result(), asked_beside.result()
    listed = {p: source_files(listing, p) for p, listing in listings.items()}
    now = max((listing.listed_at for listing in listings.values()), default=datetime.now(UTC))
    lost = [p for p in partitions if known.get(p) and not listed[p] and removals.follows(load.feed, p, now)]
    alarm, accepted = _alarm(spark, landing, load, observed(), lost) if lost else (None, ())
    fates = removals.decide(
        load.feed,
        keys_of(known),
        {p: [file.key for file in files] for p, files in listed.items()},
        now=now,
        alarmed=alarm,
        accepted=accepted,
    )
    to_do = steps(listed, known, fates, load.code_version)
    return Situation(snapshot, listed, looked_at, beside, known, entries, fates, alarm, to_do)


def _alarm(
    spark: SparkSession, landing: Landing, load: Load, observed: Observed, lost: Sequence[Partition]
) -> tuple[str | None, Collection[Partition]]:
    holding, now = look_at_all(landing, load.feed)
    missing = {p for p in {*rows_of_partitions(spark, load.table), *lost} if p not in holding}
    before = {p: at for p, at in observed.vanished.items() if p not in holding}
    vanished = before | dict.fromkeys(missing - set(observed.accepted), now)
    return removals.alarm(load.feed, holding=list(holding), vanished=vanished, now=now), observed.accepted


def source_files(listing: Listing, partition: Partition) -> list[SourceFile]:
    """The files of a partition's listing, misplaced ones too."""
    why = "no file of this feed: it lies too deep, or has another ending than its files"
    misplaced = (replace(_source_file(o, partition), misplaced=OUTSIDE_LAYOUT, message=why) for o in listing.misplaced)
    return [*(_source_file(o, partition) for o in listing.objects), *misplaced]


def _strays(landing: Landing, load: Load, days: Collection[str]) -> list[SourceFile]:
    found = strays(landing, load.feed, days, load.start)
    return [replace(_source_file(s.landed, None), misplaced=s.reason, message=s.message) for s in found]


def _source_file(landed: LandedObject, partition: Partition) -> SourceFile:
    return SourceFile(landed.key, landed.source_version, landed.last_modified, partition, landed.size)
