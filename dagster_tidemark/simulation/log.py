"""The events of simulated runs: the same sequence that a real run leaves in an instance, at the simulation's time.

The events and their order are Dagster's: one planned event for each asset and partition at creation, the run's states,
one materialization for each partition at the end of a step, the checks of the asset. Partitions that do not exist raise
at the same place as in Dagster. `test_simulated_log.py` compares the events with real runs. Belongs here: calls of
untyped parts of Dagster. Does not belong here: times and random numbers (`simulation.runs`).
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from unittest.mock import patch

import dagster as dg
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, DagsterRun
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.data_version import CODE_VERSION_TAG
from dagster._core.events import (
    AssetMaterializationPlannedData,
    JobFailureData,
    RunFailureReason,
    StepMaterializationData,
)
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.storage.tags import RUN_FAILURE_REASON_TAG

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.simulation.partitions import Existing
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import ARRIVED_AT, CONTENT, DATA_VERSION, LISTED_AT

REPOSITORY = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("simulation"), "__repository__")

_JOB = "__ASSET_JOB"
# A queued run must name its code location.
_ORIGIN = RemoteJobOrigin(REPOSITORY, _JOB)


@dataclass
class Clock:
    """The time of a simulation, in Unix seconds.

    Args:
        now: The true time, which schedules all events.
        skew: Seconds that the platform's clock is ahead of the true time.
    """

    now: float
    skew: float = 0.0

    @property
    def shown(self) -> float:
        """The time that the platform's clock shows."""
        return self.now + self.skew

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Make Dagster use the time that the platform's clock shows."""
        with (
            patch("dagster._time._mockable_get_current_timestamp", new=lambda: self.shown),
            patch("dagster._time._mockable_get_current_datetime", new=lambda: datetime.fromtimestamp(self.shown, UTC)),
        ):
            yield


@dataclass(frozen=True)
class SimulatedLog:
    """Writes to an instance's event log, at the time of the clock."""

    instance: DagsterInstance
    clock: Clock
    graph: AnyGraph

    @property
    def existing(self) -> Existing:
        """The partitions that exist."""
        return Existing(self.instance, self.graph)

    def observed(self, asset: str, partition: Partition, version: str, *, listed_at: float, arrived_at: float) -> None:
        """Report an observation of a source partition, as the landing sensor does."""
        tags = {
            DATA_VERSION: version,
            LISTED_AT: f"{listed_at:.3f}",
            ARRIVED_AT: f"{arrived_at:.3f}",
        }
        self.instance.report_runless_asset_event(dg.AssetObservation(_key(asset), partition=partition, tags=tags))

    def told(self, asset: str, partition: Partition, version: str | None) -> None:
        """Report an observation as an operator or a REST call does, with or without a data version."""
        tags = {} if version is None else {DATA_VERSION: version}
        self.instance.report_runless_asset_event(dg.AssetObservation(_key(asset), partition=partition, tags=tags))

    def reported(self, asset: str, partition: Partition, content: str | None, version: str | None = None) -> None:
        """Report a materialization that no run made."""
        metadata = {CONTENT: content} if content is not None else {}
        tags = {} if version is None else {DATA_VERSION: version}
        event = dg.AssetMaterialization(_key(asset), partition=partition, metadata=metadata, tags=tags)
        self.instance.report_runless_asset_event(event)

    def created(
        self,
        run_id: str,
        assets: Sequence[str],
        tags: Mapping[str, str],
        checks: Collection[dg.AssetCheckKey] | None = None,
    ) -> dict[str, Sequence[Partition]]:
        """Create and queue a run.

        Args:
            checks: The checks it evaluates; None: all checks of its assets.

        Returns:
            The partitions that its tags name, by asset.

        Raises:
            DagsterInvalidSubsetError: it is for a part of an operation that cannot be split. No run is created.
            Exception: any error of Dagster's for a range that does not exist. The run exists then, without planned
                events, and never leaves the state NOT_STARTED.
        """
        self.existing.refuse_parts(assets, checks)
        run = DagsterRun(
            _JOB,
            run_id,
            asset_selection=frozenset(_key(asset) for asset in assets),
            asset_check_selection=None if checks is None else frozenset(checks),
            tags=tags,
            remote_job_origin=_ORIGIN,
        )
        self.instance.run_storage.add_historical_run(run, datetime.fromtimestamp(self.clock.shown, UTC))
        partitions = {asset: self.existing.named_by(run, asset) for asset in sorted(assets)}
        for asset, planned_ones in partitions.items():
            for partition in planned_ones:
                planned = AssetMaterializationPlannedData(_key(asset), partition=partition)
                event = DagsterEvent.build_asset_materialization_planned_event(_JOB, _step(asset), planned)
                self.instance.report_dagster_event(event, run_id, logging.DEBUG)
        for check in self.checks_of(assets, checks):
            self._check_planned(run_id, check)
        self.state(run_id, DagsterEventType.RUN_ENQUEUED)
        return partitions

    def checks_of(
        self, assets: Collection[str], checks: Collection[dg.AssetCheckKey] | None = None
    ) -> list[dg.AssetCheckKey]:
        """Return the checks that a run of some assets evaluates."""
        of_assets = self.graph.get_check_keys_for_assets({_key(asset) for asset in assets})
        return sorted(check for check in of_assets if checks is None or check in checks)

    def blocks(self, check: dg.AssetCheckKey) -> bool:
        """Return True if the check is blocking: while it fails, readers of the asset are not built."""
        return self.graph.get(check).blocking

    def check_begins(self, run_id: str, check: dg.AssetCheckKey) -> None:
        """Write the first events of a run that evaluates only a check."""
        run = DagsterRun(_JOB, run_id, asset_selection=frozenset(), asset_check_selection=frozenset({check}))
        self.instance.run_storage.add_historical_run(run, datetime.fromtimestamp(self.clock.shown, UTC))
        self._check_planned(run_id, check)
        self.state(run_id, DagsterEventType.RUN_START)

    def check_ends(self, run_id: str, check: dg.AssetCheckKey, *, passed: bool) -> None:
        """Write the result and the end of a run that evaluates only a check."""
        self.checked(run_id, check, passed=passed)
        self.state(run_id, DagsterEventType.RUN_SUCCESS)

    def checked(
        self, run_id: str | None, check: dg.AssetCheckKey, *, passed: bool, blocking: bool | None = None
    ) -> None:
        """Evaluate a check on the asset's latest materialization, in a run or without one.

        Args:
            blocking: True if the evaluation reports a blocking check. None: as the check is declared.
        """
        latest = self.instance.fetch_materializations(check.asset_key, limit=1).records
        target = [
            AssetCheckEvaluationTargetMaterializationData(
                storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
            )
            for record in latest
        ]
        evaluation = dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.name,
            passed=passed,
            target_materialization_data=next(iter(target), None),
            blocking=self.blocks(check) if blocking is None else blocking,
        )
        if run_id is None:
            self.instance.report_runless_asset_event(evaluation)
            return
        event = DagsterEvent(
            event_type_value=DagsterEventType.ASSET_CHECK_EVALUATION.value,
            job_name=_JOB,
            step_key=_step_of(check),
            event_specific_data=evaluation,
        )
        self.instance.report_dagster_event(event, run_id)

    def state(self, run_id: str, event_type: DagsterEventType) -> None:
        """Write a change of a run's state."""
        event = DagsterEvent(event_type_value=event_type.value, job_name=_JOB, message=event_type.value)
        self.instance.report_dagster_event(event, run_id)

    def failed(self, run_id: str, reason: RunFailureReason | None = None, message: str | None = None) -> None:
        """Make a run fail: with the reason of its process, or without one, as the daemon's run monitoring does."""
        if run := self.instance.get_run_by_id(run_id):
            data = None if reason is None else JobFailureData(error=None, failure_reason=reason)
            self.instance.report_run_failed(run, message, data)

    def canceled(self, run_id: str, message: str | None = None) -> None:
        """Cancel a run: as a person does, or as the platform does if a message is given."""
        if run := self.instance.get_run_by_id(run_id):
            if message is None:
                self.instance.report_run_canceling(run)
            else:
                told = {RUN_FAILURE_REASON_TAG: RunFailureReason.UNEXPECTED_TERMINATION.value}
                self.instance.add_run_tags(run_id, told)
            self.instance.report_run_canceled(run, message)

    def materialized(
        self, run_id: str, asset: str, contents: Mapping[Partition, str], code_version: str | None = None
    ) -> None:
        """Write the end of a step: the contents of its partitions, and the version of its code."""
        for partition, content in contents.items():
            written = dg.AssetMaterialization(
                _key(asset),
                partition=partition,
                # A run gives all its partitions the same data version; the content distinguishes them.
                metadata={CONTENT: content},
                tags={DATA_VERSION: run_id} | ({CODE_VERSION_TAG: code_version} if code_version else {}),
            )
            event = DagsterEvent(
                event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
                job_name=_JOB,
                message=f"Materialized {asset}",
                step_key=_step(asset),
                event_specific_data=StepMaterializationData(written),
            )
            self.instance.report_dagster_event(event, run_id)

    def code_versions(self) -> dict[str, str | None]:
        """Return the code version of every asset."""
        return {node.key.to_user_string(): node.code_version for node in self.graph.asset_nodes}

    def _check_planned(self, run_id: str, check: dg.AssetCheckKey) -> None:
        event = DagsterEvent(
            event_type_value=DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
            job_name=_JOB,
            step_key=_step_of(check),
            event_specific_data=AssetCheckEvaluationPlanned(asset_key=check.asset_key, check_name=check.name),
        )
        self.instance.report_dagster_event(event, run_id, logging.DEBUG)


def _key(asset: str) -> dg.AssetKey:
    return dg.AssetKey.from_user_string(asset)


def _step(asset: str) -> str:
    return asset.replace("/", "__")


def _step_of(check: dg.AssetCheckKey) -> str:
    return f"{_step(check.asset_key.to_user_string())}_{check.name}"
