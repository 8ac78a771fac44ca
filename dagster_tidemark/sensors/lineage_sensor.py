"""The sensor `lineage`: reports each asset of each run to OpenLineage.

A sensor reads Dagster's event log, so a run sends nothing itself: a receiver that is down delays no run, events wait
for it, and a killed run is reported too. Does not belong here: reading a run (`lineage.asset_runs`), and the events and
their sending (`lineage.openlineage`).
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.event_log.observations import source_key
from dagster_tidemark.lineage.asset_runs import AssetRun, begun, ended, event_name
from dagster_tidemark.lineage.openlineage import EventSender, LineageNames, emit_with_client, event_of, is_configured
from dagster_tidemark.sensors.cursors import cursor_of
from dagster_tidemark.sensors.scope import LocationScope, assets_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed

NAME = "lineage"
_SECONDS = 8.0  # for sending in one tick
_LEAST = 1.0  # for the events of the first run in a tick, even if reading took all the time; and for one event
_OVERLAP = 10.0  # a run's row may become visible later than its time of change
_PAGE = 50
_MOST_BEGUN = 1000  # runs that were deleted before they ended
_ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_READ = [DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING, *_ENDED]


@dataclass
class LineagePosition:
    """Position in the list of changed runs.

    Args:
        at: All runs that changed before this time are reported (Unix seconds).
        begun: Runs whose start is reported and whose end is not.
        ended: Runs whose end is reported, with the time of their last change. Only those of the last seconds.
    """

    at: float
    begun: list[str] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, said: Any) -> "LineagePosition":
        """Return the position in the JSON of a cursor. Another release may have written more members, or fewer.

        Raises:
            AttributeError, LookupError, OverflowError, TypeError, ValueError: the JSON has another form.
        """
        datetime.fromtimestamp(said["at"] - _OVERLAP, UTC)  # raises if no runs can be looked up by it
        ended = {str(run): float(at) for run, at in said.get("ended", {}).items()}
        return cls(said["at"], [str(run) for run in said.get("begun", ())], ended)


def lineage_sensors(
    settings: Settings, feeds: Iterable[Feed], tables: Collection[str], scope: LocationScope
) -> list[dg.SensorDefinition]:
    """Return the sensor, if OpenLineage's own variables name a receiver; else nothing.

    Args:
        tables: Names of the location's tables.
    """
    if not is_configured():
        return []
    files = {source_key(feed).to_user_string(): (f"s3://{settings.landing_bucket}", feed.prefix) for feed in feeds}
    jobs = os.environ.get("OPENLINEAGE_NAMESPACE") or settings.code_location
    names = LineageNames(jobs, settings.catalog_shown, frozenset(tables), files)
    senders: list[EventSender] = []

    @dg.sensor(
        name=scope.named(NAME),
        description="Reports each asset of each run to OpenLineage, with the snapshots of its tables.",
        asset_selection=scope.assets,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def lineage(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if not senders:
            senders.append(EventSender(emit_with_client()))
        beginning = LineagePosition(event_time.now() + _OVERLAP)
        position = cursor_of(context, LineagePosition.of, beginning, "runs are reported from now on")
        sender = senders[0]
        if not sender.is_ready():
            return dg.SkipReason(f"events wait for the receiver: {sender.fault}")
        count = report(context.instance, assets_of(context), position, sender, names)
        said = f"; the others wait: {sender.fault}" if sender.fault else ""
        return dg.SensorResult(
            skip_reason=dg.SkipReason(f"{count} events sent{said}"), cursor=json.dumps(asdict(position))
        )

    return [lineage]


def report(
    instance: DagsterInstance, graph: AnyGraph, position: LineagePosition, sender: EventSender, names: LineageNames
) -> int:
    """Send the events of the runs that have changed, and return their number.

    The position moves after all events of a run are sent. The sender remembers the sent events of a run, so a large
    run is sent over several ticks.
    """
    deadline, count = event_time.now() + _SECONDS, 0
    since = datetime.fromtimestamp(position.at - _OVERLAP, UTC)
    # Runs that are reported already take no place of new ones.
    most = _PAGE + len(position.begun) + len(position.ended)
    changed = dg.RunsFilter(statuses=_READ, updated_after=since)
    for record in instance.get_run_records(changed, limit=most, order_by="update_timestamp", ascending=True):
        run_id = record.dagster_run.run_id
        for found in _unreported(instance, graph, record, position, sender):
            if not count:
                deadline = max(deadline, event_time.now() + _LEAST)
            left = deadline - event_time.now()
            if left <= 0:
                return count
            name = event_name(found.asset, found.state)
            try:
                event = event_of(found, names)
            except Exception as error:  # one run whose events cannot be built must not hold back all others
                sender.skip(run_id, name, f"it cannot be built: {type(error).__name__}: {error}")
                continue
            if not sender.send(run_id, name, event, max(left, _LEAST)):
                return count
            count += 1
        _note(record, position)
        sender.forget(run_id)
    return count


def _unreported(
    instance: DagsterInstance,
    graph: AnyGraph,
    record: dg.RunRecord,
    position: LineagePosition,
    sender: EventSender,
) -> Iterator[AssetRun]:
    run, sent = record.dagster_run, sender.sent(record.dagster_run.run_id)
    if run.run_id in position.ended:
        return
    try:
        if run.run_id not in position.begun:
            yield from begun(instance, record, graph, sent)
        if run.status in _ENDED:
            yield from ended(instance, record, graph, sent)
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a fault of the storage is none of these
        sender.skip(run.run_id, "each other", f"the run's log cannot be read: {type(error).__name__}: {error}")


def _note(record: dg.RunRecord, position: LineagePosition) -> None:
    run_id, changed_at = record.dagster_run.run_id, record.update_timestamp.timestamp()
    position.at = max(position.at, changed_at)
    if record.dagster_run.status in _ENDED:
        position.begun = [each for each in position.begun if each != run_id]
        position.ended[run_id] = changed_at
    elif run_id not in position.begun:
        position.begun = [*position.begun, run_id][-_MOST_BEGUN:]
    # A run that changed longer ago than the overlap is not read again.
    position.ended = {each: at for each, at in position.ended.items() if at > position.at - 2 * _OVERLAP}
