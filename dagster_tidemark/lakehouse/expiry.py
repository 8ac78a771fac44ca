"""Expiry of old snapshots after commits. It keeps a table's metadata small after any number of commits.

Belongs here: when to expire, and which snapshots. Does not belong here: how many snapshots a table keeps
(`table.Retention`), the errors of a run whose snapshot has expired (`read`, `write`), and other maintenance.
"""

import logging
from collections.abc import Collection

from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.session import without_token
from dagster_tidemark.lakehouse.table import CATALOG, Retention, Table

logger = logging.getLogger(__name__)


def cutoff(keeps: Retention, committed_at: Collection[int], now: int) -> int | None:
    """Return the time before which snapshots must expire; None if no expiry is due.

    A failed expiry is tried again after a tenth of a batch of commits, so that it does not delay every commit.

    Args:
        committed_at: Commit times of all snapshots, in milliseconds.
        now: The current time, in milliseconds.
    """
    held_since = now - round(keeps.held_for.total_seconds() * 1000)
    old = [at for at in committed_at if at < held_since]
    # The newest of the old snapshots stays, because it was still current at `held_since`.
    expirable = min(len(committed_at) - keeps.newest, len(old) - 1)
    is_due = expirable >= keeps.batch and len(committed_at) % max(1, keeps.batch // 10) == 0
    return max(old) if is_due else None


def expire(spark: SparkSession, table: Table, committed_at: Collection[int], now: int) -> None:
    """Expire old snapshots if there are many, and delete the files that only they need.

    An error does not fail the commit: it is logged, and a later commit tries again.
    """
    before = cutoff(table.retention, committed_at, now)
    if before is None:
        return
    try:
        [deleted] = spark.sql(
            f"CALL {CATALOG}.system.expire_snapshots(table => '{table.name}', "
            f"older_than => timestamp_millis({before}), retain_last => {table.retention.newest})"
        ).collect()
    except Exception as error:  # the engine, the catalog or the store fails
        said = without_token(str(error)).partition("\n")[0]
        logger.warning("%s: the old ones of %d snapshots could not be expired: %s", table.name, len(committed_at), said)
    else:
        logger.info(
            "%s: expired the old ones of %d snapshots, and %d files", table.name, len(committed_at), sum(deleted)
        )
