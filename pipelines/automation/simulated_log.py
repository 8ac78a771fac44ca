"""The events of runs that never ran: the sequence a real run leaves in an instance, under a clock that stands still.

What a run writes here is what Dagster writes for it, in that order: one planned event an asset and partition when it
is created, its states, one materialization a partition when a step ends. tests/automation/test_simulated_log.py holds
it beside a real run. Belongs here: the un-annotated parts of Dagster this needs. Does not belong here: any time or
chance (`automation.simulator`).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from unittest.mock import patch

import dagster as dg
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from dagster._core.events import AssetMaterializationPlannedData, StepMaterializationData
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    PARTITION_NAME_TAG,
)

from pipelines.automation import adapter
from pipelines.automation.asset_graph import AnyGraph
from pipelines.lakehouse.io_manager import CONTENT
from pipelines.sources.feed import Partition

_JOB = "__ASSET_JOB"
# A queued run has to say where its code is.
_ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("simulation"), "__repository__"), _JOB)


@dataclass
class Clock:
    """The time of a simulation, in Unix seconds."""

    now: float

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Dagster's time is this one."""
        with (
            patch("dagster._time._mockable_get_current_timestamp", new=lambda: self.now),
            patch("dagster._time._mockable_get_current_datetime", new=lambda: datetime.fromtimestamp(self.now, UTC)),
        ):
            yield


@dataclass(frozen=True)
class Log:
    """Writes to an instance's event log, at the time of the clock."""

    instance: DagsterInstance
    clock: Clock
    graph: AnyGraph

    def observed(self, asset: str, partition: Partition, version: str, *, listed_at: float, arrived_at: float) -> None:
        """A look at a source partition, as the landing sensor reports it."""
        tags = {
            adapter.DATA_VERSION: version,
            adapter.LISTED_AT: f"{listed_at:.3f}",
            adapter.ARRIVED_AT: f"{arrived_at:.3f}",
        }
        self.instance.report_runless_asset_event(dg.AssetObservation(_key(asset), partition=partition, tags=tags))

    def reported(self, asset: str, partition: Partition, content: str | None) -> None:
        """A materialization that no run made."""
        metadata = {CONTENT: content} if content is not None else {}
        event = dg.AssetMaterialization(_key(asset), partition=partition, metadata=metadata)
        self.instance.report_runless_asset_event(event)

    def created(self, run_id: str, assets: Sequence[str], tags: Mapping[str, str]) -> Sequence[Partition]:
        """A run is created and queued; the partitions it is about, by its tags."""
        run = DagsterRun(
            _JOB,
            run_id,
            asset_selection=frozenset(_key(asset) for asset in assets),
            tags=tags,
            remote_job_origin=_ORIGIN,
        )
        self.instance.run_storage.add_historical_run(run, datetime.fromtimestamp(self.clock.now, UTC))
        partitions: Sequence[Partition] = [None]
        for asset in sorted(assets):
            partitions = self._partitions_of(run, asset)
            for partition in partitions:
                planned = AssetMaterializationPlannedData(_key(asset), partition=partition)
                event = DagsterEvent.build_asset_materialization_planned_event(_JOB, _step(asset), planned)
                self.instance.report_dagster_event(event, run_id, logging.DEBUG)
        self.state(run_id, DagsterEventType.RUN_ENQUEUED)
        return partitions

    def state(self, run_id: str, event_type: DagsterEventType) -> None:
        """A run changes its state."""
        event = DagsterEvent(event_type_value=event_type.value, job_name=_JOB, message=event_type.value)
        self.instance.report_dagster_event(event, run_id)

    def materialized(self, run_id: str, asset: str, contents: Mapping[Partition, str]) -> None:
        """A step ends: its partitions are written, with their contents."""
        code_version = self.graph.get(_key(asset)).code_version
        for partition, content in contents.items():
            written = dg.AssetMaterialization(
                _key(asset),
                partition=partition,
                # A run stamps one data version on all its partitions; this is what tells them apart.
                metadata={CONTENT: content},
                tags={adapter.DATA_VERSION: run_id} | ({CODE_VERSION_TAG: code_version} if code_version else {}),
            )
            event = DagsterEvent(
                event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
                job_name=_JOB,
                message=f"Materialized {asset}",
                step_key=_step(asset),
                event_specific_data=StepMaterializationData(written),
            )
            self.instance.report_dagster_event(event, run_id)

    def _partitions_of(self, run: DagsterRun, asset: str) -> Sequence[Partition]:
        subset = run.get_resolved_partitions_subset_for_events(self.graph.get(_key(asset)).partitions_def)
        return [None] if subset is None else list(subset.get_partition_keys())

    def code_versions(self) -> dict[str, str | None]:
        """The code version of every asset."""
        return {node.key.to_user_string(): node.code_version for node in self.graph.asset_nodes}


def partition_tags(partitions: Sequence[Partition]) -> dict[str, str]:
    """The tags that make a run one over these consecutive partitions."""
    if list(partitions) == [None]:
        return {}
    if len(partitions) == 1:
        return {PARTITION_NAME_TAG: str(partitions[0])}
    first, last = str(partitions[0]), str(partitions[-1])
    return {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}


def _key(asset: str) -> dg.AssetKey:
    return dg.AssetKey.from_user_string(asset)


def _step(asset: str) -> str:
    return asset.replace("/", "__")
