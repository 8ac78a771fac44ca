"""Tables of rejected rows and files, ops/quarantine, and of operators' decisions to accept rejections, ops/waivers.

An entry is about a row. If `row_number` is null, the entry is about a whole file. A waiver is about a version of a file
and a reason. It stays valid if any code reads that version again. It does not cover later versions of the file.

Belongs here: how loads replace entries, and how operators waive them. Does not belong here: the rules that reject rows
and files (`validation`, `probe`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, Where
from dagster_tidemark.lakehouse.partitioning import text_literal
from dagster_tidemark.lakehouse.readers.files import FileFault
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.sources.feed import Partition

NO_ROWS = "no rows"
"""Reason of an entry about a file that has no row in the table and no fault. The entry makes the file known."""

FILE = ("source_file", "source_version", "loaded_by")
"""Columns of the lineage that name a version of a file, and the run that read it."""

QUARANTINE = Table(
    name="ops.quarantine",
    columns={"asset": "string", "partition": "string"}
    | LINEAGE
    | {
        "row_number": "bigint",
        "content": "string",
        "reason": "string",
        "message": "string",
        "quarantined_at": "timestamp",
    },
    # The key has file version and code version, because overlapping runs may differ in both, and must not change each
    # other's entries.
    row_key=("asset", "partition", *FILE, "row_number"),
    comment="A rejected row or file, with the reason",
    stored_by=("asset", "partition"),
)

WAIVERS = Table(
    name="ops.waivers",
    columns={
        "asset": "string",
        "source_file": "string",
        "source_version": "string",
        "reason": "string",
        "because": "string",
        "waived_at": "timestamp",
    },
    row_key=("asset", "source_file", "source_version", "reason"),
    comment="A rejection of a file version that an operator has accepted, with the reason",
)

IS_WAIVED = " AND ".join(f"q.{c} = w.{c}" for c in WAIVERS.row_key)
"""SQL condition that is true if the waiver `w` covers the entry `q`."""

SAID = ("content", "reason", "message")
ENTERED = [c for c in QUARANTINE.columns if c != "quarantined_at"]
"""Columns of an entry, without the time when it was committed."""


@dataclass(frozen=True)
class FirstRow:
    """First row of a block of a file: the smallest row id, and the number of rows in earlier blocks."""

    block: int
    row: int
    rows_before: int


def values_of_files(asset: str, code_version: str, faults: Sequence[FileFault]) -> list[tuple[object, ...]]:
    """Return the values of the columns `ENTERED`, one tuple per entry about a whole file."""
    return [
        (asset, f.partition, f.key, f.version, f.arrived_at, code_version, None, None, x.reason, x.message)
        for x in faults
        for f in [x.file]
    ]


def of_files(spark: SparkSession, asset: str, code_version: str, faults: Sequence[FileFault]) -> DataFrame:
    """Return entries about whole files."""
    columns = ", ".join(f"{c} {QUARANTINE.columns[c]}" for c in ENTERED)
    return spark.createDataFrame(values_of_files(asset, code_version, faults), columns)


def of_rows(rejected: DataFrame, asset: str, first_rows: Mapping[str, Sequence[FirstRow]]) -> DataFrame:
    """Return entries about rejected rows. Row numbers start at 1 and skip the header and blank lines.

    Args:
        rejected: Rejected rows of `validation.judge`, each with its `_content`.
        first_rows: First rows of the blocks, by file. They are needed to convert row ids to row numbers.
    """
    firsts = rejected.sparkSession.createDataFrame(
        [(key, at.block, at.row, at.rows_before) for key, all_at in first_rows.items() for at in all_at],
        "source_file string, _block bigint, _first bigint, _before bigint",
    )
    return rejected.join(F.broadcast(firsts), on=["source_file", "_block"], how="inner").select(
        F.lit(asset).alias("asset"),
        F.col("_partition").alias("partition"),
        *LINEAGE,
        F.expr("_row - _first + _before + 1").alias("row_number"),
        *(F.col(f"_{c}").alias(c) for c in ("content", "reason", "message")),
    )


def replace(
    entries: DataFrame,
    asset: str,
    gone: Mapping[Partition, Collection[KnownFile]],
    *,
    run_id: str,
    table: Table = QUARANTINE,
) -> None:
    """Add entries and remove the entries of some files, in one commit. Commit nothing if nothing changes.

    Existing entries are not written again. All other entries stay, including entries of other runs.

    Args:
        gone: For each partition that changes, the entries to remove, unless `entries` has them too. A `KnownFile` names
            the version of the file. Its `where` selects the entries about rows or the entry about the whole file.
        table: The quarantine, or a branch of it.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    # The time is a literal, so that each evaluation of the source has the same time.
    entries = entries.withColumns({"quarantined_at": F.lit(datetime.now(UTC)), "_goes": F.lit(False)})
    seen = {(p, *k) for p, files in gone.items() for k in files}
    if seen:
        entries = _changes(entries, asset, seen, table)
        if entries.isEmpty():
            return
    until_committed(
        lambda: write.merge(
            entries,
            table,
            within=partial(within, asset, list(gone)),
            on=_same(QUARANTINE.row_key),
            wins=f"NOT ({_same(SAID)})",
            goes="s._goes",
            run_id=run_id,
        ),
        table.name,
    )


def _changes(
    entries: DataFrame, asset: str, seen: Collection[tuple[Partition, str, str, str, Where]], table: Table
) -> DataFrame:
    """Return the entries that do not exist yet, and the keys of the entries to remove."""
    spark = entries.sparkSession
    there = spark.table(table.rows_identifier).alias("t").where(within(asset, {p for p, *_ in seen}))
    named = [(*file, where is Where.WHOLE_FILE) for *file, where in sorted(seen, key=repr)]
    columns = ", ".join(f"{c} string" for c in ("partition", *FILE))
    files = spark.createDataFrame(named, f"{columns}, is_whole boolean").alias("s")
    is_named = F.expr(f"{_same(('partition', *FILE))} AND (t.row_number IS NULL) = s.is_whole")
    new = entries.alias("s")
    leaving = (
        there.join(F.broadcast(files), on=is_named, how="left_semi")
        .join(new, on=F.expr(_same(QUARANTINE.row_key)), how="left_anti")
        .select(*QUARANTINE.row_key)
        .distinct()
        .withColumn("_goes", F.lit(True))
    )
    missing = new.join(there, on=F.expr(_same((*QUARANTINE.row_key, *SAID))), how="left_anti")
    return missing.unionByName(leaving, allowMissingColumns=True)


def within(asset: str, partitions: Collection[Partition], of: str | None = "t") -> str:
    """Return a SQL condition that selects the entries of some partitions of an asset.

    Args:
        of: The alias of the entries in the query; None if columns need no alias.
    """
    column = f"{of}." if of else ""
    named = [text_literal(p) for p in sorted(p for p in partitions if p is not None)]
    some = [f"{column}partition IN ({', '.join(named)})"] if named else []
    none = [f"{column}partition IS NULL"] if None in partitions else []
    return f"{column}asset = {text_literal(asset)} AND ({' OR '.join([*some, *none])})"


def _same(columns: Collection[str]) -> str:
    return " AND ".join(f"t.{c} <=> s.{c}" for c in columns)


def waive(entries: DataFrame, because: str, *, run_id: str) -> None:
    """Waive quarantine entries. An existing waiver gets the new reason.

    Args:
        entries: Entries, with at least the columns of the row key of ops/waivers.
        because: The reason.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    spark = entries.sparkSession
    catalog.ensure(spark, WAIVERS)
    rows = entries.select(*WAIVERS.row_key).distinct()
    # The time is a literal, so that each evaluation of the source has the same time.
    rows = rows.withColumns({"because": F.lit(because), "waived_at": F.lit(datetime.now(UTC))})
    on = " AND ".join(f"t.{c} = s.{c}" for c in WAIVERS.row_key)
    until_committed(
        lambda: write.merge(rows, WAIVERS, within=lambda of: "true", on=on, wins="true", run_id=run_id), WAIVERS.name
    )
