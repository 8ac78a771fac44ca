"""Quarantine entries that this process has in memory, and their commit without Spark.

New entries are appended in one commit of pyiceberg, which takes a tenth of the time of Spark's MERGE. It succeeds only
if no other writer has committed since the existing entries were read. Spark merges the entries (`quarantine_table`) if
existing ones must be changed or removed, or if this process cannot commit. Does not belong here: the choice of the
entries (`rejected_rows`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import metadata_reads, write
from dagster_tidemark.lakehouse.append import Appendable, TableCommit
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.lakehouse.loading import quarantine_table
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, Where
from dagster_tidemark.lakehouse.loading.quarantine_table import ENTERED, QUARANTINE, SAID, FirstRow
from dagster_tidemark.lakehouse.readers.files import FileFault
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.sources.feed import Partition

_MOST_COMPARED = 20_000
"""Largest number of existing entries that are compared here. Spark compares more entries faster."""

_TYPES = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
_SCHEMA = pa.schema([(name, _TYPES[QUARANTINE.columns[name]]) for name in ENTERED])

logger = logging.getLogger(__name__)


def of_files(asset: str, code_version: str, faults: Sequence[FileFault]) -> pa.Table:
    """Return entries about whole files."""
    values = quarantine_table.values_of_files(asset, code_version, faults)
    return pa.Table.from_pylist([dict(zip(ENTERED, each, strict=True)) for each in values], schema=_SCHEMA)


def of_rows(rejected: pa.Table, asset: str, first_rows: Mapping[str, Sequence[FirstRow]]) -> pa.Table:
    """Return entries about rejected rows; see `quarantine_table.of_rows`."""
    firsts = {(key, at.block): at for key, all_at in first_rows.items() for at in all_at}
    places = zip(*(rejected[name].to_pylist() for name in ("source_file", "_block", "_row")), strict=True)
    numbers = [row - firsts[key, block].row + firsts[key, block].rows_before + 1 for key, block, row in places]
    columns = {
        "asset": pa.repeat(pa.scalar(asset), rejected.num_rows),
        "partition": rejected["_partition"],
        **{name: rejected[name] for name in LINEAGE},
        "row_number": pa.array(numbers, pa.int64()),
        **{name: rejected[f"_{name}"] for name in ("content", "reason", "message")},
    }
    return pa.table([columns[name] for name in ENTERED], ENTERED).cast(_SCHEMA)


def enter(
    spark: SparkSession,
    entries: pa.Table,
    asset: str,
    gone: Mapping[Partition, Collection[KnownFile]],
    *,
    run_id: str,
    table: Table = QUARANTINE,
) -> None:
    """Add entries and remove the entries of some files, in one commit; see `quarantine_table.replace`.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    if not _appended(spark, entries, asset, gone, run_id, table):
        # Spark creates no frame from an empty table.
        frame = spark.createDataFrame(entries) if entries.num_rows else quarantine_table.of_files(spark, asset, "", [])
        quarantine_table.replace(frame, asset, gone, run_id=run_id, table=table)


def _appended(
    spark: SparkSession,
    entries: pa.Table,
    asset: str,
    gone: Mapping[Partition, Collection[KnownFile]],
    run_id: str,
    table: Table,
) -> bool:
    """Append the entries that do not exist yet. Return False if Spark must merge them; then nothing is written."""
    lake = None if table.branch else metadata_reads.catalog_of(spark)
    if lake is None:
        return False

    def _attempt() -> bool:
        quarantine = Appendable(lake, table, writes=False)
        new = _new(spark, entries, asset, gone, table, quarantine.head)
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
    entries: pa.Table,
    asset: str,
    gone: Mapping[Partition, Collection[KnownFile]],
    table: Table,
    head: int | None,
) -> pa.Table | None:
    """Return the entries that do not exist at a snapshot; None if existing entries must be changed or removed."""
    keys = _tuples(entries, QUARANTINE.row_key)
    if head is None:
        return entries
    where = [{"asset": asset, "partition": partition} for partition in gone]
    there = metadata_reads.few_rows(spark, table, (*QUARANTINE.row_key, *SAID), where, head)
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
