"""Building partitions with this process's code on branches of their tables, as runs of Dagster that nobody else sees.

Each run reads the preview's own rows where it has written any, and else the tables as they were when it began. Belongs
here: the runs, and the resources they get. Does not belong here: which partitions (`preview.targets`).
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import dagster as dg
from dagster import DagsterEventType, DagsterInstance
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from dagster._serdes import deserialize_value, serialize_value
from pyspark.sql import DataFrame, SparkSession

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.execution.io_manager import NoSuchTable
from pipelines.tidemark.execution.metadata import partition_metadata
from pipelines.tidemark.failpoints import reached
from pipelines.tidemark.lakehouse import branches, catalog
from pipelines.tidemark.lakehouse.content import content_of
from pipelines.tidemark.lakehouse.models import Given, Learner, ModelStore, Told
from pipelines.tidemark.lakehouse.read import Snapshot
from pipelines.tidemark.lakehouse.session import naming_the_server
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.lakehouse.write import current_snapshot
from pipelines.tidemark.planner.graph import Graph, Node, Target
from pipelines.tidemark.planner.history import History
from pipelines.tidemark.preview.manifest import Manifest, RunPreview, Store, TablePreview
from pipelines.tidemark.preview.targets import Targets, runs_of
from pipelines.tidemark.sensors.contracts import ReportedBySensor
from pipelines.tidemark.settings import load_settings
from pipelines.tidemark.sources.feed import Partition
from pipelines.tidemark.tags import CONTENT

FROM_FILES = (
    "is loaded from files; rehearse its rules with `pipelines quarantine rehearse`, "
    "or deploy it with `pipelines plan --apply`"
)
FROM_MESSAGES = (
    "follows from messages, and its changes are sent: a branch would send none; deploy it with `pipelines plan --apply`"
)
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Run config: what a run says is in its events, and no noise on the terminal."""


class PreviewFailed(Terminal):
    """A run of the preview failed."""


class LoadedFromFiles(Terminal):
    """An asset loads files, which a branch cannot show."""


class FollowsFromMessages(Terminal):
    """An asset changes what is sent, which a branch cannot hold back."""


class PreviewLake:
    """The tables as a preview sees them; also what its assets get as the resource `lakehouse`."""

    def __init__(self, spark: SparkSession, tables: Mapping[str, Table], manifest: Manifest) -> None:
        self.spark, self._tables, self.manifest = spark, tables, manifest
        self._pins: dict[str, int | None] = {}

    def table(self, asset: str) -> Table:
        """The table of an asset.

        Raises:
            NoSuchTable: none is declared.
        """
        name = asset.replace("/", ".")
        if name not in self._tables:
            raise NoSuchTable(f"asset {asset} has no table {name!r} declared")
        return self._tables[name]

    def pin(self, table: Table) -> int | None:
        """The snapshot that is read of a table: the one it had when it was first asked for."""
        if table.name not in self._pins:
            if not self.spark.catalog.tableExists(table.identifier):
                catalog.ensure(self.spark, table)
            self._pins[table.name] = current_snapshot(self.spark, table)
        return self._pins[table.name]

    def snapshot(self, table: Table, partitions: Collection[str] | None = None) -> Snapshot:
        """The rows of these partitions (None: of the table), the preview's own where it has written to the table."""
        own = next((each for each in self.manifest.tables if each.table == table.name and each.head), None)
        at = own.head if own else self.pin(table)
        return Snapshot(branches.rows_of(self.spark, table, partitions, at), at)

    def read(self, table: Table) -> DataFrame:
        """All rows of a table; see `LakehouseResource.read`."""
        return self.snapshot(table).rows

    def models(self, name: str, learner: Learner[Given, Told]) -> ModelStore[Given, Told]:
        """The versions of a model: what is kept there is named by its content, and serves nobody by itself."""
        return ModelStore(name, learner, load_settings())

    def load(self, context: dg.AssetExecutionContext, *_: Any, **__: Any) -> NoReturn:
        """Files are not loaded into branches."""
        raise LoadedFromFiles(f"{context.asset_key.to_user_string()} {FROM_FILES}")

    def reevaluate(self, context: dg.AssetExecutionContext, *_: Any, **__: Any) -> NoReturn:
        """Alerts are not worked out on branches."""
        raise FollowsFromMessages(f"{context.asset_key.to_user_string()} {FROM_MESSAGES}")

    def keeps(self, source: str) -> bool:
        """Whether a source is a table of the lake: messages, not files."""
        return source.replace("/", ".") in self._tables


class BranchIOManager(dg.IOManager):
    """Reads and writes a preview's tables."""

    def __init__(self, lake: PreviewLake) -> None:
        self._lake = lake

    def handle_output(self, context: dg.OutputContext, obj: DataFrame) -> None:
        lake, asset = self._lake, context.asset_key.to_user_string()
        table, own = lake.table(asset), lake.manifest.of(asset)
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
        own.head = branches.overwrite(obj, table, lake.manifest.branch, partitions, run_id=context.run_id)
        contents = content_of(lake.spark, table, partitions, own.head)
        for partition, content in contents.items():
            said = partition_metadata(partition, content)
            context.step_context.add_asset_metadata(said, context.asset_key, partition)

    def load_input(self, context: dg.InputContext) -> DataFrame | Snapshot:
        table = self._lake.table(context.asset_key.to_user_string())
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
        found = self._lake.snapshot(table, partitions)
        return found if context.dagster_type.typing_type is Snapshot else found.rows


class _Session:
    """What takes the place of the resource `spark`."""

    def __init__(self, session: SparkSession) -> None:
        self.session = self.spark_session = session


def refusals(definitions: dg.Definitions, graph: Graph, lake: PreviewLake, planned: Collection[str]) -> dict[str, str]:
    """Which of some assets cannot be previewed, with the reason."""
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
        if of_sources and "lakehouse" in needs.get(key, ()):
            found[key] = FROM_MESSAGES if any(map(lake.keeps, of_sources)) else FROM_FILES
            continue
        try:
            table = lake.table(key)
        except NoSuchTable:
            found[key] = "has no declared table, so there are no rows to show"
            continue
        if lake.spark.catalog.tableExists(table.identifier):
            try:
                branches.require_declared_columns(lake.spark, table)
            except branches.ColumnsDiffer as error:
                found[key] = f"{str(error).partition(';')[0]}, and a branch has the table's: deploy it with --apply"
    return found


def build(
    definitions: dg.Definitions,
    history: History,
    targets: Targets,
    lake: PreviewLake,
    store: Store,
    tell: Callable[[str], None],
) -> None:
    """Build the targets on branches, and record them in the lake's manifest.

    Args:
        history: As it was before anything was read of a table.
        tell: Is told what is built next.

    Raises:
        PreviewFailed: a run failed. What was made so far is in the manifest.
    """
    manifest, graph = lake.manifest, history.graph
    manifest.tables = [TablePreview(key) for group in targets.groups for key in group.assets]
    inputs = {read.key for own in manifest.tables for read in graph.nodes[own.asset].inputs}
    inside = targets.all
    with naming_the_server(lake.spark):
        for own in manifest.tables:
            own.is_new = not lake.spark.catalog.tableExists(lake.table(own.asset).identifier)
        store.write(manifest)
        for key in sorted(inputs):
            if not graph.nodes[key].source and key.replace("/", ".") in lake._tables:
                lake.pin(lake.table(key))
        for own in manifest.tables:
            table = lake.table(own.asset)
            branches.require_declared_columns(lake.spark, table)
            own.base = lake.pin(table)
            branches.create(lake.spark, table, manifest.branch, own.base)
        store.write(manifest)
        reached("preview_branched")
        with DagsterInstance.ephemeral() as instance:
            for name, keys in graph.moment.dynamic.items():
                instance.add_dynamic_partitions(name, list(keys))
            with partition_loading_context(dynamic_partitions_store=instance):
                for group in targets.groups:
                    for part in runs_of(graph, group.assets, group.partitions):
                        tell(f"building {', '.join(group.assets)}{told(part)}")
                        manifest.runs.append(_run(definitions, instance, group.assets, part, lake))
                    for key in group.assets:
                        _note(manifest.of(key), manifest, graph.nodes[key], history, inside)
                    store.write(manifest)
    manifest.is_built = True
    store.write(manifest)


def told(partitions: Sequence[Partition]) -> str:
    """Partitions in words, after the name of an asset."""
    if partitions[0] is None:
        return ""
    return f" {partitions[0]}" if len(partitions) == 1 else f" {partitions[0]}...{partitions[-1]}"


def events(texts: Sequence[str]) -> list[Any]:
    """Events of a run that were kept as text."""
    return [deserialize_value(text) for text in texts]


def read_digest(history: History, node: Node, partition: Partition, inside: Collection[Target]) -> str:
    """What a partition is made of outside of a preview: equal for the same content versions."""
    said = [
        (source[0], str(source[1]), history.versions.get(source))
        for read in node.inputs
        if not read.use_latest
        for source in history.inputs_of(read, partition)
        if source not in inside
    ]
    return hashlib.sha256(repr(sorted(said, key=str)).encode()).hexdigest()[:16]


def _note(own: TablePreview, manifest: Manifest, node: Node, history: History, inside: Collection[Target]) -> None:
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
    resources = {
        **(definitions.resources or {}),
        "spark": dg.ResourceDefinition.hardcoded_resource(_Session(lake.spark)),
        "lakehouse": dg.ResourceDefinition.hardcoded_resource(lake),
        "io_manager": BranchIOManager(lake),
    }
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
        list(assets), list(partitions), [serialize_value(m) for m in written], [serialize_value(e) for e in evaluations]
    )


def run_of(partitions: Sequence[Partition]) -> dict[str, Any]:
    """How `dg.materialize` is told what to build."""
    first, last = partitions[0], partitions[-1]
    if first is None or last is None:
        return {}
    if len(partitions) == 1:
        return {"partition_key": first}
    return {"tags": {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}}


def users_checks(definitions: Sequence[Any], keys: Collection[dg.AssetKey]) -> list[dg.AssetCheckKey]:
    """The checks of some assets that look at their rows; the machinery's own look at the running instance."""
    return [
        spec.key
        for each in definitions
        if isinstance(each, dg.AssetsDefinition)
        for spec in each.check_specs
        if spec.asset_key in keys and not isinstance(spec.automation_condition, ReportedBySensor)
    ]


def _why(done: dg.ExecuteInProcessResult) -> str:
    failures = [e for e in done.all_events if e.event_type is DagsterEventType.STEP_FAILURE]
    for event in failures:
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None:
            return f"{error.cls_name}: {error.message.strip()}"
    return "nothing says why"


def discard(spark: SparkSession, tables: Mapping[str, Table], store: Store, manifest: Manifest) -> None:
    """Drop a preview's branches, and forget it."""
    for own in manifest.tables:
        if (table := tables.get(own.table)) is not None:
            branches.drop(spark, table, manifest.branch)
            if own.is_new:
                branches.drop_unused(spark, table)
    store.delete()
