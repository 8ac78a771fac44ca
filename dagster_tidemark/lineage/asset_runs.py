"""What a run did with each of its assets, as plain data from Dagster's event log.

Belongs here: reading. Does not belong here: events of OpenLineage (`openlineage`), and when a run is read
(`sensors.lineage_sensor`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.tags import STREAM, TABLES

_READ = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.STEP_START,
    dg.DagsterEventType.STEP_FAILURE,
}
SNAPSHOT = "snapshot id"
"""Metadata of a materialization: the table's Iceberg snapshot after the run (`execution.metadata.table_state`)."""


class AssetRunState(StrEnum):
    """State of an asset in a run, by OpenLineage's names."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"
    """The run was canceled before the asset was built."""


@dataclass(frozen=True)
class AssetVersion:
    """An asset, and its table's snapshot id; empty if it is not known."""

    asset: str
    snapshot: str = ""


@dataclass(frozen=True)
class AssetRun:
    """An asset in a run.

    Args:
        at: Time of the state (Unix seconds).
        inputs: The asset's inputs. Each has the newest snapshot that was reported before the asset's step began.
        error: First line of the error.
    """

    run_id: str
    job: str
    asset: str
    state: AssetRunState
    at: float
    inputs: tuple[AssetVersion, ...]
    output: AssetVersion
    error: str = ""


_STATES: Mapping[dg.DagsterRunStatus, AssetRunState] = {
    dg.DagsterRunStatus.SUCCESS: AssetRunState.COMPLETE,
    dg.DagsterRunStatus.FAILURE: AssetRunState.FAIL,
    dg.DagsterRunStatus.CANCELED: AssetRunState.ABORT,
}


def event_name(asset: str, state: AssetRunState) -> str:
    """Return the name of an asset's event in its run."""
    return f"{state} of {asset}"


def begun(
    instance: DagsterInstance, record: dg.RunRecord, graph: AnyGraph, skip: Collection[str] = ()
) -> Iterator[AssetRun]:
    """Yield the assets of a run that has begun, without events to skip (`event_name`). Inputs have no snapshot yet."""
    run, at = record.dagster_run, record.start_time or record.create_timestamp.timestamp()
    state = AssetRunState.START
    for asset in _RunLog(instance, run).assets(graph):
        if event_name(asset, state) not in skip:
            yield AssetRun(run.run_id, run.job_name, asset, state, at, _inputs(graph, asset), AssetVersion(asset))


def ended(
    instance: DagsterInstance, record: dg.RunRecord, graph: AnyGraph, skip: Collection[str] = ()
) -> Iterator[AssetRun]:
    """Yield the assets of a run that has ended, each with its own result and the snapshots of tables.

    The snapshots of an asset's inputs are read when the asset is yielded. Events to skip (`event_name`) are not read.
    """
    run = record.dagster_run
    log, at = _RunLog(instance, run), record.end_time or record.update_timestamp.timestamp()
    began = record.start_time or record.create_timestamp.timestamp()
    for asset in log.assets(graph):
        made, step = log.built.get(asset), log.planned.get(asset, "")
        # An asset that a failed run has built is complete: its table has the commit.
        state = AssetRunState.COMPLETE if made is not None else _STATES[run.status]
        if event_name(asset, state) in skip:
            continue
        inputs = _inputs(graph, asset, instance, before=log.started.get(step, began))
        output = AssetVersion(asset, _snapshot(made.asset_materialization) if made is not None else "")
        error = log.errors.get(step, "") if state is AssetRunState.FAIL else ""
        when = made.timestamp if made is not None else at
        yield AssetRun(run.run_id, run.job_name, asset, state, when, inputs, output, error)


class _RunLog:
    """The events of a run that lineage needs.

    Attributes:
        planned: The step of each asset.
        built: The last materialization of each asset.
        started: Start of each step (Unix seconds).
        errors: First line of each failed step's error.
    """

    def __init__(self, instance: DagsterInstance, run: dg.DagsterRun) -> None:
        self.planned: dict[str, str] = {}
        self.built: dict[str, dg.EventLogEntry] = {}
        self.started: dict[str, float] = {}
        self.errors: dict[str, str] = {}
        for entry in instance.all_logs(run.run_id, of_type=_READ):
            event = entry.dagster_event
            if event is None:
                continue
            key, step = event.asset_key, event.step_key or ""
            if event.event_type is dg.DagsterEventType.STEP_START:
                self.started[step] = entry.timestamp
            elif event.event_type is dg.DagsterEventType.STEP_FAILURE:
                self.errors[step] = (event.message or "").partition("\n")[0]
            elif key is not None and event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
                self.built[key.to_user_string()] = entry
            elif key is not None:
                self.planned[key.to_user_string()] = step
        if STREAM in run.tags and TABLES in run.tags:  # a shift, whose tag names the stream's asset
            self.planned.setdefault(run.tags[TABLES], next(iter(self.started), ""))

    def assets(self, graph: AnyGraph) -> list[str]:
        """Return the assets of the location that the run should build. Another location may have built a source."""
        keys = {asset: dg.AssetKey.from_user_string(asset) for asset in sorted(self.planned)}
        return [asset for asset, key in keys.items() if graph.has(key) and graph.get(key).is_materializable]


def _inputs(
    graph: AnyGraph, asset: str, instance: DagsterInstance | None = None, before: float = 0.0
) -> tuple[AssetVersion, ...]:
    parents = sorted(key.to_user_string() for key in graph.get(dg.AssetKey.from_user_string(asset)).parent_keys)
    if instance is None:
        return tuple(AssetVersion(parent) for parent in parents)
    return tuple(AssetVersion(parent, _newest(instance, parent, before)) for parent in parents)


def _newest(instance: DagsterInstance, asset: str, before: float) -> str:
    wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset), before_timestamp=before)
    records = instance.fetch_materializations(wanted, limit=1).records
    return _snapshot(records[0].asset_materialization) if records else ""


def _snapshot(made: dg.AssetMaterialization | None) -> str:
    value = made.metadata.get(SNAPSHOT) if made is not None else None
    text = str(value.value) if value is not None else ""
    return text if text.isdecimal() else ""  # a table without a commit has none
