"""The runs of a preview: those that build partitions on branches, and those that report published partitions.

The first run this process's code in a temporary Dagster instance. They read tables from the branch if the preview has
written to it, and other tables as of the preview's beginning. The others compute nothing. Belongs here: the runs, their
assets and resources. Does not belong here: the choice of partitions (`preview.targets`), and publishing
(`preview.publish`).
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterEventType, DagsterInstance
from pyspark.sql import SparkSession

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.dagster_internals.partitions import partition_ends, range_tags
from dagster_tidemark.errors import Terminal
from dagster_tidemark.execution.io_manager import NoSuchTable
from dagster_tidemark.execution.watermark import THROUGH, through
from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse import branches
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.session import naming_the_server, without_token
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.planner.graph import Graph, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.preview.lake import FROM_MESSAGES, BranchIOManager, PreviewLake
from dagster_tidemark.preview.manifest import PreviewManifest, RunPreview, Store, TablePreview
from dagster_tidemark.preview.quarantined import PreviewQuarantine
from dagster_tidemark.preview.targets import Targets, runs_of
from dagster_tidemark.sensors.reported_check import ReportedBySensor
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import CONTENT, PREFIX

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run config that prints nothing on the terminal. The messages are in the run's events."""


class PreviewFailed(Terminal):
    """A run of the preview failed."""


class _Session:
    """Replacement for the resource `spark`, with an open session."""

    def __init__(self, session: SparkSession) -> None:
        self.session = self.spark_session = session


def refusals(definitions: dg.Definitions, graph: Graph, lake: PreviewLake, planned: Collection[str]) -> dict[str, str]:
    """Return the planned assets that cannot be previewed, with the reason."""
    found = {}
    needs = {
        key.to_user_string(): each.required_resource_keys
        for each in definitions.assets or ()
        if isinstance(each, dg.AssetsDefinition)
        for key in each.keys
    }
    for key in planned:
        node = graph.nodes[key]
        of_sources = [r.key for r in node.inputs if (n := graph.nodes.get(r.key)) is not None and n.source]
        if any(map(lake.keeps, of_sources)) and {"lakehouse", f"{PREFIX}lakehouse"} & needs.get(key, set()):
            found[key] = FROM_MESSAGES
            continue
        try:
            table = lake.table(key)
        except NoSuchTable:
            found[key] = "has no declared table, so there are no rows to show"
            continue
        try:
            if branches.exists(lake.spark, table):
                branches.require_branchable(lake.spark, table)
        except branches.ColumnsDiffer as error:
            found[key] = str(error)
    return found


def build(
    definitions: dg.Definitions,
    history: History,
    targets: Targets,
    lake: PreviewLake,
    store: Store,
    tell: Callable[[str], None],
    built: Callable[[TablePreview], object] = lambda _: None,
) -> None:
    """Build the targets on branches, and record them in the lake's manifest.

    Args:
        history: The history from the event log, read before any table was read.
        tell: Function that receives a line about each run before it starts.
        built: Function that receives each table when all its partitions are built, while other tables are not.

    Raises:
        PreviewFailed: a run failed. The manifest records the branches made so far.
    """
    manifest, graph = lake.manifest, history.graph
    manifest.tables = [
        TablePreview(key, planned=targets.planned.get(key, 0)) for group in targets.groups for key in group.assets
    ]
    inputs = {read.key for own in manifest.tables for read in graph.nodes[own.asset].inputs}
    inside = targets.all
    with naming_the_server(lake.spark):
        for own in manifest.tables:
            own.is_new = not branches.exists(lake.spark, lake.table(own.asset))
        store.write(manifest)
        for key in sorted(inputs):
            if not graph.nodes[key].source and key.replace("/", ".") in lake.tables:
                lake.pin(lake.table(key))
        for own in manifest.tables:
            table = lake.table(own.asset)
            own.base = lake.pin(table)
            if not own.is_new:
                branches.add_declared_columns(lake.spark, table)
            branches.create(lake.spark, table, manifest.branch, own.base)
        store.write(manifest)
        reached("preview_branched")
        with DagsterInstance.ephemeral() as instance:
            for name, keys in graph.moment.dynamic.items():
                instance.add_dynamic_partitions(name, list(keys))
            with dg.partition_loading_context(dynamic_partitions_store=instance):
                for group in targets.groups:
                    for part in runs_of(graph, group.assets, group.partitions):
                        tell(f"building {', '.join(group.assets)}{told(part)}")
                        manifest.runs.append(_run(definitions, instance, group.assets, part, lake))
                    for key in group.assets:
                        _note(manifest.of(key), manifest, graph.nodes[key], history, inside)
                        if manifest.of(key).is_loaded:
                            PreviewQuarantine(lake.spark, manifest).count(manifest.of(key))
                        built(manifest.of(key))
                    store.write(manifest)
    manifest.is_built = True
    store.write(manifest)


def told(partitions: Sequence[Partition]) -> str:
    """Return partitions as text that can follow the name of an asset; empty for an unpartitioned asset."""
    if partitions[0] is None:
        return ""
    return f" {partitions[0]}" if len(partitions) == 1 else f" {partitions[0]}...{partitions[-1]}"


def events(texts: Sequence[str]) -> list[Any]:
    """Return a run's events from their stored text."""
    return [dg.deserialize_value(text) for text in texts]


def read_digest(history: History, node: Node, partition: Partition, inside: Collection[Target]) -> str:
    """Return a digest of the content versions that a partition reads from outside the preview."""
    said = [
        (source[0], str(source[1]), history.facts.version(source))
        for read in node.inputs
        if not read.use_latest
        for source in history.inputs_of(read, partition)
        if source not in inside
    ]
    return hashlib.sha256(repr(sorted(said, key=str)).encode()).hexdigest()[:16]


def _note(
    own: TablePreview, manifest: PreviewManifest, node: Node, history: History, inside: Collection[Target]
) -> None:
    contents: dict[Partition, str] = {}
    for run in manifest.runs:
        for event in events(run.materializations):
            if event.asset_key.to_user_string() == own.asset and CONTENT in event.metadata:
                contents[event.partition] = str(event.metadata[CONTENT].value)
    own.partitions, own.contents = list(contents), list(contents.values())
    own.reads = [read_digest(history, node, partition, inside) for partition in own.partitions]


def _run(
    definitions: dg.Definitions,
    instance: DagsterInstance,
    assets: Sequence[str],
    partitions: Sequence[Partition],
    lake: PreviewLake,
) -> RunPreview:
    keys = [dg.AssetKey.from_user_string(name) for name in assets]
    every: list[Any] = [*(definitions.assets or ()), *(definitions.asset_checks or ())]
    checks = users_checks(every, keys)
    resources = dict(definitions.resources or {})
    ours = {
        "spark": dg.ResourceDefinition.hardcoded_resource(_Session(lake.spark)),
        "lakehouse": dg.ResourceDefinition.hardcoded_resource(lake),
        "io_manager": BranchIOManager(lake),
    }
    resources |= ours | {f"{PREFIX}{name}": resource for name, resource in ours.items()}
    done = dg.materialize(
        every,
        selection=dg.AssetSelection.assets(*keys).without_checks() | dg.AssetSelection.checks(*checks),
        instance=instance,
        resources=resources,
        run_config=QUIET,
        raise_on_error=False,
        **run_of(partitions),
    )
    evaluations = done.get_asset_check_evaluations()
    if not done.success and all(each.passed or not each.blocking for each in evaluations):
        raise PreviewFailed(f"{', '.join(assets)}{told(partitions)} failed: {_why(done)}")
    written = [event.step_materialization_data.materialization for event in done.get_asset_materialization_events()]
    return RunPreview(
        list(assets),
        list(partitions),
        [dg.serialize_value(m) for m in written],
        [dg.serialize_value(e) for e in evaluations],
    )


def run_of(partitions: Sequence[Partition]) -> dict[str, Any]:
    """Return the arguments of `dg.materialize` that select these partitions."""
    first, last = partitions[0], partitions[-1]
    if first is None or last is None:
        return {}
    if len(partitions) == 1:
        return {"partition_key": first}
    return {"tags": range_tags(first, last)}


def users_checks(definitions: Sequence[Any], keys: Collection[dg.AssetKey]) -> list[dg.AssetCheckKey]:
    """Return the assets' checks that read rows. This leaves out `contract`, which reads the running instance."""
    return [
        spec.key
        for each in definitions
        if isinstance(each, dg.AssetsDefinition)
        for spec in each.check_specs
        if spec.asset_key in keys and not isinstance(spec.automation_condition, ReportedBySensor)
    ]


def first_line(message: str, name: str) -> str:
    """Return an error's name and the first line of its message, without the stack of the JVM."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    said = without_token(lines[0]) if lines else ""
    short = name.rpartition(".")[2]
    # Dagster and Spark prefix the message with the qualified name of the error's class.
    said = re.sub(rf"^(?:\w+\.)*{re.escape(short)}: ", "", said)
    return f"{short}: {said}" if short and said else short or said


def _why(done: dg.ExecuteInProcessResult) -> str:
    failures = [e for e in done.all_events if e.event_type is DagsterEventType.STEP_FAILURE]
    for event in failures:
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None:
            return first_line(error.message, error.cls_name or "")
    return "the run recorded no reason"


def discard(spark: SparkSession, tables: Mapping[str, Table], store: Store, manifest: PreviewManifest) -> None:
    """Drop a preview's branches and its unused new tables, and delete the record."""
    branches.drop(spark, QUARANTINE, manifest.branch)
    for own in manifest.tables:
        if (table := tables.get(own.table)) is not None:
            branches.drop(spark, table, manifest.branch)
            if own.is_new:
                branches.drop_unused(spark, table)
    store.delete()


def arrivals(instance: DagsterInstance, node: Node, partitions: Sequence[Partition]) -> dict[Partition, dict[str, Any]]:
    """Return metadata for each partition: the newest arrival time of data that its inputs contain."""
    of = {
        read.key: event_storage.latest_metadata(instance, dg.AssetKey.from_user_string(read.key), THROUGH)
        for read in node.inputs
    }
    found: dict[Partition, dict[str, Any]] = {}
    for partition in partitions:
        told: list[float] = []
        for read in node.inputs:
            said = of[read.key]
            wanted: Collection[Partition] = list(said) if read.upstream is None else read.upstream(partition)
            told += [at for p in wanted if isinstance(at := said.get(p), float)]
        found[partition] = through(datetime.fromtimestamp(max(told), UTC) if told else None)
    return found


def results(run: RunPreview, asset: str) -> list[dg.AssetCheckResult]:
    """Return the check results of an asset from the preview's run."""
    return [
        dg.AssetCheckResult(
            passed=e.passed,
            asset_key=e.asset_key,
            check_name=e.check_name,
            metadata=e.metadata,
            severity=e.severity,
            description=e.description,
        )
        for e in events(run.checks)
        if e.asset_key.to_user_string() == asset
    ]


def reporting(
    definitions: dg.Definitions,
    keys: Sequence[dg.AssetKey],
    run: RunPreview,
    body: Callable[[dg.AssetExecutionContext], Iterator[dg.MaterializeResult[None]]],
) -> dg.AssetsDefinition:
    """Return assets with the specs of the real assets, and a body that only reports."""
    of_keys = {spec.key: spec for spec in definitions.resolve_all_asset_specs() if spec.key in keys}
    checks = {(e.asset_key, e.check_name) for e in events(run.checks)}

    @dg.multi_asset(
        name="published",
        specs=[of_keys[key] for key in keys],
        check_specs=[dg.AssetCheckSpec(name, asset=key) for key, name in sorted(checks, key=str)],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def _published(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        yield from body(context)

    return _published


def others(definitions: dg.Definitions, keys: Sequence[dg.AssetKey]) -> list[dg.AssetSpec]:
    """Return the specs of the assets' inputs, so that Dagster can record the data versions of the inputs."""
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    read = {dep.asset_key for key in keys for dep in specs[key].deps} - set(keys)
    return [dg.AssetSpec(key, partitions_def=specs[key].partitions_def) for key in sorted(read) if key in specs]


def partitions_of(run: dg.DagsterRun, definitions: dg.Definitions, node: Node) -> set[Partition]:
    """Return the partitions of a run."""
    if not node.partitioned:
        return {None}
    ends = [key for key in partition_ends(run.tags) if key is not None]
    by = definitions.resolve_asset_graph().get(dg.AssetKey.from_user_string(node.key)).partitions_def
    assert by is not None
    return set(by.get_partition_keys_in_range(dg.PartitionKeyRange(ends[0], ends[-1])))
