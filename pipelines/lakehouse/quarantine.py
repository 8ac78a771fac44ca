"""The table of what was turned away, ops/quarantine: its entries and how they are replaced.

An entry is about a row, or, where `row_number` is null, about a file as a whole. Does not belong here: who decides
what is turned away.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.lakehouse import write
from pipelines.lakehouse.files import FileFault
from pipelines.lakehouse.tables import LINEAGE, Table
from pipelines.sources.feed import Partition

NO_ROWS = "no rows"
"""The reason of a file that is all right and left no row: known, and no fault."""

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
    row_key=("asset", "partition", "source_file", "row_number"),
    comment="A rejected row or file, with the reason",
    # Replaced per asset and partition, which a row-level overwrite can only do along file borders.
    stored_by=("asset", "partition"),
)

_ENTERED = [c for c in QUARANTINE.columns if c != "quarantined_at"]


@dataclass(frozen=True)
class FirstRow:
    """The smallest row id of a block of a file, and how many rows stand in the blocks before it."""

    block: int
    row: int
    rows_before: int


def entries_of(asset: str, partitions: Collection[Partition]) -> str:
    """A SQL condition that is true for the entries of these partitions of an asset."""
    if None in partitions:
        return f"asset = '{asset}' AND partition IS NULL"
    return f"asset = '{asset}' AND partition IN ({', '.join(map(quoted, sorted(map(str, partitions))))})"


def of_files(spark: SparkSession, asset: str, code_version: str, faults: Sequence[FileFault]) -> DataFrame:
    """Entries about whole files."""
    return spark.createDataFrame(
        [
            (asset, f.partition, f.key, f.version, f.arrived_at, code_version, None, None, x.reason, x.message)
            for x in faults
            for f in [x.file]
        ],
        ", ".join(f"{c} {QUARANTINE.columns[c]}" for c in _ENTERED),
    )


def of_rows(judged: DataFrame, asset: str, first_rows: Mapping[str, Sequence[FirstRow]]) -> DataFrame:
    """Entries about the rows that were turned away. Row numbers count from 1, without header and blank lines.

    Args:
        judged: What `judge.judge` found.
        first_rows: Of each file that has such rows; ids of rows in text are only increasing, with these they number.
    """
    firsts = judged.sparkSession.createDataFrame(
        [(key, at.block, at.row, at.rows_before) for key, all_at in first_rows.items() for at in all_at],
        "source_file string, _block bigint, _first bigint, _before bigint",
    )
    return (
        judged.where("_reason IS NOT NULL")
        .join(F.broadcast(firsts), on=["source_file", "_block"], how="inner")
        .select(
            F.lit(asset).alias("asset"),
            F.col("_partition").alias("partition"),
            *LINEAGE,
            F.expr("_row - _first + _before + 1").alias("row_number"),
            *(F.col(f"_{c}").alias(c) for c in ("content", "reason", "message")),
        )
    )


def replace(entries: DataFrame, asset: str, left: Mapping[Partition, Collection[str]], *, run_id: str) -> None:
    """Make these the entries of some partitions, beside those of the files that are left.

    Args:
        left: For each of the partitions the keys of the files whose entries stay, unless the same is entered anew.

    Raises:
        WriteConflict: other writers won each of the attempts.
    """
    predicate = entries_of(asset, list(left))
    entries = entries.withColumn("quarantined_at", F.now())
    staying = [
        f"(partition <=> {quoted(partition)} AND source_file IN ({', '.join(map(quoted, sorted(keys)))}))"
        for partition, keys in left.items()
        if keys
    ]
    if staying:
        # Read anew by each attempt to write.
        before = entries.sparkSession.table(QUARANTINE.identifier).where(f"{predicate} AND ({' OR '.join(staying)})")
        # An overlapping run may have entered the same.
        same = [F.expr(f"before.{c} <=> entered.{c}") for c in ("partition", "source_file", "row_number")]
        entries = entries.unionByName(before.alias("before").join(entries.alias("entered"), on=same, how="left_anti"))
    write.replace_where(entries, QUARANTINE, predicate, run_id=run_id)


def quoted(text: str | None) -> str:
    """A text as a SQL literal."""
    if text is None:
        return "NULL"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
