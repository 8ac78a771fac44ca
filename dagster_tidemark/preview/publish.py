"""Publishes a preview: moves the rows from branches into the tables, and reports materializations to the instance.

A table is fast-forwarded to its branch if it has no other commits since the preview began and all partitions may be
published. Otherwise one commit copies the partitions that may be published. The automation rebuilds the remaining
partitions, because their code is stale. If the process is killed, every step can be repeated: the tables and the event
log show the completed steps. Belongs here: choosing the partitions to publish, committing and reporting them. Does not
belong here: stopping sensors and reloading the code location (`cli.plan_preview`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import psutil
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from pyspark.sql import SparkSession

from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.dagster_internals.event_storage import events_in_batches
from dagster_tidemark.engine.code_plan import follow
from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.event_log.observations import QUARANTINE as QUARANTINE_CHECK
from dagster_tidemark.event_log.observations import source_key
from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.execution.load_check import columns_said, quarantine_result
from dagster_tidemark.execution.metadata import table_state
from dagster_tidemark.execution.watermark import THROUGH
from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse import branches, catalog, write
from dagster_tidemark.lakehouse.commits import CommitConflict, until_committed
from dagster_tidemark.lakehouse.content import content_of
from dagster_tidemark.lakehouse.loading.load import Loaded
from dagster_tidemark.lakehouse.loading.provenance import as_keys
from dagster_tidemark.lakehouse.loading.quarantine_counts import backlog_of, largest_share
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.read import SnapshotExpired
from dagster_tidemark.lakehouse.session import naming_the_server
from dagster_tidemark.lakehouse.table import BRANCH_DAYS, Table
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.preview.manifest import PreviewManifest, RunPreview, Store, TablePreview
from dagster_tidemark.preview.preview_runs import (
    QUIET,
    arrivals,
    events,
    others,
    partitions_of,
    read_digest,
    reporting,
    results,
    run_of,
    told,
)
from dagster_tidemark.preview.quarantined import PreviewQuarantine
from dagster_tidemark.preview.targets import runs_of, sources_through
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.tags import PROCESS, PUBLISHED, TABLES

_OF_THE_TABLE = ("snapshot id", "dagster/row_count")
"""Names of metadata that describe the preview's branch. They are not copied to the table's materialization."""


class NotToPublish(Terminal):
    """A preview that must not be published. The message gives the reason."""


@dataclass
class Published:
    """Outcome of a publish.

    Args:
        partitions: The published partitions of each asset.
        left: The partitions of each asset that the automation rebuilds.
        forwarded: Tables that were fast-forwarded.
    """

    partitions: dict[str, list[Partition]] = field(default_factory=dict)
    left: dict[str, list[Partition]] = field(default_factory=dict)
    forwarded: list[str] = field(default_factory=list)


def require_publishable(manifest: PreviewManifest, code: Mapping[str, str]) -> None:
    """Raise if a preview must not be published.

    Args:
        code: Today's code version and fingerprint of each asset.

    Raises:
        NotToPublish: the preview is incomplete or too old, its code has changed, or its code made a check fail.
    """
    if not manifest.is_built:
        raise NotToPublish("the preview was not completely built: preview again")
    if manifest.is_too_old:
        raise NotToPublish(f"the preview is older than {BRANCH_DAYS} days: preview again")
    if other := [asset for asset, of in manifest.code.items() if code.get(asset) != of]:
        raise NotToPublish(f"the code of {', '.join(other)} has changed since the preview: preview again")
    failed = [
        f"{check.asset_key.to_user_string()} {check.check_name}"
        for run in manifest.runs
        for check in events(run.checks)
        if manifest.fails_because_of_it(check)
    ]
    if failed:
        raise NotToPublish(f"failed: {', '.join(dict.fromkeys(failed))}; correct the code and preview again")


@dataclass
class Publisher:
    """Publisher of one preview to the tables and to an instance."""

    definitions: dg.Definitions
    instance: DagsterInstance
    spark: SparkSession
    tables: Mapping[str, Table]
    manifest: PreviewManifest
    store: Store
    feeds: Collection[Feed] = ()
    contract_scale: float = 1.0
    found: Published = field(default_factory=Published)
    _widened: dict[str, Table] = field(default_factory=dict)
    _follower: LogConsumer = field(init=False)
    _inside: frozenset[Target] = field(init=False)
    _quarantine: PreviewQuarantine = field(init=False)

    def publish(self) -> Published:
        """Publish the rows of the branches to the tables, and report the partitions to the instance.

        Raises:
            CommitConflict: other writers kept committing to the same tables.
            Transient: a run that reports the published partitions failed.
        """
        self._follower = follow(self.definitions, self.instance, contract_scale=self.contract_scale)
        self._quarantine = PreviewQuarantine(self.spark, self.manifest)
        self._inside = frozenset((own.asset, p) for own in self.manifest.tables for p in own.partitions)
        self._end_runs_that_were_killed()
        with (
            naming_the_server(self.spark),
            dg.partition_loading_context(dynamic_partitions_store=self.instance),
            events_in_batches(self.instance),
        ):
            for assets in dict.fromkeys(tuple(run.assets) for run in self.manifest.runs):
                owns = [self.manifest.of(asset) for asset in assets]
                self._commit(owns)
                reached("preview_committed")
                self._end_entries(owns)
                self._report(assets, owns)
                reached("preview_reported")
        return self.found

    @property
    def _graph(self) -> Graph:
        return self._follower.history.graph

    # The tables.

    def _commit(self, owns: Sequence[TablePreview]) -> None:
        """Commit the branches of one operation's tables. Leave out partitions that other writers have changed."""

        def _committed() -> None:
            pending = [own for own in owns if not self._is_committed(own)]
            if not pending:
                return
            now = {own.asset: write.current_snapshot(self.spark, self._table(own)) for own in pending}
            entries = write.current_snapshot(self.spark, QUARANTINE) if any(own.is_loaded for own in pending) else None
            allowed = self._allowed(pending, now, entries)
            for own in pending:
                own.decided = [p for p in own.partitions if p in allowed]
            self.store.write(self.manifest)
            reached("preview_decided")
            for own in pending:
                if own.decided:
                    # In the order of a load: rejected rows enter the quarantine before they leave the table.
                    self._publish_entries(own, entries, with_files_without_rows=False)
                    reached("preview_quarantined")
                    self._commit_one(own, now[own.asset])

        until_committed(_committed, self._table(owns[0]).name)

    def _commit_one(self, own: TablePreview, now: int | None) -> None:
        table, decided = self._table(own), own.decided or []
        if now == own.base and len(decided) == len(own.partitions):
            branches.fast_forward(self.spark, table, self.manifest.branch)
            return
        keys = as_keys(decided)
        rows = branches.rows_of(self.spark, table, keys, own.head)
        write.replace_since(now, rows, table, table.predicate(keys), run_id=self._run_id)

    def _publish_entries(self, own: TablePreview, now: int | None, *, with_files_without_rows: bool) -> None:
        if own.is_loaded and own.decided:
            self._quarantine.publish(own, now, run_id=self._run_id, with_files_without_rows=with_files_without_rows)

    def _end_entries(self, owns: Sequence[TablePreview]) -> None:
        """Write the quarantine entries of files that left no row, so that the next load does not read them again.

        Skipped if other writers have changed the entries of any partition since the preview.
        """
        for own in owns:
            if own.is_loaded and own.decided:
                now = write.current_snapshot(self.spark, QUARANTINE)
                if not self._quarantine.changed_by_others(own, own.decided, now):
                    with suppress(CommitConflict):
                        self._publish_entries(own, now, with_files_without_rows=True)

    def _allowed(
        self, owns: Sequence[TablePreview], now: Mapping[str, int | None], entries: int | None
    ) -> set[Partition]:
        """Return the partitions of an operation that have not changed since the preview, and whose inputs have not."""
        self._read_log()
        allowed = set(owns[0].partitions)
        for own in owns:
            allowed -= self._made_of_other_rows(own, own.partitions)
            if now[own.asset] != own.base:
                allowed -= self._differing(own, own.base, now[own.asset])
            if own.is_loaded:
                allowed -= self._quarantine.changed_by_others(own, own.partitions, entries)
        return allowed

    def _made_of_other_rows(self, own: TablePreview, partitions: Collection[Partition]) -> set[Partition]:
        node, history, read = self._graph.nodes[own.asset], self._follower.history, own.read()
        left = {(asset, p) for asset, of in self.found.left.items() for p in of}
        return {
            p
            for p in partitions
            if read_digest(history, node, p, self._inside) != read[p]
            or any(
                source in left for way in node.inputs if not way.use_latest for source in sources_through(way, p, left)
            )
        }

    def _differing(self, own: TablePreview, one: int | None, other: int | None) -> set[Partition]:
        """Return the partitions whose content differs between two snapshots; all if either snapshot has expired."""
        keys, table = as_keys(own.partitions), self._table(own)
        try:
            before, after = (content_of(self.spark, table, keys, at) for at in (one, other))
        except SnapshotExpired:
            return set(own.partitions)
        return {p for p in own.partitions if before[p] != after[p]}

    def _is_committed(self, own: TablePreview) -> bool:
        """Return True if an earlier attempt, which was killed, has already committed the decided partitions."""
        if own.decided is None:
            return False
        table = self._table(own)
        by_branch = own.head is not None and branches.has_in_its_past(self.spark, table, own.head)
        return not own.decided or by_branch or branches.was_committed_by(self.spark, table, self._run_id)

    # The event log.

    def _report(self, assets: Sequence[str], owns: Sequence[TablePreview]) -> None:
        """Report the published partitions to the instance, in runs that compute nothing."""
        decided = set(owns[0].decided or ())
        for own in owns:
            held = self._contents(own)
            decided &= set(own.decided or ()) & {p for p, content in own.content().items() if held[p] == content}
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

    def _contents(self, own: TablePreview) -> Mapping[Partition, str]:
        """Return the present content version of each previewed partition. Other writers may have committed since."""
        table = self._table(own)
        now = write.current_snapshot(self.spark, table)
        if now == own.head:
            return own.content()
        found = content_of(self.spark, table, as_keys(own.partitions), now)
        return {partition: content.version for partition, content in found.items()}

    def _tell(self, run: RunPreview, owns: Sequence[TablePreview], part: Sequence[Partition]) -> set[Partition]:
        """Report partitions in one run.

        Returns:
            The partitions with changed inputs, if these prevented the report; empty if it succeeded.
        """
        changed: set[Partition] = set()
        kept = {(e.asset_key.to_user_string(), e.partition): e for e in events(run.materializations)}
        state = {own.asset: self._table_state(own) for own in owns}

        def body(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
            # The planner rebuilds partitions whose inputs change after this run has started. Find earlier changes here.
            self._read_log()
            for own in owns:
                changed.update(self._made_of_other_rows(own, part))
            if changed:
                raise dg.Failure(f"other runs have changed the inputs{told(sorted(changed, key=str))}")
            for own in owns:
                through_inputs = arrivals(self.instance, self._graph.nodes[own.asset], part)
                of_the_table = _OF_THE_TABLE if own.is_loaded else (*_OF_THE_TABLE, THROUGH)
                for partition in part:
                    said = kept[own.asset, partition].metadata
                    said = {name: value for name, value in said.items() if name not in of_the_table}
                    metadata = {**through_inputs[partition], **said}
                    context.add_asset_metadata(metadata, dg.AssetKey.from_user_string(own.asset), partition)
                yield dg.MaterializeResult(
                    asset_key=dg.AssetKey.from_user_string(own.asset),
                    metadata=state[own.asset],
                    check_results=[self._as_of_now(own, result) for result in results(run, own.asset)],
                )

        tables = ", ".join(own.asset for own in owns)
        more = run_of(part)
        process = identity_of(psutil.Process())
        tags = {**more.pop("tags", {}), PUBLISHED: self.manifest.id, TABLES: tables, PROCESS: process}
        keys = [dg.AssetKey.from_user_string(own.asset) for own in owns]
        done = dg.materialize(
            [reporting(self.definitions, keys, run, body), *others(self.definitions, keys)],
            selection=keys,
            instance=self.instance,
            run_config=QUIET,
            raise_on_error=False,
            tags=tags,
            **more,
        )
        if not done.success and not changed:
            raise Transient(f"{tables}{told(part)}: the run {done.run_id}, which reports the rows, failed")
        return changed

    def _as_of_now(self, own: TablePreview, result: dg.AssetCheckResult) -> dg.AssetCheckResult:
        """Return a check result of the preview. The quarantine check is evaluated again, on the present quarantine."""
        read = {way.key for way in self._graph.nodes[own.asset].inputs}
        feed = next((each for each in self.feeds if source_key(each).to_user_string() in read), None)
        if not own.is_loaded or result.check_name != QUARANTINE_CHECK or feed is None:
            return result
        assert result.asset_key
        backlog = backlog_of(self.spark, own.asset)
        share = largest_share(self.spark, self._table(own), own.asset, {}) if backlog else 0.0
        said = columns_said({name: value.value for name, value in result.metadata.items()})
        return quarantine_result(feed, result.asset_key, Loaded(None, {}, backlog=backlog, largest_share=share, **said))

    def _say_what_is_there(self, run: RunPreview, partitions: Collection[Partition]) -> None:
        """Report committed partitions without a code version, so that they are rebuilt with their changed inputs."""
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
                found |= partitions_of(run, self.definitions, by)
        return found

    def _end_runs_that_were_killed(self) -> None:
        for run in self._runs():
            if not run.is_finished:
                self.instance.report_run_failed(run, "the publishing process died")

    def _runs(self) -> Sequence[dg.DagsterRun]:
        return self.instance.get_runs(RunsFilter(tags={PUBLISHED: self.manifest.id}))

    def _read_log(self) -> None:
        graph = self._graph
        graph.moment.moves_to(event_time.now(), event_storage.dynamic_partitions(self.instance, graph.dynamic))
        while self._follower.read(self.instance, lambda: False):
            pass

    def _table_state(self, own: TablePreview) -> dict[str, Any]:
        table = self._table(own)
        now = write.current_snapshot(self.spark, table)
        return table_state(now, None if now is None else branches.rows_at(self.spark, table, now))

    def _table(self, own: TablePreview) -> Table:
        """Return the declared table with the columns that loads have added."""
        if own.table not in self._widened:
            table = self.tables[own.table]
            texts = catalog.texts_beside(self.spark, table) if own.is_loaded else ()
            columns = table.columns | dict.fromkeys(texts, "string")
            self._widened[own.table] = replace(table, columns=columns, added=texts)
        return self._widened[own.table]

    @property
    def _run_id(self) -> str:
        return f"preview-{self.manifest.id}"
