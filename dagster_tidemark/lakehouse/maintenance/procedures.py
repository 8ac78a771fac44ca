"""The work of maintenance: Iceberg's procedures, called through Spark.

Belongs here: the calls, their arguments, and their results. Does not belong here: when an action is due (`due`), the
order of tables, and the record of results.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from pyiceberg.table import Table as IcebergTable
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.maintenance.due import Action, MaintenancePolicy, TableFacts
from dagster_tidemark.lakehouse.maintenance.facts import small_below
from dagster_tidemark.lakehouse.maintenance.maintenance_table import (
    CONFLICT,
    DONE,
    NOTHING,
    ActionResult,
)
from dagster_tidemark.lakehouse.maintenance.orphans import MOST_CANDIDATES, OrphanSearch, removable
from dagster_tidemark.lakehouse.session import without_token
from dagster_tidemark.lakehouse.table import CATALOG, Table
from dagster_tidemark.lakehouse.write import as_conflict

_CODEC = "write.parquet.compression-codec"
_CODEC_OF_SESSION = "spark.sql.iceberg.compression-codec"
_ATTEMPTS = 3
_MANIFEST_GONE = "could not be found in the latest snapshot"
"""Iceberg's message if another commit has replaced a manifest that is being rewritten."""
_FILES = "maintenance_orphans"


def perform(
    spark: SparkSession,
    declared: Table,
    found: IcebergTable,
    action: Action,
    facts: TableFacts,
    policy: MaintenancePolicy,
    *,
    searched: OrphanSearch | None = None,
    now: float = 0.0,
    held_since: float = 0.0,
) -> ActionResult:
    """Run one action on a table. If another writer commits at the same time, repeat the action, not the writer's work.

    Args:
        found: The table's metadata.
        searched: The last search for orphan files.
        now: Unix seconds.
        held_since: Files that were first found to be orphans after this time stay (Unix seconds).

    Raises:
        PySparkException: the procedure failed.
    """
    work: Mapping[Action, Callable[[], ActionResult]] = {
        Action.COMPACT: lambda: _compact(spark, declared, found, policy),
        Action.DELETES: lambda: _rewrite_deletes(spark, declared),
        Action.MANIFESTS: lambda: _rewrite_manifests(spark, declared),
        Action.EXPIRE: lambda: _expire(spark, declared, facts.expirable),
        Action.ORPHANS: lambda: _remove_orphans(spark, declared, found, policy, searched, now, held_since),
    }
    lost = ""
    for _ in range(_ATTEMPTS):
        try:
            return work[action]()
        except PySparkException as error:
            is_conflict = isinstance(as_conflict(error, declared), CommitConflict) or _MANIFEST_GONE in str(error)
            if not is_conflict:
                raise
            lost = without_token(str(error)).partition("\n")[0]
    return ActionResult(CONFLICT, message=f"other writers committed first, {_ATTEMPTS} times: {lost}")


def _call(spark: SparkSession, procedure: Action, table: Table, **arguments: str) -> list[Row]:
    given = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    return spark.sql(f"CALL {CATALOG}.system.{procedure}(table => '{table.name}', {given})").collect()


def _options(**options: object) -> str:
    given = ", ".join(f"'{name.replace('_', '-')}', '{value}'" for name, value in options.items())
    return f"map({given})"


def _compact(spark: SparkSession, table: Table, found: IcebergTable, policy: MaintenancePolicy) -> ActionResult:
    options = _options(
        min_input_files=policy.together,
        min_file_size_bytes=small_below(found, policy),
        delete_file_threshold=3,  # rows with many deleted positions are written again without them
        remove_dangling_deletes="true",
        max_files_to_rewrite=policy.files_at_once,
    )
    with _same_codec(spark, found):
        [row] = _call(spark, Action.COMPACT, table, options=options)
    if row.failed_data_files_count:
        raise PySparkException(f"{row.failed_data_files_count} files could not be rewritten")
    return ActionResult(
        DONE if row.rewritten_data_files_count else NOTHING,
        files_removed=row.rewritten_data_files_count + row.removed_delete_files_count,
        files_added=row.added_data_files_count,
        bytes_rewritten=row.rewritten_bytes_count,
    )


@contextmanager
def _same_codec(spark: SparkSession, found: IcebergTable) -> Iterator[None]:
    """Write with the codec of the table's other files.

    Streams create their tables without the property that names it. Then pyiceberg writes zstd, but Spark gzip, which
    makes a scan take half as long again.
    """
    if _CODEC in found.properties:
        yield
        return
    spark.conf.set(_CODEC_OF_SESSION, "zstd")
    try:
        yield
    finally:
        spark.conf.unset(_CODEC_OF_SESSION)


def _rewrite_deletes(spark: SparkSession, table: Table) -> ActionResult:
    [row] = _call(spark, Action.DELETES, table, options=_options(min_input_files=2))
    return ActionResult(
        DONE if row.rewritten_delete_files_count else NOTHING,
        files_removed=row.rewritten_delete_files_count,
        files_added=row.added_delete_files_count,
        bytes_rewritten=row.rewritten_bytes_count,
    )


def _rewrite_manifests(spark: SparkSession, table: Table) -> ActionResult:
    [row] = _call(spark, Action.MANIFESTS, table, use_caching="false")
    return ActionResult(
        DONE if row.rewritten_manifests_count else NOTHING,
        files_removed=row.rewritten_manifests_count,
        files_added=row.added_manifests_count,
    )


def _expire(spark: SparkSession, table: Table, gone: Sequence[int]) -> ActionResult:
    """Expire exactly these snapshots. By age alone, the procedure would also expire the ones before a rollback."""
    if not gone:
        return ActionResult(NOTHING)
    ids = ", ".join(f"{id}L" for id in gone)
    # The procedure also expires by age, with a default of five days. No snapshot is older than the year 1970.
    arguments = {"older_than": "timestamp_millis(0)", "snapshot_ids": f"array({ids})"}
    [row] = _call(spark, Action.EXPIRE, table, **arguments)
    return ActionResult(DONE, files_removed=sum(row), snapshots_expired=len(gone))


def _remove_orphans(
    spark: SparkSession,
    table: Table,
    found: IcebergTable,
    policy: MaintenancePolicy,
    searched: OrphanSearch | None,
    now: float,
    held_since: float,
) -> ActionResult:
    older = round((now - policy.orphans_older.total_seconds()) * 1000)
    arguments = {"older_than": f"timestamp_millis({older})"}
    if "://" in found.location() and not found.location().startswith("file:"):
        arguments["prefix_listing"] = "true"  # Hadoop may not know the scheme
    rows = _call(spark, Action.ORPHANS, table, **arguments, dry_run="true")
    orphans = [row.orphan_file_location for row in rows]
    gone, stays = removable(orphans, searched, held_since)
    if not gone:
        waiting = f"{len(orphans)} files are removed if the next search finds them, too" if orphans else ""
        return ActionResult(NOTHING, message=waiting, candidates=tuple(stays))
    files = spark.createDataFrame([(file,) for file in gone[:MOST_CANDIDATES]], "file_path string").selectExpr(
        "file_path", "timestamp_millis(0) AS last_modified"
    )
    # The list is filtered by the text of the folder, which may lack the scheme that the files have.
    path = urlsplit(found.location()).path.rstrip("/")
    folder = gone[0][: gone[0].index(path) + len(path)]
    files.createOrReplaceTempView(_FILES)
    try:
        listed = {"location": f"'{folder}'", "file_list_view": f"'{_FILES}'"}
        removed = _call(spark, Action.ORPHANS, table, **arguments, **listed)
    finally:
        spark.catalog.dropTempView(_FILES)
    return ActionResult(DONE, files_removed=len(removed), candidates=tuple(stays))
