"""Quarantine entries of files that are gone, and their deletion. It needs no Spark.

A load removes the entries of files that left the bucket, but no load of an old partition may ever come. Belongs here:
the choice of entries and their deletion. Does not belong here: the entries of messages, whose sources are no files, and
the records of Dagster (`retention.prune`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dagster import DagsterInstance
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, BooleanExpression

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.event_log.observations import ALARM, mass_removal_check, source_key
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, below, equal, one_of
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.stored_tables import opened_catalog
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import Bucket
from dagster_tidemark.sources.misplaced import is_several

_FILES_AT_ONCE = 150
"""Files of one condition. pyiceberg skips no data files above 200 values."""
_SOURCE = "source_file"


@dataclass(frozen=True)
class GoneFiles:
    """Files of an asset that are gone, and that only the quarantine still knows.

    Args:
        before: All their entries to delete are older than this time (Unix seconds).
        entries: Number of entries to delete, by the key of the file.
    """

    asset: str
    before: float
    entries: Mapping[str, int]


def prune_entries(
    settings: Settings,
    bucket: Bucket,
    instance: DagsterInstance,
    graph: Any,
    feeds: Collection[Feed],
    before: float,
    *,
    apply: bool,
) -> int:
    """Delete old entries of files that are gone, or count them. Return their number.

    Entries of a feed whose check `mass_removal` fails stay: its bucket may be the wrong one.

    Args:
        graph: Dagster's asset graph of the code location.
        before: Entries from before this time are old (Unix seconds).

    Raises:
        BucketUnavailable: the bucket cannot be listed. No entry was deleted.
        CatalogUnreadable: the catalog does not answer. No entry was deleted.
    """
    lake = opened_catalog(settings)
    if lake is None:
        return 0
    trusted = [feed for feed in feeds if not _is_alarmed(instance, feed)]
    found = find(lake, bucket, loaded_assets(graph, trusted), before)
    return forget(lake, found) if apply else sum(sum(of.entries.values()) for of in found)


def loaded_assets(graph: Any, feeds: Iterable[Feed]) -> dict[str, tuple[str, ...]]:
    """Return the assets of a code location that read the sources of feeds, each with the prefixes of these feeds.

    Args:
        graph: Dagster's asset graph of the code location.
    """
    found: dict[str, tuple[str, ...]] = {}
    for feed in feeds:
        for child in graph.get(source_key(feed)).child_keys if graph.has(source_key(feed)) else ():
            asset = child.to_user_string()
            found[asset] = (*found.get(asset, ()), feed.prefix)
    return found


def find(lake: Catalog, bucket: Bucket, assets: Mapping[str, tuple[str, ...]], before: float) -> list[GoneFiles]:
    """Return the files that have old entries, are not in the bucket, and have no row in the asset's table.

    If rows of a gone file stay in the table, its entries stay, because only they show which rows are missing. If
    nothing is below a prefix, the entries of its files stay, because the bucket may be the wrong one.

    Args:
        assets: The prefixes of each asset's feeds. Other entries, such as those of messages and of misplaced folders,
            stay.

    Raises:
        BucketUnavailable: the bucket cannot be listed.
    """
    if not assets or not lake.table_exists(QUARANTINE.name):
        return []
    quarantine = Appendable(lake, QUARANTINE, writes=False)
    found = []
    for asset, prefixes in assets.items():
        sources: list[str] = quarantine.rows(_old(asset, before), (_SOURCE,))[_SOURCE].to_pylist()
        files = [source for source in sources if not is_several(source)]
        below = prefixes if files else ()
        filled = tuple(prefix for prefix in below if any(page.objects for page in bucket.pages(prefix)))
        keys = Counter(key for key in files if key.startswith(filled))
        gone = keys.keys() - _there(bucket, keys)
        gone -= _with_rows(lake, asset.replace("/", "."), gone)
        if gone:
            found.append(GoneFiles(asset, before, {key: keys[key] for key in sorted(gone)}))
    return found


def forget(lake: Catalog, found: Sequence[GoneFiles]) -> int:
    """Delete the entries of files that are gone. Return the number of deleted entries.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    return sum(_forgotten(lake, of, some) for of in found for some in _batches(of.entries))


def _forgotten(lake: Catalog, of: GoneFiles, keys: Collection[str]) -> int:
    table, where = Appendable(lake, QUARANTINE, writes=False), And(_old(of.asset, of.before), one_of(_SOURCE, keys))

    def _deleted() -> int:
        there: int = table.rows(where, (_SOURCE,)).num_rows
        if there:
            table.commit(TableCommit(instead_of=where))
        return there

    return until_committed(_deleted, QUARANTINE.name, look_again=table.refresh)


def _old(asset: str, before: float) -> BooleanExpression:
    return And(equal("asset", asset), below("quarantined_at", datetime.fromtimestamp(before, UTC)))


def _is_alarmed(instance: DagsterInstance, feed: Feed) -> bool:
    said = event_storage.latest_check_metadata(instance, mass_removal_check(feed))
    return bool(said and said.get(ALARM))


def _there(bucket: Bucket, keys: Iterable[str]) -> set[str]:
    """Return the keys that are in the bucket. Only the folders of the keys are listed."""
    folders = {f"{folder}/" if folder else "" for folder in (key.rpartition("/")[0] for key in keys)}
    return {landed.key for folder in sorted(folders) for landed in bucket.list_folder(folder)}


def _with_rows(lake: Catalog, table: str, keys: Collection[str]) -> set[str]:
    """Return the files that have rows in a table."""
    if not keys or not lake.table_exists(table):
        return set()
    found = lake.load_table(table)
    if _SOURCE not in found.schema().column_names:
        return set(keys)  # unknown, so their entries stay
    scans = (found.scan(one_of(_SOURCE, some), (_SOURCE,)) for some in _batches(keys))
    return {key for scan in scans for batch in scan.to_arrow_batch_reader() for key in batch[_SOURCE].to_pylist()}


def _batches(keys: Collection[str]) -> Iterator[list[str]]:
    in_order = sorted(keys)
    for start in range(0, len(in_order), _FILES_AT_ONCE):
        yield in_order[start : start + _FILES_AT_ONCE]
