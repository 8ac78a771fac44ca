"""Rejected rows and files of a load: counts, and the quarantine entries before and after the table's commit.

New entries are appended in one commit of pyiceberg, which takes a tenth of the time of Spark's MERGE. It succeeds only
if no other writer has committed since the existing entries were read. Spark merges the entries (`quarantine_table`) if
existing ones must be changed or removed, or if this process cannot commit.

Belongs here: the choice and order of the entries to write, and their commit without Spark. Does not belong here: the
table and its MERGE (`quarantine_table`), and the rules that reject rows and files (`validation`, `probe`).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import metadata_reads, write
from dagster_tidemark.lakehouse.append import Appendable, TableCommit
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.lakehouse.loading import quarantine_table
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, LoadStep, Where
from dagster_tidemark.lakehouse.loading.load_state import LoadState
from dagster_tidemark.lakehouse.loading.provenance import Entries
from dagster_tidemark.lakehouse.loading.quarantine_table import ENTERED, NO_ROWS, QUARANTINE, SAID, FirstRow
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.readers.batch import FileBatch
from dagster_tidemark.lakehouse.readers.files import FileFault, SourceFile
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.table import LINEAGE
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.removals import RemovedFiles

_MOST_COMPARED = 20_000
"""Largest number of existing entries that are compared here. Spark compares more entries faster."""

_TYPES = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
_SCHEMA = pa.schema([(name, _TYPES[QUARANTINE.columns[name]]) for name in ENTERED])

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entered:
    """Files with quarantine entries from this load: for the whole file (`whole`), or for some rows (`in_part`)."""

    whole: frozenset[SourceFile]
    in_part: frozenset[SourceFile]


@dataclass(frozen=True)
class Tally:
    """Number of rows in a file, number of rejected rows by reason, and the first row of each block of the file."""

    rows: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    first_rows: tuple[FirstRow, ...] = ()


def tally_of(judged: DataFrame | pa.Table, files: Sequence[str]) -> dict[str, Tally]:
    """Return the tally of each file. This is the only pass that evaluates the rows.

    Args:
        files: Keys of the files, in the order of their numbers.
    """
    return _tally(counted(judged), files)


def counted(judged: DataFrame | pa.Table) -> list[dict[str, Any]]:
    """Return one group per `_file`, `_block` and `_reason`.

    A group has its number of `rows`, the number of its `first` row, and the sum of the numbers of its rows (`places`).
    """
    by = ["_file", "_block", "_reason"]
    if isinstance(judged, DataFrame):
        rows, first, places = F.count(F.lit(1)), F.min("_row"), F.sum("_row")
        groups = judged.groupBy(*by).agg(rows.alias("rows"), first.alias("first"), places.alias("places"))
        return [group.asDict() for group in groups.collect()]
    table = judged.group_by(by).aggregate([([], "count_all"), ("_row", "min"), ("_row", "sum")])
    names = {"count_all": "rows", "_row_min": "first", "_row_sum": "places"}
    found: list[dict[str, Any]] = table.rename_columns(names).to_pylist()
    return found


def tally_of_parts(
    parts: Mapping[tuple[int, int], tuple[int, int]], rejected: Sequence[Mapping[str, Any]], files: Sequence[str]
) -> dict[str, Tally]:
    """Return the tally of each file from the row counts of the parts of files, and the rejected rows.

    Args:
        parts: For each part, the number of rows and the number of the first row. The key is the file's number and the
            part's first byte.
        rejected: The rejected rows as groups of `counted`.
        files: Keys of the files, in the order of their numbers.
    """
    bad = Counter[tuple[int, int]]()
    for group in rejected:
        bad[group["_file"], group["_block"]] += group["rows"]
    good = [
        {"_file": file, "_block": block, "_reason": None, "rows": rows - bad[file, block], "first": first}
        for (file, block), (rows, first) in parts.items()
        if rows
    ]
    return _tally([*rejected, *good], files)


def _tally(groups: Iterable[Mapping[str, Any]], files: Sequence[str]) -> dict[str, Tally]:
    blocks: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for group in groups:
        blocks[files[group["_file"]], group["_block"]].append(group)
    tally: dict[str, Tally] = defaultdict(Tally)
    for (file, block), found in sorted(blocks.items()):
        before = tally[file]
        reasons = Counter(before.reasons)
        for group in found:
            reasons.update({group["_reason"]: group["rows"]} if group["_reason"] else {})
        first = FirstRow(block, min(g["first"] for g in found), before.rows)
        tally[file] = Tally(before.rows + sum(g["rows"] for g in found), reasons, (*before.first_rows, first))
    return tally


def enter(
    load: Load,
    found: LoadState,
    reading: FileBatch,
    rejected: DataFrame | pa.Table,
    tally: Mapping[str, Tally],
    run_id: str,
) -> Entered:
    """Add rejected rows and files to the quarantine. Replace earlier entries of files that were read or forgotten."""
    with_rejected = {key for key, t in tally.items() if t.reasons}
    entered = Entered(
        frozenset(x.file for x in reading.faults), frozenset(f for f in reading.files if f.key in with_rejected)
    )
    gone = {p: _known_entries(found, p, step.forgotten) for p, step in found.steps.items() if step.forgotten}
    gone |= {f.partition: gone.get(f.partition, []) for f in entered.whole | entered.in_part}
    if not gone:
        return entered
    firsts = first_rows(tally)
    if firsts and isinstance(rejected, DataFrame):
        entries = entries_of(load, reading, rejected, tally)
        quarantine_table.replace(entries, load.asset, gone, run_id=run_id, table=load.quarantine)
        return entered
    here = _entries_of_files(load, reading.faults)
    if firsts:
        here = pa.concat_tables([here, _entries_of_rows(load, rejected, firsts)])
    _commit_entries(reading.spark, load, here, gone, run_id)
    return entered


def entries_of(load: Load, reading: FileBatch, rejected: DataFrame, tally: Mapping[str, Tally]) -> DataFrame:
    """Return entries about the rows and files that were read and rejected."""
    entries = quarantine_table.of_files(rejected.sparkSession, load.asset, load.code_version, reading.faults)
    firsts = first_rows(tally)
    return entries.unionByName(quarantine_table.of_rows(rejected, load.asset, firsts)) if firsts else entries


def first_rows(tally: Mapping[str, Tally]) -> dict[str, tuple[FirstRow, ...]]:
    """Return the first rows of the blocks of each file with rejected rows."""
    return {key: t.first_rows for key, t in tally.items() if t.reasons}


def enter_files_without_rows(
    spark: SparkSession,
    load: Load,
    found: LoadState,
    entered: Entered,
    in_table: Mapping[Partition, Collection[tuple[str, str]]],
    run_id: str,
) -> None:
    """Add entries for files without rows in the table. Without an entry, the next load would read them as new files.

    Args:
        entered: Files that got entries before the table was written.
        in_table: The file versions that have rows in the table now.
    """
    missing: list[FileFault] = []
    for partition, step in found.steps.items():
        known = {*in_table.get(partition, ())} | _entered_as_a_whole(found.known.get(partition, ()), step)
        without = [f for f in found.listed[partition] if (f.key, f.version) not in known and f not in entered.whole]
        missing += [FileFault(f, NO_ROWS, "none of its rows is in the table") for f in without]
    if missing:
        entries = _entries_of_files(load, missing)
        _commit_entries(spark, load, entries, {x.file.partition: [] for x in missing}, run_id)


def _entered_as_a_whole(known: Collection[KnownFile], step: LoadStep) -> set[tuple[str, str]]:
    read = {(f.key, f.version) for f in step.read}
    return {(k.key, k.version) for k in known if k.where is Where.WHOLE_FILE} - read


def enter_misplaced(spark: SparkSession, load: Load, found: LoadState, run_id: str) -> None:
    """Add misplaced files to the quarantine. Remove entries of misplaced files that are gone, and obsolete entries."""
    gone, new = _obsolete(found), list[SourceFile]()
    if found.misplaced is not None and load.table.partitioned_by:
        entered = {(e.file.key, e.file.version): e.file for e in _beside(load, found)}
        there = {(f.key, f.version): f for f in found.misplaced}
        new = [f for at, f in there.items() if at not in entered]
        if entered.keys() != there.keys():
            gone[None] = [file for at, file in entered.items() if at not in there]
    if gone:
        faults = [FileFault(f, f.misplaced or "", f.message) for f in new]
        entries = _entries_of_files(load, faults)
        _commit_entries(spark, load, entries, gone, run_id)


def _obsolete(found: LoadState) -> dict[Partition, list[KnownFile]]:
    """Return obsolete entries by partition.

    An entry is obsolete if the file has expired and has no row in the table. If rows of an expired file stay, its
    entries stay too, because only they show which rows are missing. The entry `no rows` is obsolete if the file has
    rows: another run has loaded them after this entry was decided.
    """
    gone: dict[Partition, list[KnownFile]] = {}
    for partition, known in found.known.items():
        with_rows = {k.key for k in known if k.where is Where.TABLE}
        fate = found.fates.get(partition, RemovedFiles())
        expired = _known_entries(found, partition, fate.expired - with_rows)
        without_rows = (e.file for e in found.entries if e.partition == partition and e.reason == NO_ROWS)
        untrue = [k for k in without_rows if k._replace(where=Where.TABLE) in known]
        if expired or untrue:
            gone[partition] = [*expired, *untrue]
    return gone


def _known_entries(found: LoadState, partition: Partition, keys: Collection[str]) -> list[KnownFile]:
    """Return the known entries of some files."""
    known = found.known.get(partition, ())
    return [k for k in known if k.where is not Where.TABLE and k.key in keys]


def _beside(load: Load, found: LoadState) -> list[Entries]:
    return [e for e in found.entries if e.partition is None and load.table.partitioned_by]


def _entries_of_files(load: Load, faults: Sequence[FileFault]) -> pa.Table:
    """Return entries about whole files."""
    values = quarantine_table.values_of_files(load.asset, load.code_version, faults)
    return pa.Table.from_pylist([dict(zip(ENTERED, each, strict=True)) for each in values], schema=_SCHEMA)


def _entries_of_rows(load: Load, rejected: pa.Table, first_rows: Mapping[str, Sequence[FirstRow]]) -> pa.Table:
    """Return entries about rejected rows; see `quarantine_table.of_rows`."""
    firsts = {(key, at.block): at for key, all_at in first_rows.items() for at in all_at}
    places = zip(*(rejected[name].to_pylist() for name in ("source_file", "_block", "_row")), strict=True)
    numbers = [row - firsts[key, block].row + firsts[key, block].rows_before + 1 for key, block, row in places]
    columns = {
        "asset": pa.repeat(pa.scalar(load.asset), rejected.num_rows),
        "partition": rejected["_partition"],
        **{name: rejected[name] for name in LINEAGE},
        "row_number": pa.array(numbers, pa.int64()),
        **{name: rejected[f"_{name}"] for name in ("content", "reason", "message")},
    }
    return pa.table([columns[name] for name in ENTERED], ENTERED).cast(_SCHEMA)


def _commit_entries(
    spark: SparkSession, load: Load, entries: pa.Table, gone: Mapping[Partition, Collection[KnownFile]], run_id: str
) -> None:
    """Add entries and remove the entries of some files, in one commit; see `quarantine_table.replace`.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    if _appended(spark, load, entries, gone, run_id):
        return
    # Spark creates no frame from an empty table.
    frame = spark.createDataFrame(entries) if entries.num_rows else quarantine_table.of_files(spark, load.asset, "", [])
    quarantine_table.replace(frame, load.asset, gone, run_id=run_id, table=load.quarantine)


def _appended(
    spark: SparkSession, load: Load, entries: pa.Table, gone: Mapping[Partition, Collection[KnownFile]], run_id: str
) -> bool:
    """Append the entries that do not exist yet. Return False if Spark must merge them; then nothing is written."""
    table = load.quarantine
    lake = None if table.branch else metadata_reads.catalog_of(spark)
    if lake is None:
        return False

    def _attempt() -> bool:
        quarantine = Appendable(lake, table, writes=False)
        new = _new(spark, load, entries, gone, quarantine.head)
        if new is not None and new.num_rows:
            now = pa.repeat(pa.scalar(datetime.now(UTC), _TYPES["timestamp"]), new.num_rows)
            rows = new.append_column("quarantined_at", now)
            quarantine.commit(TableCommit(rows, properties={write.RUN_ID: run_id}))
            write.commit_of(spark, table, run_id)
        return new is not None

    try:
        return until_committed(_attempt, table.name)
    except CommitConflict:
        raise
    except Exception as error:  # the catalog or the store: Spark may reach it, and reports it otherwise
        # If this commit has succeeded despite the error, the MERGE finds these entries and adds none.
        logger.warning("%s: Spark enters the rejected rows, because of %s", table.name, error_line(error))
        return False


def _new(
    spark: SparkSession,
    load: Load,
    entries: pa.Table,
    gone: Mapping[Partition, Collection[KnownFile]],
    head: int | None,
) -> pa.Table | None:
    """Return the entries that do not exist at a snapshot; None if existing entries must be changed or removed."""
    keys = _tuples(entries, QUARANTINE.row_key)
    if head is None:
        return entries
    where = [{"asset": load.asset, "partition": partition} for partition in gone]
    there = metadata_reads.few_rows(spark, load.quarantine, (*QUARANTINE.row_key, *SAID), where, head)
    if there is None or there.num_rows > _MOST_COMPARED:
        return None
    held = dict(zip(_tuples(there, QUARANTINE.row_key), _tuples(there, SAID), strict=True))
    leaving = {
        (p, k.key, k.version, k.loaded_by, k.where is Where.WHOLE_FILE) for p, files in gone.items() for k in files
    }
    stays = set(keys)
    if any((*key[1:-1], key[-1] is None) in leaving and key not in stays for key in held):
        return None
    is_new = [key not in held for key in keys]
    said = _tuples(entries, SAID)
    if any(not new and held[key] != text for new, key, text in zip(is_new, keys, said, strict=True)):
        return None
    return entries.filter(pa.array(is_new, pa.bool_()))


def _tuples(rows: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))
