"""Making a preview's branches the tables, and telling the running instance that they were built by this code.

A table that nobody has committed to since is fast-forwarded; else the partitions nobody has touched are copied, in one
commit, and the others are left to the automation, for which they are stale by code. Every step can be taken again after
a kill: what is done is seen in the tables and in the event log. Belongs here: what is published, and how it is told.
Does not belong here: the sensors and the code location meanwhile (`cli.plan_preview`).
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import psutil
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.definitions.partitions.context import partition_loading_context
from pyspark.sql import SparkSession

from pipelines.tidemark.engine.code_plan import follow
from pipelines.tidemark.errors import Terminal, Transient
from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.event_log.consumer import Follower
from pipelines.tidemark.execution.metadata import table_state
from pipelines.tidemark.execution.watermark import THROUGH, through
from pipelines.tidemark.failpoints import reached
from pipelines.tidemark.lakehouse import branches, write
from pipelines.tidemark.lakehouse.content import content_of
from pipelines.tidemark.lakehouse.read import SnapshotExpired
from pipelines.tidemark.lakehouse.session import naming_the_server
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.lakehouse.write import ATTEMPTS, CommitConflict, WriteConflict
from pipelines.tidemark.planner.graph import Graph, Node, Target
from pipelines.tidemark.preview.build import QUIET, events, read_digest, run_of, told
from pipelines.tidemark.preview.manifest import Manifest, RunPreview, Store, TablePreview
from pipelines.tidemark.preview.targets import runs_of
from pipelines.tidemark.sources.feed import Partition
from pipelines.tidemark.tags import PROCESS, PUBLISHED, TABLES

_OF_THE_TABLE = ("snapshot id", "dagster/row_count", THROUGH)
"""What a materialization said of the branch; of the table another is true."""

logger = logging.getLogger(__name__)


class NotToPublish(Terminal):
    """A preview that must not become the tables. The message says why."""


class ChangedMeanwhile(Transient):
    """Others kept changing what was published. A retry helps once they are done."""


@dataclass
class Published:
    """What became of a preview.

    Args:
        partitions: Of each asset those that are published.
        left: Those that the automation rebuilds.
        forwarded: Tables that were fast-forwarded.
    """

    partitions: dict[str, list[Partition]] = field(default_factory=dict)
    left: dict[str, list[Partition]] = field(default_factory=dict)
    forwarded: list[str] = field(default_factory=list)


def require_publishable(manifest: Manifest, code: Mapping[str, str]) -> None:
    """See that a preview may become the tables.

    Args:
        code: Of each asset today's code version and fingerprint.

    Raises:
        NotToPublish: it may not.
    """
    if not manifest.is_built:
        raise NotToPublish("the preview was not built to its end: preview again")
    if manifest.is_too_old:
        raise NotToPublish(f"the preview is older than {branches.DAYS} days: preview again")
    if other := [asset for asset, of in manifest.code.items() if code.get(asset) != of]:
        raise NotToPublish(f"the code of {', '.join(other)} is another than was previewed: preview again")
    failed = [
        f"{check.asset_key.to_user_string()} {check.check_name}"
        for run in manifest.runs
        for check in events(run.checks)
        if not check.passed and check.severity is dg.AssetCheckSeverity.ERROR
    ]
    if failed:
        raise NotToPublish(f"failed: {', '.join(dict.fromkeys(failed))}; correct the code and preview again")


@dataclass
class Publisher:
    """Publishes one preview on an instance."""

    definitions: dg.Definitions
    instance: DagsterInstance
    spark: SparkSession
    tables: Mapping[str, Table]
    manifest: Manifest
    store: Store
    contract_scale: float = 1.0
    found: Published = field(default_factory=Published)
    _follower: Follower = field(init=False)
    _inside: frozenset[Target] = field(init=False)

    def publish(self) -> Published:
        """Make the branches the tables, and tell the instance.

        Raises:
            ChangedMeanwhile: others kept committing to the same partitions.
        """
        self._follower = follow(self.definitions, self.instance, contract_scale=self.contract_scale)
        self._inside = frozenset((own.asset, p) for own in self.manifest.tables for p in own.partitions)
        self._end_runs_that_were_killed()
        with naming_the_server(self.spark), partition_loading_context(dynamic_partitions_store=self.instance):
            for assets in dict.fromkeys(tuple(run.assets) for run in self.manifest.runs):
                owns = [self.manifest.of(asset) for asset in assets]
                self._commit(owns)
                reached("preview_committed")
                self._report(assets, owns)
                reached("preview_reported")
        return self.found

    @property
    def _graph(self) -> Graph:
        return self._follower.history.graph

    # The tables.

    def _commit(self, owns: Sequence[TablePreview]) -> None:
        """Make the branches of one operation's tables what readers see, as far as nobody else has changed them."""
        for _ in range(ATTEMPTS):
            pending = [own for own in owns if not self._is_committed(own)]
            if not pending:
                return
            now = {own.asset: write.current_snapshot(self.spark, self._table(own)) for own in pending}
            allowed = self._allowed(pending, now)
            for own in pending:
                own.decided = [p for p in own.partitions if p in allowed]
            self.store.write(self.manifest)
            reached("preview_decided")
            try:
                for own in pending:
                    if own.decided:
                        self._commit_one(own, now[own.asset])
                return
            except CommitConflict:
                logger.info("%s: others have committed meanwhile, looking again", owns[0].asset)
        raise WriteConflict(self._table(owns[0]))

    def _commit_one(self, own: TablePreview, now: int | None) -> None:
        table, decided = self._table(own), own.decided or []
        if now == own.base and len(decided) == len(own.partitions):
            branches.fast_forward(self.spark, table, self.manifest.branch)
            return
        keys = _keys(decided)
        rows = branches.rows_of(self.spark, table, keys, own.head)
        write.replace_since(now, rows, table, table.predicate(keys), run_id=self._run_id)

    def _allowed(self, owns: Sequence[TablePreview], now: Mapping[str, int | None]) -> set[Partition]:
        """The partitions of an operation that nobody has touched, made of what nobody has changed since."""
        self._read_log()
        allowed = set(owns[0].partitions)
        for own in owns:
            allowed -= self._made_of_other_rows(own, own.partitions)
            if now[own.asset] != own.base:
                allowed -= self._differing(own, own.base, now[own.asset])
        return allowed

    def _made_of_other_rows(self, own: TablePreview, partitions: Collection[Partition]) -> set[Partition]:
        node, history, read = self._graph.nodes[own.asset], self._follower.history, own.read()
        left = {(asset, p) for asset, of in self.found.left.items() for p in of}
        return {
            p
            for p in partitions
            if read_digest(history, node, p, self._inside) != read[p]
            or any(source in left for way in node.inputs if not way.use_latest for source in _sources(way, p, left))
        }

    def _differing(self, own: TablePreview, one: int | None, other: int | None) -> set[Partition]:
        """The partitions whose content is another as of two snapshots; all of them where that can be told no more."""
        keys, table = _keys(own.partitions), self._table(own)
        try:
            before, after = (content_of(self.spark, table, keys, at) for at in (one, other))
        except SnapshotExpired:
            return set(own.partitions)
        return {p for p in own.partitions if before[p] != after[p]}

    def _is_committed(self, own: TablePreview) -> bool:
        """Whether what was decided is in the table already: an attempt that was killed has done it."""
        if own.decided is None:
            return False
        table = self._table(own)
        by_branch = own.head is not None and branches.has_in_its_past(self.spark, table, own.head)
        return not own.decided or by_branch or branches.was_committed_by(self.spark, table, self._run_id)

    # The event log.

    def _report(self, assets: Sequence[str], owns: Sequence[TablePreview]) -> None:
        """Tell the instance of the published partitions, as runs that compute nothing."""
        decided = set(owns[0].decided or ())
        for own in owns:  # a repeated attempt may come when others have been here
            now = write.current_snapshot(self.spark, self._table(own))
            held = content_of(self.spark, self._table(own), _keys(own.partitions), now)
            decided &= set(own.decided or ()) & {
                p for p, content in own.content().items() if held[p].version == content
            }
        done = self._reported(assets)
        for run in self.manifest.runs:
            if tuple(run.assets) != tuple(assets):
                continue
            left = [p for p in run.partitions if p in decided and p not in done]
            while left:
                part = runs_of(self._graph, assets, left)[0]
                if changed := self._tell(run, owns, part):
                    decided -= changed
                    self._say_what_is_there(run, changed)
                else:
                    done.update(part)
                left = [p for p in left if p in decided and p not in done]
        for own in owns:
            if (
                own.decided
                and own.head is not None
                and branches.has_in_its_past(self.spark, self._table(own), own.head)
            ):
                self.found.forwarded.append(own.asset)
            self.found.partitions[own.asset] = [p for p in own.partitions if p in done]
            if rest := [p for p in own.partitions if p not in done]:
                self.found.left[own.asset] = rest

    def _tell(self, run: RunPreview, owns: Sequence[TablePreview], part: Sequence[Partition]) -> set[Partition]:
        """One run; the partitions because of which it did not come about."""
        changed: set[Partition] = set()
        kept = {(e.asset_key.to_user_string(), e.partition): e for e in events(run.materializations)}
        state = {own.asset: self._table_state(own) for own in owns}

        def body(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
            # What arrives from now on comes after this run for the planner; what came before it has to be looked for.
            self._read_log()
            for own in owns:
                changed.update(self._made_of_other_rows(own, part))
            if changed:
                raise dg.Failure(f"others have changed what{told(sorted(changed, key=str))} is made of")
            for own in owns:
                arrivals = _arrivals(self.instance, self._graph.nodes[own.asset], part)
                for partition in part:
                    said = kept[own.asset, partition].metadata
                    said = {name: value for name, value in said.items() if name not in _OF_THE_TABLE}
                    metadata = {**said, **arrivals[partition]}
                    context.add_asset_metadata(metadata, dg.AssetKey.from_user_string(own.asset), partition)
                yield dg.MaterializeResult(
                    asset_key=dg.AssetKey.from_user_string(own.asset),
                    metadata=state[own.asset],
                    check_results=_results(run, own.asset),
                )

        tables = ", ".join(own.asset for own in owns)
        more = run_of(part)
        tags = {**more.pop("tags", {}), PUBLISHED: self.manifest.id, TABLES: tables, PROCESS: _this_process()}
        keys = [dg.AssetKey.from_user_string(own.asset) for own in owns]
        done = dg.materialize(
            [_reporting(self.definitions, keys, run, body), *_others(self.definitions, keys)],
            selection=keys,
            instance=self.instance,
            run_config=QUIET,
            raise_on_error=False,
            tags=tags,
            **more,
        )
        if not done.success and not changed:
            raise ChangedMeanwhile(f"{tables}{told(part)}: the run {done.run_id} that reports them failed")
        return changed

    def _say_what_is_there(self, run: RunPreview, partitions: Collection[Partition]) -> None:
        """Say of published rows that they are there, and not that this code has built them: they are rebuilt."""
        for event in events(run.materializations):
            if event.partition in partitions:
                self.instance.report_runless_asset_event(
                    dg.AssetMaterialization(event.asset_key, partition=event.partition, metadata=event.metadata)
                )

    def _reported(self, assets: Sequence[str]) -> set[Partition]:
        found: set[Partition] = set()
        by = self._graph.nodes[assets[0]]
        for run in self._runs():
            names = {key.to_user_string() for key in run.asset_selection or ()}
            if run.status is DagsterRunStatus.SUCCESS and names == set(assets):
                found |= _partitions_of(run, self.definitions, by)
        return found

    def _end_runs_that_were_killed(self) -> None:
        for run in self._runs():
            if not run.is_finished:
                self.instance.report_run_failed(run, "the process that published died")

    def _runs(self) -> Sequence[dg.DagsterRun]:
        return self.instance.get_runs(RunsFilter(tags={PUBLISHED: self.manifest.id}))

    def _read_log(self) -> None:
        graph = self._graph
        graph.moment.moves_to(adapter.now(), adapter.dynamic_partitions(self.instance, graph.dynamic))
        while self._follower.read(self.instance, lambda: False):
            pass

    def _table_state(self, own: TablePreview) -> dict[str, Any]:
        table = self._table(own)
        now = write.current_snapshot(self.spark, table)
        return table_state(now, None if now is None else branches.rows_at(self.spark, table, now))

    def _table(self, own: TablePreview) -> Table:
        return self.tables[own.table]

    @property
    def _run_id(self) -> str:
        return f"preview-{self.manifest.id}"


def _this_process() -> str:
    """What the launcher's look at the health of runs knows this process by."""
    process = psutil.Process()
    return f"{process.pid}@{process.create_time()}"


def _sources(way: Any, partition: Partition, among: Collection[Target]) -> Iterator[Target]:
    """The partitions that one input gives a partition, of some."""
    mine = [target for target in among if target[0] == way.key]
    if mine and way.upstream is not None:
        read = set(way.upstream(partition))
        mine = [target for target in mine if target[1] in read]
    yield from mine


def _keys(partitions: Sequence[Partition]) -> list[str] | None:
    return None if None in partitions else [str(p) for p in partitions]


def _arrivals(
    instance: DagsterInstance, node: Node, partitions: Sequence[Partition]
) -> dict[Partition, dict[str, Any]]:
    """Of each partition up to which arrival its inputs say that they incorporate their data."""
    of = {
        read.key: adapter.latest_metadata(instance, dg.AssetKey.from_user_string(read.key), THROUGH)
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


def _results(run: RunPreview, asset: str) -> list[dg.AssetCheckResult]:
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


def _reporting(
    definitions: dg.Definitions,
    keys: Sequence[dg.AssetKey],
    run: RunPreview,
    body: Callable[[dg.AssetExecutionContext], Iterator[dg.MaterializeResult[None]]],
) -> dg.AssetsDefinition:
    """Assets of the same specs whose body computes nothing."""
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


def _others(definitions: dg.Definitions, keys: Sequence[dg.AssetKey]) -> list[dg.AssetSpec]:
    """What the assets read, so that Dagster can say which of its data versions they were made of."""
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    read = {dep.asset_key for key in keys for dep in specs[key].deps} - set(keys)
    return [dg.AssetSpec(key, partitions_def=specs[key].partitions_def) for key in sorted(read) if key in specs]


def _partitions_of(run: dg.DagsterRun, definitions: dg.Definitions, node: Node) -> set[Partition]:
    """What a run was about."""
    if not node.partitioned:
        return {None}
    first, last = run.tags.get("dagster/asset_partition_range_start"), run.tags.get("dagster/asset_partition_range_end")
    if first is None or last is None:
        return {run.tags["dagster/partition"]}
    by = definitions.resolve_asset_graph().get(dg.AssetKey.from_user_string(node.key)).partitions_def
    assert by is not None
    return set(by.get_partition_keys_in_range(dg.PartitionKeyRange(first, last)))
