"""Rejected rows and files of a load: counts, and the quarantine entries before and after the table's commit.

Belongs here: the choice and order of the entries to write. Does not belong here: the entries themselves
(`quarantine_table`), and the rules that reject rows and files (`validation`, `probe`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading import quarantine_entries, quarantine_table
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, LoadStep, Where
from dagster_tidemark.lakehouse.loading.load_state import LoadState
from dagster_tidemark.lakehouse.loading.provenance import Entries
from dagster_tidemark.lakehouse.loading.quarantine_table import NO_ROWS, FirstRow
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.readers.batch import FileBatch
from dagster_tidemark.lakehouse.readers.files import FileFault, SourceFile
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.removals import RemovedFiles


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
    gone = {p: _entries_of(found, p, step.forgotten) for p, step in found.steps.items() if step.forgotten}
    gone |= {f.partition: gone.get(f.partition, []) for f in entered.whole | entered.in_part}
    if not gone:
        return entered
    firsts = first_rows(tally)
    if firsts and isinstance(rejected, DataFrame):
        entries = entries_of(load, reading, rejected, tally)
        quarantine_table.replace(entries, load.asset, gone, run_id=run_id, table=load.quarantine)
        return entered
    here = quarantine_entries.of_files(load.asset, load.code_version, reading.faults)
    if firsts:
        here = pa.concat_tables([here, quarantine_entries.of_rows(rejected, load.asset, firsts)])
    quarantine_entries.enter(reading.spark, here, load.asset, gone, run_id=run_id, table=load.quarantine)
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
        entries = quarantine_entries.of_files(load.asset, load.code_version, missing)
        quarantine_entries.enter(
            spark,
            entries,
            load.asset,
            {x.file.partition: [] for x in missing},
            run_id=run_id,
            table=load.quarantine,
        )


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
        entries = quarantine_entries.of_files(load.asset, load.code_version, faults)
        quarantine_entries.enter(spark, entries, load.asset, gone, run_id=run_id, table=load.quarantine)


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
        expired = _entries_of(found, partition, fate.expired - with_rows)
        without_rows = (e.file for e in found.entries if e.partition == partition and e.reason == NO_ROWS)
        untrue = [k for k in without_rows if k._replace(where=Where.TABLE) in known]
        if expired or untrue:
            gone[partition] = [*expired, *untrue]
    return gone


def _entries_of(found: LoadState, partition: Partition, keys: Collection[str]) -> list[KnownFile]:
    """Return the known entries of some files."""
    known = found.known.get(partition, ())
    return [k for k in known if k.where is not Where.TABLE and k.key in keys]


def _beside(load: Load, found: LoadState) -> list[Entries]:
    return [e for e in found.entries if e.partition is None and load.table.partitioned_by]
