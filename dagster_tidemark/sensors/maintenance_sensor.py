"""The sensor `maintenance`: requests a run of maintenance when one is due and nothing else is.

A tick reads the metadata of a few tables, in turn, in a thread with a time limit. Does not belong here: which
maintenance is due (`lakehouse.maintenance.due`), and whether there is spare time (`maintenance.spare_time`).
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.engine.engine import engine_of
from dagster_tidemark.lakehouse.maintenance.due import DueAction
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.maintenance.job import MAINTENANCE_ASSET, OP, maintenance_job, run_config
from dagster_tidemark.maintenance.maintained_tables import TableUpkeep, saved_upkeep
from dagster_tidemark.maintenance.maintenance_overview import MaintenanceOverview, keep_overview
from dagster_tidemark.maintenance.spare_time import OpenRuns, open_runs, why_not_now
from dagster_tidemark.pauses import end_of_pause, growing_pause
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope, assets_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import MAINTENANCE

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_tidemark.maintenance.lake_facts import LakeFacts

NAME = "maintenance"
_AFTER_START = 60.0
_READ_SECONDS = 5.0
_USUAL_SECONDS = 60.0
"""Assumed duration of an action without a known one, and shortest spare time that a run needs."""
_VARIES = 1.5
_TABLES_IN_A_RUN = 10
_LOOKED_AT = 12
_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0
_PLAN_HOLDS_FOR = 30.0


@dataclass
class FactsReader:
    """Reads the facts about tables in a thread, a few tables at a time, so that no tick waits for a slow store.

    Args:
        tables: All tables of the location by name.
        lake: The facts so far; None before the first reading.
        reading: The table that is being read.
        fault: Why the last reading failed; empty if it did not.
    """

    settings: Settings
    tables: Mapping[str, Table]
    lake: "LakeFacts | None" = None
    reading: str = ""
    fault: str = ""
    _catalog: "Catalog | None" = None
    _position: int = 0
    _thread: threading.Thread | None = None

    def read(self, instance: DagsterInstance, runs: OpenRuns, now: float, seconds: float = _READ_SECONDS) -> str:
        """Read the facts about the next tables. Return why that is not possible; empty if some were read."""
        if self._thread is None or not self._thread.is_alive():
            upkeep = saved_upkeep(instance, self.settings.code_location, self.tables)
            stop_at = time.monotonic() + seconds
            self._thread = threading.Thread(
                target=self._work, args=[upkeep, runs, now, stop_at], name="reads tables", daemon=True
            )
            self._thread.start()
        self._thread.join(seconds)
        if self._thread.is_alive():
            return f"the metadata of {self.reading or 'the catalog'} is being read for more than {seconds:.0f} s"
        return self.fault

    def due(self, now: float) -> list[DueAction]:
        """Return the due actions on all tables, as far as facts are known."""
        if self.lake is None or (self._thread is not None and self._thread.is_alive()):
            return []
        return [each for name in self.tables for each in self.lake.due(name, now)]

    def _work(self, upkeep: Mapping[str, TableUpkeep], runs: OpenRuns, now: float, stop_at: float) -> None:
        from dagster_tidemark.lakehouse.append import open_lake
        from dagster_tidemark.maintenance.lake_facts import LakeFacts

        try:
            self.lake = self.lake or LakeFacts(self.tables)
            self._catalog = self._catalog or open_lake(self.settings)
            if self._position >= len(self.tables) + len(self.lake.others or ()):
                self._position = 0
                self.lake.list_others(self._catalog)
            names = [*self.tables, *(self.lake.others or ())]
            for _ in names:
                self.reading = names[self._position % len(names)]
                if self.reading in self.tables:
                    self.lake.read(self._catalog, self.reading, upkeep[self.reading], runs, now)
                else:
                    self.lake.read_needs(self._catalog, self.reading)
                self._position += 1
                if time.monotonic() > stop_at:
                    break
            self.fault = ""
        except Exception as error:  # drivers and catalogs raise errors of any type
            said = error_line(error)
            self.fault = f"the catalog {self.settings.catalog_shown} does not answer: {said}"


def maintenance_asset() -> dg.AssetsDefinition:
    """Return an asset for the table ops.maintenance, so that the UI plots the numbers of actions."""
    spec = dg.AssetSpec(
        MAINTENANCE_ASSET,
        group_name="ops",
        description="Maintenance of the tables, one row for each action. `tidemark maintain` does it by hand.",
    )
    return dg.AssetsDefinition(specs=[spec])


def maintenance_sensor(
    tables: Mapping[str, Table], settings: Settings, *, scope: LocationScope = WHOLE_LOCATION
) -> dg.SensorDefinition:
    """Return the sensor that requests runs of maintenance.

    Args:
        tables: All tables of the location by name.
    """
    job = maintenance_job(tables, settings, scope.named("maintain_tables"), scope.named(OP))
    reader = FactsReader(settings, tables)
    starts = time.monotonic() + _AFTER_START

    @dg.sensor(
        name=scope.named(NAME),
        description="Requests maintenance of tables (compaction, expiry of snapshots, orphan files) while no contract "
        "is due and a slot is free.",
        job=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def maintenance(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if time.monotonic() < starts:  # other sensors have more urgent work then
            return dg.SkipReason("the code server has just started")
        overview = look(context.instance, settings, reader, lambda: _plan(context, settings), event_time.now())
        keep_overview(context.instance, settings.code_location, overview)
        for line in overview.lines():
            context.log.info(line)
        if overview.why_not:
            return dg.SkipReason(overview.why_not)
        names = list(dict.fromkeys(each.table for each in overview.due if not each.waits))[:_TABLES_IN_A_RUN]
        return dg.SensorResult(run_requests=[dg.RunRequest(run_config=run_config(names, scope.named(OP)))])

    return maintenance


def look(
    instance: DagsterInstance, settings: Settings, reader: FactsReader, plan: Callable[[], Plan], now: float
) -> MaintenanceOverview:
    """Return the due maintenance, and why it cannot run now. Metadata is read only if a run could start."""
    runs = open_runs(instance, now)
    if why := runs.why_busy() or _why_paused(instance, settings, now):
        return _overview(reader, now, why)
    if why := reader.read(instance, runs, now):
        return _overview(reader, now, why)
    found = _overview(reader, now, "")
    possible = [each for each in found.due if not each.waits]
    if not possible:
        return _overview(reader, now, "nothing is due" if not found.due else "each due action waits, see its line")
    return _overview(reader, now, why_not_now(plan(), _seconds(possible)))


def _overview(reader: FactsReader, now: float, why: str) -> MaintenanceOverview:
    unreadable = {} if reader.lake is None else dict(reader.lake.unreadable)
    return MaintenanceOverview(now, why, tuple(reader.due(now)), unreadable)


def _seconds(due: Sequence[DueAction]) -> float:
    """Return the spare time that the longest action needs. A run stops after it if other runs wait."""
    return max(_USUAL_SECONDS, *(each.usual_seconds * _VARIES for each in due))


def _plan(context: dg.SensorEvaluationContext, settings: Settings) -> Plan:
    """Return the present plan. The sensors that request runs have usually just made it."""
    engine = engine_of(context, assets_of(context), settings)
    now = event_time.now()
    latest = engine.latest
    return latest if 0 <= now - latest.now < _PLAN_HOLDS_FOR else engine.look(now, context.instance)


def _why_paused(instance: DagsterInstance, settings: Settings, now: float) -> str:
    """Return why no run is requested after failed runs; empty if the pause is over."""
    records = instance.get_run_records(RunsFilter(tags={MAINTENANCE: settings.code_location}), limit=_LOOKED_AT)
    failures, ended = 0, 0.0
    for record in records:
        if record.dagster_run.status is not DagsterRunStatus.FAILURE:
            break
        failures, ended = failures + 1, max(ended, record.end_time or record.create_timestamp.timestamp())
    pause = growing_pause(failures, _FIRST_PAUSE, _LONGEST_PAUSE)
    if not failures or now >= (until := end_of_pause(ended, pause, now)):
        return ""
    return f"the last {failures} runs of maintenance failed; the next starts in {until - now:.0f} s"
