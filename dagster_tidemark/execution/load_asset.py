"""Loads a feed's files into a table, from within an asset.

Belongs here: what the run knows, such as partitions to read again because a person asked for a rebuild. Does not belong
here: the steps of a load (`lakehouse.loading`).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NoReturn

import dagster as dg
from pyspark.sql import SparkSession

from dagster_tidemark.asset_graph.partition_keys import KeysOf
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.engine.override_store import owed_again
from dagster_tidemark.event_log.observations import ObservationLedger, holds_files
from dagster_tidemark.execution.load_check import landed_results, told_columns
from dagster_tidemark.execution.metadata import COLUMNS, column_schema, partition_metadata, table_state
from dagster_tidemark.execution.watermark import through
from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse.loading.load import Landing, Load, Loaded, Observed, run_load
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.misplaced import Misplaced
from dagster_tidemark.sources.removals import ACCEPTED
from dagster_tidemark.tags import CODE_VERSION, LISTED_AT, OUTCOME, REBUILD

_TOLD = 20  # maximum number of files listed in the metadata of a run


def load_partitions(
    context: dg.AssetExecutionContext,
    spark: SparkSession,
    landing: Landing,
    load: Load,
    instance: dg.DagsterInstance,
    *,
    start: date,
    misplaced: Mapping[str, Misplaced] | None,
) -> dg.MaterializeResult[None]:
    """Update the run's partitions to the current content of the feed's files, and return the materialization.

    Args:
        instance: The instance whose event log has the earlier observations and check results.
        start: The first day that has partitions.
        misplaced: Misplaced folders of the feed; None if unknown.
    """
    partitions = partitions_of(context)
    with naming_the_server(spark):
        loaded = run_load(
            spark,
            landing,
            load,
            partitions,
            run_id=context.run.run_id,
            observed=lambda: observed_removals(instance, load.feed, start),
            misplaced=None if misplaced is None else misplaced.values(),
        )
    counted = _counted(loaded)
    said = {
        partition: partition_metadata(partition, content)
        | through(loaded.arrived_through.get(partition))
        | counted.get(partition, {})
        for partition, content in loaded.content.items()
    }
    context.log.info(
        f"{loaded.files_read} files read, {len(loaded.files_rejected)} of them rejected; "
        f"{loaded.rows_read} rows read, {loaded.rows_rejected} of them rejected; "
        f"{len(loaded.read_again)} partitions replaced, {len(loaded.added_to)} appended to"
    )
    declared = {check.name for check in context.assets_def.check_keys}

    def before(check: str) -> Mapping[str, object]:
        return event_storage.latest_check_metadata(instance, dg.AssetCheckKey(context.asset_key, check)) or {}

    results = landed_results(load.feed, context.asset_key, loaded, before, datetime.now(UTC))
    checks = [r for r in results if r.check_name in declared]
    if loaded.unavailable:
        code_version = context.assets_def.code_versions_by_key[context.asset_key] or ""
        _say_what_is_loaded(context, said, loaded, code_version, checks)
    for partition, metadata in said.items():
        context.add_asset_metadata(metadata, partition_key=partition)
    reached("before_recorded")
    return dg.MaterializeResult(
        metadata=table_state(loaded.snapshot_id, loaded.table_rows)
        | _lists(loaded)
        | _columns_beside(load.table, loaded),
        check_results=checks,
    )


def _counted(loaded: Loaded) -> dict[Partition, Counter[str]]:
    """Return the numbers of files and rows of each partition, which Dagster plots by partition.

    Both the files that the load has read and the files with superseded rows are counted.
    """
    counts: dict[Partition, Counter[str]] = defaultdict(Counter)
    for account in loaded.accounts:
        of_file = {"rows landed": account.landed, "rows turned away": account.rejected}
        counts[account.partition].update({"files read": 1, **of_file, "rows superseded": account.superseded})
    return counts


def _lists(loaded: Loaded) -> dict[str, Any]:
    """Return metadata with lists of rejected files and of new or missing columns. Empty lists are left out."""
    told: dict[str, Any] = {
        "files turned away": [f"{fault.file.key}: {fault.message}" for fault in loaded.files_rejected[:_TOLD]],
        "new columns": told_columns(loaded.new_columns),
        "missing columns": told_columns(loaded.missing_columns),
        "columns added": list(loaded.additions.added),
    }
    return {what: names for what, names in told.items() if names}


def _columns_beside(table: Table, loaded: Loaded) -> dict[str, Any]:
    """Return metadata with the table's columns for the UI, if the table has columns that are not declared."""
    if not loaded.additions.there:
        return {}
    return {COLUMNS: column_schema(table, dict.fromkeys(loaded.additions.there, "string"))}


def _say_what_is_loaded(
    context: dg.AssetExecutionContext,
    said: Mapping[Partition, Mapping[str, Any]],
    loaded: Loaded,
    code_version: str,
    checks: Sequence[dg.AssetCheckResult],
) -> NoReturn:
    """Record the loaded partitions of the run, then fail, because other partitions have unavailable files.

    Unavailable files are neither loaded nor rejected. Their partitions stay pending, and are retried with growing
    pauses.
    """
    lacking = {file.partition for file in loaded.unavailable}
    for partition, metadata in said.items():
        if partition not in lacking:
            event = dg.AssetMaterialization(
                context.asset_key, partition=partition, metadata=metadata, tags={CODE_VERSION: code_version}
            )
            context.log_event(event)
    for check in checks:  # Dagster drops the results of a failed step, so report them here
        context.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=context.asset_key,
                check_name=check.check_name or "",
                passed=check.passed,
                metadata=check.metadata,
                severity=check.severity,
                description=check.description,
            )
        )
    files = "; ".join(f"{file.key}: {reason}" for file, reason in list(loaded.unavailable.items())[:_TOLD])
    raise dg.Failure(f"{len(loaded.unavailable)} files exist but cannot be read; all other files are loaded. {files}")


def observed_removals(instance: dg.DagsterInstance, feed: Feed, start: date) -> Observed:
    """Return the removals that the latest observations of a feed's partitions report."""
    latest = ObservationLedger(instance, start).latest(feed)
    return Observed(
        vanished={
            partition: datetime.fromtimestamp(float(tags[LISTED_AT]), UTC)
            for partition, tags in latest.items()
            if not holds_files(tags) and OUTCOME not in tags and LISTED_AT in tags
        },
        accepted=[partition for partition, tags in latest.items() if tags.get(OUTCOME) == ACCEPTED],
        holding=[partition for partition, tags in latest.items() if holds_files(tags)],
    )


def partitions_of(context: dg.AssetExecutionContext) -> list[Partition]:
    """Return the partitions of a run, as plain texts; None stands for an asset without partitions."""
    has_partitions = context.has_partition_key_range or context.has_partition_key
    # Dagster passes a multi-partition key as an object, not as a plain text.
    return [str(key) for key in context.partition_keys] if has_partitions else [None]


def partitions_to_read_again(context: dg.AssetExecutionContext) -> frozenset[Partition]:
    """Return the run's partitions to read again: all if the run has the tag, else those of unfinished rebuilds."""
    partitions, key = partitions_of(context), context.asset_key
    if REBUILD in context.run.tags:
        return frozenset(partitions)
    return frozenset(owed(context.instance, key, context.assets_def.specs_by_key[key].partitions_def, partitions))


def owed(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    definition: dg.PartitionsDefinition | None,
    partitions: Sequence[Partition],
) -> list[Partition]:
    """Return the partitions of an asset that an unfinished rebuild covers."""
    keys = KeysOf(Moment(event_time.now()))(definition)
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        return owed_again(instance, key.to_user_string(), partitions, lambda each, one: each.covers(keys, one))
