"""Which rows of a feed are good: from texts to typed values and a verdict on each row.

Belongs here: what a feed's declaration says of its rows. Does not belong here: how files are read, and what
becomes of the rows.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.lakehouse.files import SourceFile
from pipelines.lakehouse.tables import LINEAGE, Table
from pipelines.sources.feed import Feed


def judge(read: DataFrame, feed: Feed, table: Table, files: Sequence[SourceFile], *, loaded_by: str) -> DataFrame:
    """Landing rows with a verdict.

    One row per row read: the feed's columns in their declared types, the partition column, lineage, `reason`
    and `message` (null for a good row), `content` (the row as it was, null for a good row) and `wins`: of good
    rows with the same key the one of the highest (arrived_at, source_file, position in the file).

    Args:
        read: What `files.read_files` found: every value a text.
        loaded_by: The code version that loads.
    """
    lineage = read.sparkSession.createDataFrame(
        [(f.key, f.version, f.arrived_at, loaded_by, f.partition) for f in files],
        "source_file string, source_version string, arrived_at timestamp, loaded_by string, partition string",
    )
    rows = read.join(F.broadcast(lineage), on="source_file", how="inner").withColumnsRenamed(
        {c: f"text_{c}" for c in feed.columns}
    )
    rows = rows.withColumns({c: typed(F.col(f"text_{c}"), kind) for c, kind in feed.columns.items()})
    if table.partitioned_by:
        rows = rows.withColumn(table.partitioned_by, F.expr(table.partition_start_sql("partition")))
    rows = rows.withColumn("verdict", F.coalesce(*_verdicts(feed)))
    good = F.col("verdict").isNull()
    newest_first = [F.desc(c) for c in ("arrived_at", "source_file", "block", "row")]
    same_key = Window.partitionBy(good, *table.row_key).orderBy(*newest_first)
    as_it_was = F.to_json(F.struct(*(F.col(f"text_{c}").alias(c) for c in feed.columns)))
    return rows.select(
        *feed.columns,
        *([table.partitioned_by] if table.partitioned_by else []),
        *LINEAGE,
        "partition",
        "block",
        "row",
        F.col("verdict.reason").alias("reason"),
        F.col("verdict.message").alias("message"),
        F.when(~good, F.coalesce("malformed", as_it_was)).alias("content"),
        (F.row_number().over(same_key) == 1).alias("wins"),
    )


def typed(text: Column, kind: str) -> Column:
    """A text as a value of a declared type; null where it is none."""
    trimmed = F.trim(text)
    if kind == "string":
        return F.nullif(text, F.lit(""))
    if kind == "bigint":
        # 3.0 is three, as a spreadsheet writes it; 2.7 is no count, where a cast alone would cut it to 2.
        exact = trimmed.try_cast("decimal(38,18)")
        return F.when(exact == F.floor(exact), exact.try_cast("bigint"))
    return trimmed.try_cast(kind)


def _verdicts(feed: Feed) -> list[Column]:
    """For each thing that can be wrong with a row, a column that is null unless it is."""

    def when(condition: Column, reason: str, message: str | Column) -> Column:
        said = F.lit(message) if isinstance(message, str) else message
        return F.when(condition, F.struct(F.lit(reason).alias("reason"), said.alias("message")))

    def is_filled(c: str) -> Column:
        return F.coalesce(F.trim(f"text_{c}") != "", F.lit(False))

    return [
        when(F.col("malformed").isNotNull(), "malformed", "the line is no row of this file"),
        *(
            when(is_filled(c) & F.col(c).isNull(), "bad_type", F.concat(F.lit(f"{c} is no {kind}: "), f"text_{c}"))
            for c, kind in feed.columns.items()
        ),
        *(when(F.col(c).isNull(), "null_value", f"{c} is missing") for c in feed.required),
        *(
            when(~F.coalesce(F.expr(rule), F.lit(False)), reason, f"a good row has {rule}")
            for reason, rule in feed.rules.items()
        ),
    ]
