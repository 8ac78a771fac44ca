"""Old snapshots expire in the wake of commits, so that a table's metadata stay bounded however many commits it gets.

Belongs here: when, and which. Does not belong here: how many a table keeps (`tables.Retention`), what becomes of a run
that still holds one that expired (`read`, `write`), and other maintenance.
"""

import logging
from collections.abc import Collection

from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.session import without_token
from dagster_tidemark.lakehouse.table import CATALOG, Retention, Table

logger = logging.getLogger(__name__)


def cutoff(keeps: Retention, committed_at: Collection[int], now: int) -> int | None:
    """The time before which snapshots are to expire; None if it is not the turn of any.

    Where that fails, not every commit is held up by trying again: a tenth of a batch of commits lies between.

    Args:
        committed_at: When each snapshot was made, in milliseconds.
    """
    held_since = now - round(keeps.held_for.total_seconds() * 1000)
    old = [at for at in committed_at if at < held_since]
    # The last of the old ones was still the current one then.
    expirable = min(len(committed_at) - keeps.newest, len(old) - 1)
    is_due = expirable >= keeps.batch and len(committed_at) % max(1, keeps.batch // 10) == 0
    return max(old) if is_due else None


def expire(spark: SparkSession, table: Table, committed_at: Collection[int], now: int) -> None:
    """Let old snapshots expire if there are many, with the files that nothing but they need.

    Nothing that goes wrong here fails the commit that came before: it is logged, and a later commit tries again.
    """
    before = cutoff(table.retention, committed_at, now)
    if before is None:
        return
    try:
        [deleted] = spark.sql(
            f"CALL {CATALOG}.system.expire_snapshots(table => '{table.name}', "
            f"older_than => timestamp_millis({before}), retain_last => {table.retention.newest})"
        ).collect()
    except Exception as error:  # of the engine, the catalog or the store
        said = without_token(str(error)).partition("\n")[0]
        logger.warning("%s: of %d snapshots the old ones did not expire: %s", table.name, len(committed_at), said)
    else:
        logger.info("%s: of %d snapshots the old ones expired, %d files", table.name, len(committed_at), sum(deleted))
