"""The parts of Dagster that are not annotated as public, behind plain functions.

An upgrade may break everything here; tests/tidemark/automation/test_adapter.py has one test per attribute to detect it.
Does not belong here: any decision, the asset graph (`asset_graph.planner_graph`), the event log as a table
(`event_log.event_rows`), and how runs end (`event_log.run_facts`).

Longer than 250 lines, to keep the parts that an upgrade may break in one place.
"""

import json
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import dagster as dg
import sqlalchemy
from dagster import (
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    EventLogRecord,
    EventRecordsResult,
    RunsFilter,
)
from dagster._core.assets import AssetDetails
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.freshness import FreshnessState, FreshnessStateChange
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue
from dagster._core.errors import (
    DagsterCodeLocationLoadError,
    DagsterUserCodeUnreachableError,
    SensorExecutionError,
)
from dagster._core.events import JobFailureData, RunFailureReason
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickStatus,
)
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from dagster._core.storage.event_log.in_memory import InMemoryEventLogStorage
from dagster._core.storage.event_log.schema import AssetKeyTable
from dagster._core.storage.runs import SqlRunStorage
from dagster._core.storage.runs.schema import KeyValueStoreTable
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._serdes import deserialize_value
from dagster._time import get_current_timestamp
from dagster._utils.warnings import disable_dagster_warnings
from dagster.components.core import decl as component_decl
from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.core.defs_module import ComponentPath, CompositeYamlComponent, PythonFileComponent
from dagster_shared.error import SerializableErrorInfo

from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import CONTENT, PREFIX, STREAM

SHIFTS_TAKE_NO_SLOT = "shifts_take_no_slot"
"""Attribute of a run coordinator that starts runs of streams without counting them against its limit."""
_PAGE = 1000
_AT_ONCE = 20  # simultaneous runs of one asset; the last to evaluate a check need not be the last that began
_EVALUATED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}


Freshness = Literal["PASS", "WARN", "FAIL", "UNKNOWN"]


def report_freshness(instance: DagsterInstance, states: Mapping[str, Freshness], at: float) -> None:
    """Report the freshness state of assets to Dagster, in place of its daemon, which counts from materializations.

    The UI shows the state in its panel, and `AutomationCondition.freshness_failed()` reads it.
    """
    keys = {asset: dg.AssetKey.from_user_string(asset) for asset in states}
    records = instance.get_freshness_state_records(list(keys.values()))
    for asset, state in states.items():
        held = records.get(keys[asset])
        before = FreshnessState.UNKNOWN if held is None else held.freshness_state
        if held is None or before != state:
            change = FreshnessStateChange(
                key=keys[asset], new_state=FreshnessState(state), previous_state=before, state_change_timestamp=at
            )
            instance.report_runless_asset_event(change)


def now() -> float:
    """Return the time in Unix seconds by the clock that stamps the instance's events, which may be a simulated one."""
    return get_current_timestamp()


class Fetch(Protocol):
    """`fetch_observations`, `fetch_materializations` or `fetch_planned_materializations` of an instance."""

    def __call__(
        self, records_filter: AssetRecordsFilter, limit: int, cursor: str | None = ..., ascending: bool = ...
    ) -> EventRecordsResult: ...


def is_loaded_for_a_run() -> bool:
    """Return True if this process loads the definitions only to execute a run. No sensor ticks in it."""
    return (
        DefinitionsLoadContext.is_set() and DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION
    )


def is_loaded_by_a_code_server() -> bool:
    """Return True if this process loads the definitions for others: a code server, or a check of the definitions."""
    return DefinitionsLoadContext.is_set() and not is_loaded_for_a_run()


def components_of(metadata: Mapping[str, object]) -> Iterator[object]:
    """Yield the Dagster component that made an asset with this metadata; nothing if no component made it.

    For an asset below a `dg.DefsFolderComponent` the metadata names only the folder. Its components are yielded too.
    """
    origin = metadata.get("dagster/component_origin")
    waiting = [origin.instance] if isinstance(origin, ObjectMetadataValue) else []
    while waiting:
        component = waiting.pop()
        yield component
        if isinstance(component, dg.DefsFolderComponent):
            waiting += component.children.values()
        elif isinstance(component, CompositeYamlComponent):
            waiting += component.components
        elif isinstance(component, PythonFileComponent):
            waiting += component.components.values()


@contextmanager
def components_one_by_one(refusing: Callable[[Path], AbstractContextManager[None]]) -> Iterator[None]:
    """Let Dagster load each part of a folder of components separately within the block, and leave out broken parts.

    Without it the first broken file of the folder ends the whole load.

    Args:
        refusing: Returns a context for a part's file or folder, which suppresses the part's errors.
    """
    declare = component_decl.build_filesystem_component_decl_from_context
    load, build = dg.ComponentTree.load_structural_component_at_loc, dg.ComponentTree.build_defs_at_path

    def declared(context: ComponentDeclLoadContext) -> object | None:
        found = None
        with refusing(context.path):
            found = declare(context)
        return found

    def loaded(tree: dg.ComponentTree, loc: Any) -> dg.Component:
        found: dg.Component = _NoComponent()
        with refusing(_folder_of(tree, loc)):
            found = load(tree, loc)
        return found

    def built(tree: dg.ComponentTree, loc: Any) -> dg.Definitions:
        found = dg.Definitions()
        with refusing(_folder_of(tree, loc)):
            found = build(tree, loc)
        return found

    with (
        _replaced(component_decl, "build_filesystem_component_decl_from_context", declared),
        _replaced(dg.ComponentTree, "load_structural_component_at_loc", loaded),
        _replaced(dg.ComponentTree, "build_defs_at_path", built),
    ):
        yield


def _folder_of(tree: dg.ComponentTree, loc: Any) -> Path:
    return loc.file_path if isinstance(loc, ComponentPath) else tree.defs_module_path


class _NoComponent(dg.Component):
    """Placeholder for a component that cannot be loaded."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def events_after(fetch: Fetch, key: str, after: int) -> Iterator[EventLogRecord]:
    """Yield the events of one asset after a storage id, in the order of ids."""
    records_filter = AssetRecordsFilter(dg.AssetKey.from_user_string(key), after_storage_id=after or None)
    cursor = None
    while True:
        page = fetch(records_filter, limit=_PAGE, cursor=cursor, ascending=True)
        yield from page.records
        if not page.has_more:
            return
        cursor = page.cursor


def fetch_planned(instance: DagsterInstance) -> Fetch:
    """Return the instance's `fetch_planned_materializations` without its warning: Dagster 2.0 will remove it."""

    def _fetch(
        records_filter: AssetRecordsFilter, limit: int, cursor: str | None = None, ascending: bool = False
    ) -> EventRecordsResult:
        with disable_dagster_warnings():
            return instance.fetch_planned_materializations(records_filter, limit, cursor, ascending)

    return _fetch


def planned_partitions(record: EventLogRecord) -> list[Partition]:
    """Return the partitions of a planned event."""
    planned = record.event_log_entry.get_dagster_event().asset_materialization_planned_data
    if planned.partitions_subset is not None:
        return list(planned.partitions_subset.get_partition_keys())
    return [planned.partition]


def observation_tags(record: EventLogRecord) -> Mapping[str, str]:
    """Return the tags of an observation."""
    observation = record.asset_observation
    return observation.tags if observation else {}


def identity_of(instance: DagsterInstance) -> str:
    """Return the id of an instance's storage. It is unique and never changes."""
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage)
    if storage not in _identities:  # it never changes, and every tick needs it
        _identities[storage] = storage.get_run_storage_id()
    return _identities[storage]


_identities: "weakref.WeakKeyDictionary[SqlRunStorage, str]" = weakref.WeakKeyDictionary()


def content_version(record: EventLogRecord) -> str | None:
    """Return the content version that a materialization was written with, or None."""
    materialization = record.asset_materialization
    value = materialization.metadata.get(CONTENT) if materialization else None
    return str(value.value) if value is not None else None


def latest_observations(
    instance: DagsterInstance, key: dg.AssetKey, partitions: set[str] | None = None
) -> dict[Partition, dict[str, str]]:
    """Return the tags of each partition's latest observation (all partitions, or these), in two queries."""
    found = _latest_records(instance, DagsterEventType.ASSET_OBSERVATION, key, partitions)
    return {partition: dict(observation_tags(record)) for partition, record in found.items()}


def latest_metadata(
    instance: DagsterInstance, key: dg.AssetKey, name: str, partitions: set[str] | None = None
) -> dict[Partition, object]:
    """Return a metadata value of each partition's latest materialization if it has one, in two queries."""
    found = _latest_records(instance, DagsterEventType.ASSET_MATERIALIZATION, key, partitions)
    said = {p: r.asset_materialization.metadata.get(name) for p, r in found.items() if r.asset_materialization}
    return {partition: value.value for partition, value in said.items() if value is not None}


def _latest_records(
    instance: DagsterInstance, kind: DagsterEventType, key: dg.AssetKey, partitions: set[str] | None
) -> dict[Partition, EventLogRecord]:
    fetch = {
        DagsterEventType.ASSET_OBSERVATION: instance.fetch_observations,
        DagsterEventType.ASSET_MATERIALIZATION: instance.fetch_materializations,
    }[kind]
    ids = list(instance.event_log_storage.get_latest_storage_id_by_partition(key, kind, partitions).values())
    found: dict[Partition, EventLogRecord] = {}
    for start in range(0, len(ids), _PAGE):
        some = ids[start : start + _PAGE]
        records = fetch(AssetRecordsFilter(key, storage_ids=some), limit=len(some)).records
        found |= {r.partition_key: r for r in records}
    if not ids and partitions is None:
        found |= {r.partition_key: r for r in fetch(AssetRecordsFilter(key), limit=1).records}
    return found


def last_event_id(instance: DagsterInstance) -> int:
    """Return the storage id of the latest event of any kind."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def commits_in_order(instance: DagsterInstance) -> bool:
    """Return True if events appear in the order of their ids, because the storage has one writer at a time."""
    return isinstance(instance.event_log_storage, SqliteEventLogStorage | InMemoryEventLogStorage)


def catalog(instance: DagsterInstance) -> dict[str, float]:
    """Return the time of the last wipe of each asset of an instance (Unix seconds), minus infinity if never wiped."""
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    query = sqlalchemy.select(AssetKeyTable.c.asset_key, AssetKeyTable.c.asset_details)
    with storage.index_connection() as connection:
        rows = connection.execute(query).fetchall()
    return {"/".join(json.loads(key)): _wiped_at(details) for key, details in rows}


def _wiped_at(details: str | None) -> float:
    found = deserialize_value(details, AssetDetails).last_wipe_timestamp if details else None
    return float("-inf") if found is None else found


def run_slots(instance: DagsterInstance) -> int | None:
    """Return how many runs of tables the instance's queue lets run at once; None without a queue or a limit."""
    queue = instance.get_concurrency_config().run_queue_config
    if queue is None or queue.max_concurrent_runs <= 0:
        return None
    return max(1, queue.max_concurrent_runs - len(unfinished_shifts(instance)))


def unfinished_shifts(instance: DagsterInstance) -> list[dg.RunRecord]:
    """Return the runs of streams that have not ended according to the instance."""
    live = RunsFilter(statuses=NOT_FINISHED_STATUSES)
    return [record for record in instance.get_run_records(live) if STREAM in record.dagster_run.tags]


def end_lost_run(instance: DagsterInstance, run: dg.DagsterRun, message: str) -> None:
    """Report a run as failed because its process ended without a result; as canceled if it was being canceled."""
    if run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, message)
    else:
        reason = JobFailureData(error=None, failure_reason=RunFailureReason.UNEXPECTED_TERMINATION)
        instance.report_run_failed(run, message, reason)


def launching_socket(run: dg.DagsterRun) -> str | None:
    """Return the socket of the code server that started a run by Dagster's own launcher; None in any other case."""
    try:
        found = json.loads(run.tags.get(GRPC_INFO_TAG, ""))
    except ValueError:
        return None
    socket = found.get("socket") if isinstance(found, dict) else None
    return socket if isinstance(socket, str) else None


def started_process(instance: DagsterInstance, run_id: str) -> int | None:
    """Return the pid that a run's newest process logged as it began; None if it did not."""
    for entry in reversed(instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)):
        event = entry.dagster_event
        if event is None or not (event.message or "").startswith("Started process for run"):
            continue
        pid = event.engine_event_data.metadata.get("pid")
        if pid is not None and str(pid.value).isdigit():
            return int(str(pid.value))
    return None


def has_unfinished_run(instance: DagsterInstance, tags: Mapping[str, str]) -> bool:
    """Return True if the instance has a run with these tags that has not ended."""
    return bool(instance.get_run_records(RunsFilter(statuses=NOT_FINISHED_STATUSES, tags=dict(tags)), limit=1))


def dynamic_partitions(instance: DagsterInstance, names: Collection[str]) -> dict[str, list[str]]:
    """Return the existing keys of each dynamic partitions definition, in Dagster's order: the oldest first."""
    return {name: list(instance.get_dynamic_partitions(name)) for name in names}


def stopped_sensors(
    instance: DagsterInstance, *, location: str | None = None, repository: str | None = None
) -> frozenset[str]:
    """Return the names of stopped sensors, without our prefix. Sensors without a stored state are left out.

    Args:
        location: Only sensors of this code location; None: of any location.
        repository: Only sensors of this repository; None: of any repository.
    """
    if instance.schedule_storage is None:
        return frozenset()
    states = instance.all_instigator_state(
        instigator_type=InstigatorType.SENSOR, instigator_statuses={InstigatorStatus.STOPPED}
    )
    found = [(state.repository_selector, state.instigator_name) for state in states]
    return frozenset(
        name.removeprefix(PREFIX)
        for owner, name in found
        if location in (None, owner.location_name) and repository in (None, owner.repository_name)
    )


@dataclass(frozen=True)
class SensorTick:
    """A sensor, and the end of its last complete tick (Unix seconds).

    Args:
        is_off: True if it was switched off.
        error: First line of its newest tick's error; empty if that tick did not fail.
        unreachable: True if that tick failed because Dagster's daemon cannot reach or load the code location. `error`
            is then the reason why the location cannot be loaded, and empty if its server does not answer.
    """

    sensor: str
    at: float
    is_off: bool = False
    error: str = ""
    unreachable: bool = False


def sensor_ticks(instance: DagsterInstance) -> list[SensorTick]:
    """Return the last complete tick of each sensor that has ticked."""
    if instance.schedule_storage is None:
        return []
    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    return [tick for state in states if (tick := _sensor_tick(instance, state)) is not None]


def _sensor_tick(instance: DagsterInstance, state: InstigatorState) -> SensorTick | None:
    data, is_off, name = state.instigator_data, state.status is InstigatorStatus.STOPPED, state.instigator_name
    if not isinstance(data, SensorInstigatorData) or not (data.last_tick_timestamp or data.last_tick_start_timestamp):
        return None
    if data.last_tick_success_timestamp is not None:
        return SensorTick(name, data.last_tick_success_timestamp, is_off)
    # A tick is under way, or the newest one failed.
    origin, selector = state.instigator_origin_id, state.selector_id
    complete = instance.get_ticks(origin, selector, limit=1, statuses=[TickStatus.SUCCESS, TickStatus.SKIPPED])
    newest = instance.get_ticks(origin, selector, limit=1)
    error = newest[0].error if newest and newest[0].status is TickStatus.FAILURE else None
    at = max((tick.end_timestamp or tick.timestamp for tick in complete), default=0.0)
    if error is not None and error.cls_name == DagsterUserCodeUnreachableError.__name__:
        refused = error.cause if error.cause and error.cause.cls_name == DagsterCodeLocationLoadError.__name__ else None
        why = _first_line(refused)
        is_away = DagsterUserCodeUnreachableError.__name__ in why  # for half a minute, so Dagster calls it a load error
        return SensorTick(name, at, is_off, "" if is_away else why, unreachable=True)
    return SensorTick(name, at, is_off, _first_line(error))


def _first_line(error: SerializableErrorInfo | None) -> str:
    """Return the first line of an error without the modules of its classes; empty if there is none.

    Dagster wraps an error of the sensor's code in an error that only names the sensor.
    """
    while error is not None and error.cls_name == SensorExecutionError.__name__ and error.cause is not None:
        error = error.cause
    lines = (error.message if error is not None else "").splitlines()
    line = next((line.strip() for line in lines if line.strip()), "")
    line = line.removeprefix(f"{DagsterCodeLocationLoadError.__module__}.{DagsterCodeLocationLoadError.__name__}: ")
    return re.sub(r"(^|: )(?:\w+\.)+(?=[A-Z]\w+(?::|$))", r"\1", line)


@dataclass(frozen=True)
class QueuedRun:
    """A run that waits in the queue, its time of creation (Unix seconds), and the assets that it builds."""

    since: float
    assets: tuple[str, ...]


def queued_runs(instance: DagsterInstance) -> list[QueuedRun]:
    """Return the runs that wait in the queue."""
    records = instance.get_run_records(RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    return [
        QueuedRun(
            record.create_timestamp.timestamp(),
            tuple(key.to_user_string() for key in record.dagster_run.asset_selection or ()),
        )
        for record in records
    ]


def starts_of_running(instance: DagsterInstance) -> list[float]:
    """Return the start (or else creation) time of each run that holds a slot of the queue (Unix seconds)."""
    held = [status for status in NOT_FINISHED_STATUSES if status is not dg.DagsterRunStatus.QUEUED]
    records = instance.get_run_records(RunsFilter(statuses=held))
    return [record.start_time or record.create_timestamp.timestamp() for record in records]


def queue_limit(instance: DagsterInstance) -> int | None:
    """Return the limit of runs at once in the instance's queue, shifts included; None without a queue or a limit."""
    queue = instance.get_concurrency_config().run_queue_config
    return None if queue is None or queue.max_concurrent_runs < 0 else queue.max_concurrent_runs


def shifts_take_no_slot(instance: DagsterInstance) -> bool:
    """Return True if the instance's queue starts runs of streams outside of its limit, as `PromptRunQueue` does."""
    return bool(getattr(instance.run_coordinator, SHIFTS_TAKE_NO_SLOT, False))


def saved(instance: DagsterInstance, key: str) -> str | None:
    """Return the value saved under a key in the instance's own storage."""
    storage = instance.daemon_cursor_storage
    return storage.get_cursor_values({key}).get(key) if storage else None


def saved_values(instance: DagsterInstance, keys: Collection[str]) -> Mapping[str, str]:
    """Return the values saved under some keys in the instance's own storage, in one query."""
    storage = instance.daemon_cursor_storage
    return storage.get_cursor_values(set(keys)) if storage else {}


def saved_under(instance: DagsterInstance, prefix: str) -> dict[str, str]:
    """Return all values saved under keys with a prefix."""
    storage = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        return {}
    table = KeyValueStoreTable.c
    query = sqlalchemy.select(table.key, table.value).where(table.key.startswith(prefix, autoescape=True))
    with storage.connect() as connection:
        return {str(key): str(value) for key, value in connection.execute(query)}


def save(instance: DagsterInstance, key: str, value: str) -> None:
    """Save something under a key in the instance's own storage."""
    if instance.daemon_cursor_storage:
        instance.daemon_cursor_storage.set_cursor_values({key: value})


def check_results(instance: DagsterInstance, asset: str, check: str, since: float) -> list[tuple[float, bool]]:
    """Return the results of an asset check since a time, and some earlier ones: Unix seconds, False if it failed."""
    key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), check)
    found: list[tuple[float, bool]] = []  # newest first
    cursor = None
    while not found or found[-1][0] >= since:
        records = instance.event_log_storage.get_asset_check_execution_history(key, _PAGE, cursor)
        for record in records:
            event = record.event.dagster_event if record.event else None
            result = event.event_specific_data if event else None
            if isinstance(result, dg.AssetCheckEvaluation):
                warned = result.severity is dg.AssetCheckSeverity.WARN
                found.append((record.event.timestamp if record.event else 0.0, result.passed or warned))
        if len(records) < _PAGE:
            break
        cursor = records[-1].id
    return found


def latest_check_metadata(instance: DagsterInstance, key: dg.AssetCheckKey) -> dict[str, object] | None:
    """Return the metadata of a check's latest evaluation; None if it has none."""
    # While a run will still evaluate the check, Dagster's own latest record is a plan without metadata.
    records = instance.event_log_storage.get_asset_check_execution_history(key, _AT_ONCE, status=_EVALUATED)
    events = [record.event for record in records if record.event and record.event.dagster_event]
    latest = max(events, key=lambda event: event.timestamp, default=None)
    if latest is None or latest.dagster_event is None:
        return None
    return {name: of.value for name, of in latest.dagster_event.asset_check_evaluation_data.metadata.items()}


def locations_of_runs(instance: DagsterInstance, run_ids: Collection[str]) -> dict[str, str]:
    """Return the names of the code locations whose jobs these runs execute. Unknown ones are left out."""
    runs = instance.get_runs(dg.RunsFilter(run_ids=list(run_ids))) if run_ids else ()
    return {
        run.run_id: run.remote_job_origin.repository_origin.code_location_origin.location_name
        for run in runs
        if run.remote_job_origin is not None
    }
