"""Table of operators' decisions to accept rejections, ops/waivers.

A waiver is about a version of a file and a reason. It stays valid if any code reads that version again. It does not
cover later versions of the file. Does not belong here: rejected rows and files (`quarantine_table`).
"""

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog, write
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.table import Table

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


def same_thing(entry: str, waiver: str) -> str:
    """Return a SQL condition that is true if a waiver covers a quarantine entry. The arguments are their aliases."""
    return " AND ".join(f"{entry}.{c} = {waiver}.{c}" for c in WAIVERS.row_key)


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
