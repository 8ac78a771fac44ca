"""What people do about things that were turned away: look at them, send them back, leave them at that.

Everything is said of entries that a selection names. Does not belong here: that partitions are then loaded again
(`sensors.change_detection.ask_again`), and the commands (`dagster_tidemark.cli.quarantine_work`).
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.loading import waivers
from dagster_tidemark.lakehouse.loading.load_plan import AGAIN
from dagster_tidemark.lakehouse.loading.quarantine_table import NO_ROWS, QUARANTINE, quoted
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.loading.waivers import WAIVERS, same_thing
from dagster_tidemark.sources.feed import Partition

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """Some entries of the quarantine; what is not said selects nothing out.

    Args:
        asset: Of this asset only (`core/orders`).
        reasons: For these reasons only.
        since: Those that were entered at this time (UTC) or later.
        file: Of these files; a `*` stands for anything.
        key: Of this file.
    """

    asset: str | None = None
    reasons: Sequence[str] = ()
    since: datetime | None = None
    file: str | None = None
    key: str | None = None

    @property
    def condition(self) -> str:
        """A SQL condition on entries `q`."""
        some = [f"q.reason <> '{NO_ROWS}'"]
        if self.asset:
            some.append(f"q.asset = {quoted(self.asset)}")
        if self.reasons:
            some.append(f"q.reason IN ({', '.join(quoted(reason) for reason in self.reasons)})")
        if self.since:
            some.append(f"q.quarantined_at >= TIMESTAMP '{self.since:%Y-%m-%d %H:%M:%S}'")
        if self.file:
            plain = self.file.replace("!", "!!").replace("%", "!%").replace("_", "!_").replace("*", "%")
            some.append(f"q.source_file LIKE {quoted(plain)} ESCAPE '!'")
        if self.key:
            some.append(f"q.source_file = {quoted(self.key)}")
        return " AND ".join(some)


def entries(spark: SparkSession, selection: Selection) -> DataFrame:
    """One row per entry: the columns of the quarantine, and `because` (why it was waived; null if it was not)."""
    for table in (QUARANTINE, WAIVERS):
        catalog.ensure(spark, table)
    return spark.sql(
        f"SELECT q.*, w.because FROM {QUARANTINE.identifier} q LEFT JOIN {WAIVERS.identifier} w "
        f"ON {same_thing('q', 'w')} WHERE {selection.condition}"
    )


def counts(found: DataFrame) -> DataFrame:
    """One row per asset, reason and whether it is waived: `rows`, `files`, and the oldest entry's `since`."""
    is_waived = F.col("because").isNotNull().alias("waived")
    by = found.groupBy("asset", "reason", is_waived)
    counted = by.agg(
        F.count("row_number").alias("rows"),
        F.countDistinct("source_file").alias("files"),
        F.min("quarantined_at").alias("since"),
    )
    return counted.orderBy("asset", "reason", "waived")


def waived_beside(spark: SparkSession, assets: Collection[str]) -> dict[str, str]:
    """The files and folders beside the partitions that are waived for each of these assets, with their version."""
    found = entries(spark, Selection()).where(F.col("asset").isin(list(assets)) & F.col("partition").isNull())
    by_version = found.groupBy("source_file", "source_version").agg(F.every(F.col("because").isNotNull()).alias("all"))
    return {row.source_file: row.source_version for row in by_version.where("all").collect()}


def send_back(spark: SparkSession, selection: Selection, load: Load) -> list[Partition]:
    """Let entries of a load's asset stand for nothing, so that the next load reads their files again.

    Their partitions are replaced as after a change of code; where rows of files are kept that are no longer there, only
    these files are read. Entries stay until that load. What lies beside the partitions is left out: nobody reads it.

    Returns:
        The partitions that are to be loaded.

    Raises:
        WriteConflict: other writers won each of the attempts.
    """
    condition = replace(selection, asset=load.asset).condition
    if load.table.partitioned_by:
        condition += " AND q.partition IS NOT NULL"
    for attempt in range(1, write.ATTEMPTS + 1):
        found = spark.table(QUARANTINE.identifier).alias("q").where(condition).select("partition").distinct().collect()
        try:
            spark.sql(f"UPDATE {QUARANTINE.identifier} q SET q.loaded_by = {quoted(AGAIN)} WHERE {condition}")
        except PySparkException as error:
            if not write.is_conflict(error):
                raise
            logger.warning("a load wrote to the quarantine of %s (attempt %d)", load.asset, attempt)
        else:
            return sorted((row.partition for row in found), key=str)
    raise write.WriteConflict(QUARANTINE)


def waive(spark: SparkSession, selection: Selection, because: str, *, run_id: str) -> int:
    """Leave these entries at that, with a reason.

    Returns:
        How many entries there are.
    """
    found = entries(spark, selection)
    waivers.waive(found, because, run_id=run_id)
    return found.count()


def unwaive(spark: SparkSession, selection: Selection) -> int:
    """Take back the waivers of these entries.

    Returns:
        How many waivers there were.
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
