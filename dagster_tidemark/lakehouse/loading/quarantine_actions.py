"""Operators' actions on rejected rows and files: list them, send them back, waive them.

Each action applies to a selection of entries. Does not belong here: the request to load partitions again
(`sensors.change_detection.ask_again`), and the commands (`dagster_tidemark.cli.quarantine_work`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.loading import quarantine_table
from dagster_tidemark.lakehouse.loading.load_plan import AGAIN
from dagster_tidemark.lakehouse.loading.quarantine_table import IS_WAIVED, NO_ROWS, QUARANTINE, WAIVERS
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.partitioning import text_literal
from dagster_tidemark.sources.feed import Partition


@dataclass(frozen=True)
class Selection:
    """Selection of quarantine entries. By default all entries are selected.

    Args:
        asset: The asset of the entries (`core/orders`).
        reasons: The accepted reasons.
        since: The earliest `quarantined_at` (UTC).
        file: Pattern of file keys; `*` matches any text.
        key: Key of one file.
    """

    asset: str | None = None
    reasons: Sequence[str] = ()
    since: datetime | None = None
    file: str | None = None
    key: str | None = None

    @property
    def condition(self) -> str:
        """SQL condition on the entries, which have the alias `q`."""
        some = [f"q.reason <> '{NO_ROWS}'"]
        if self.asset:
            some.append(f"q.asset = {text_literal(self.asset)}")
        if self.reasons:
            some.append(f"q.reason IN ({', '.join(text_literal(reason) for reason in self.reasons)})")
        if self.since:
            some.append(f"q.quarantined_at >= TIMESTAMP '{self.since:%Y-%m-%d %H:%M:%S}'")
        if self.file:
            plain = self.file.replace("!", "!!").replace("%", "!%").replace("_", "!_").replace("*", "%")
            some.append(f"q.source_file LIKE {text_literal(plain)} ESCAPE '!'")
        if self.key:
            some.append(f"q.source_file = {text_literal(self.key)}")
        return " AND ".join(some)


def entries(spark: SparkSession, selection: Selection) -> DataFrame:
    """Return one row per entry: the columns of the quarantine, and `because` (the reason of the waiver, or null)."""
    for table in (QUARANTINE, WAIVERS):
        catalog.ensure(spark, table)
    return spark.sql(
        f"SELECT q.*, w.because FROM {QUARANTINE.identifier} q LEFT JOIN {WAIVERS.identifier} w "
        f"ON {IS_WAIVED} WHERE {selection.condition}"
    )


def counts(found: DataFrame) -> DataFrame:
    """Return one row per asset, reason and `waived`: `rows`, `files`, and the oldest entry's time as `since`."""
    is_waived = F.col("because").isNotNull().alias("waived")
    by = found.groupBy("asset", "reason", is_waived)
    counted = by.agg(
        F.count("row_number").alias("rows"),
        F.countDistinct("source_file").alias("files"),
        F.min("quarantined_at").alias("since"),
    )
    return counted.orderBy("asset", "reason", "waived")


def waived_beside(spark: SparkSession, assets: Collection[str]) -> dict[str, str]:
    """Return the misplaced files and folders whose entries of the given assets are all waived, with their versions."""
    found = entries(spark, Selection()).where(F.col("asset").isin(list(assets)) & F.col("partition").isNull())
    by_version = found.groupBy("source_file", "source_version").agg(F.every(F.col("because").isNotNull()).alias("all"))
    return {row.source_file: row.source_version for row in by_version.where("all").collect()}


def send_back(spark: SparkSession, selection: Selection, load: Load) -> list[Partition]:
    """Mark entries of a load's asset as sent back, so that the next load reads their files again.

    The next load replaces the partitions of the entries, as after a change of code. If a partition keeps rows of files
    that no longer exist, the load reads only the files of the entries. The entries stay until then. Misplaced files are
    skipped, because loads do not read them.

    Returns:
        The partitions to load.

    Raises:
        CommitConflict: in each attempt, another writer committed first.
    """
    condition = replace(selection, asset=load.asset).condition
    if load.table.partitioned_by:
        condition += " AND q.partition IS NOT NULL"

    def _marked() -> list[Partition]:
        found = spark.table(QUARANTINE.identifier).alias("q").where(condition).select("partition").distinct().collect()
        try:
            spark.sql(f"UPDATE {QUARANTINE.identifier} q SET q.loaded_by = {text_literal(AGAIN)} WHERE {condition}")
        except PySparkException as error:
            raise write.as_conflict(error, QUARANTINE) from error
        return sorted((row.partition for row in found), key=str)

    return until_committed(_marked, QUARANTINE.name)


def waive(spark: SparkSession, selection: Selection, because: str, *, run_id: str) -> int:
    """Waive entries, with a reason.

    Returns:
        The number of waived entries.
    """
    found = entries(spark, selection)
    quarantine_table.waive(found, because, run_id=run_id)
    return found.count()


def unwaive(spark: SparkSession, selection: Selection) -> int:
    """Remove the waivers of entries.

    Returns:
        The number of removed waivers.
    """
    waived = entries(spark, selection).where("because IS NOT NULL").select(*WAIVERS.row_key).distinct()
    count = waived.count()
    waived.createOrReplaceTempView("unwaived")
    on = " AND ".join(f"t.{c} = s.{c}" for c in WAIVERS.row_key)
    try:
        spark.sql(f"MERGE INTO {WAIVERS.identifier} t USING unwaived s ON {on} WHEN MATCHED THEN DELETE")
    finally:
        spark.catalog.dropTempView("unwaived")
    return count
