"""The job `maintain_tables`: does the due maintenance of some tables, one action after the other.

It stops between two actions if other runs wait. Belongs here: the run. Does not belong here: the request of a run
(`sensors.maintenance_sensor`), and the work itself (`lakehouse.maintenance.procedures`).
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.errors import Transient
from dagster_tidemark.event_log.executor import recorded_in_process
from dagster_tidemark.failpoints import reached
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.maintenance.due import Action, DueAction, LastAction, MaintenancePolicy
from dagster_tidemark.lakehouse.maintenance.maintenance_table import (
    FAILED,
    MAINTENANCE,
    REFUSED,
    ActionResult,
    MaintenanceRow,
)
from dagster_tidemark.lakehouse.maintenance.orphans import OrphansRefused, next_search, require_own_folder
from dagster_tidemark.lakehouse.session import (
    SparkLost,
    SparkUnreachable,
    error_line,
    naming_the_server,
    new_session,
)
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.maintenance.maintained_tables import TableUpkeep, save_upkeep, saved_upkeep
from dagster_tidemark.maintenance.spare_time import open_runs
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import MAINTENANCE as MAINTENANCE_TAG
from dagster_tidemark.tags import NOT_RETRIED, PRIORITY, TABLES

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from dagster_tidemark.lakehouse.append import Appendable
    from dagster_tidemark.maintenance.lake_facts import LakeFacts

JOB = "maintain_tables"
OP = "maintenance"
NOT_DONE = "not done"
"""Metadata with a line for each action that did not succeed, and each table that cannot be read."""
MAINTENANCE_ASSET = dg.AssetKey(["ops", "maintenance"])
_PRIORITY = -20  # below rebuilds, which have -10
_LONGEST_SECONDS = 600.0
_NOT_ENDED = "its run ended before it did"


class MaintenanceStopped(Transient):
    """Error of a maintenance run that could not start, because the catalog or Spark does not answer."""


@dataclass
class MaintenanceWork:
    """Maintenance of a location's tables in this process.

    Args:
        tables: All tables of the location by name.
        broken: A part of the code location that cannot be loaded; empty if there is none.
        yields: Returns the reason to stop before the next action; empty to continue.
        done: Number of actions by result.
        said: A line for each action that did not succeed.
    """

    instance: DagsterInstance
    settings: Settings
    tables: Mapping[str, Table]
    policy: MaintenancePolicy
    run_id: str
    log: logging.Logger | Any
    broken: str = ""
    yields: Callable[[], str] = lambda: ""
    done: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    _closing: ExitStack = field(default_factory=ExitStack)

    def work(self, names: Sequence[str]) -> str:
        """Do the due actions on some tables. Return why it stopped early; empty if everything was done."""
        from dagster_tidemark.maintenance.lake_facts import LakeFacts

        lake = LakeFacts(self.tables, self.policy, broken=self.broken)
        with self._closing:
            lake.read_all_needs(self.lake)  # any table may need a snapshot of another one
            for name in names:
                for action in Action:
                    if why := self.yields():
                        return why
                    self._attempt(lake, name, action)
            for name, why in lake.unreadable.items():
                self._not_done(f"{name}: {why}")
        return ""

    def _attempt(self, lake: "LakeFacts", name: str, action: Action) -> None:
        """Do an action on a table if it is due and possible now. A fault is recorded, and harms only this action."""
        upkeep, now = saved_upkeep(self.instance, self.settings.code_location, [name])[name], event_time.now()
        runs = open_runs(self.instance, now)
        found = lake.read(self.lake, name, upkeep, runs, now)
        due = next((each for each in lake.due(name, now) if each.action is action), None)
        if found is None or due is None:
            return
        if due.waits:
            self.log.info(f"{name}: {action} is due ({due.reason}), but {due.waits}")
            return
        reached("maintenance_decided")
        self._save_begun(name, action, upkeep, now)
        held_since = min(runs.since, now - self.tables[name].retention.held_for.total_seconds())
        began, started_at = time.monotonic(), datetime.now(UTC)
        result = self._performed(lake, name, action, found, upkeep, held_since)
        reached("maintenance_committed")
        seconds = time.monotonic() - began
        self._record(lake, due, upkeep, result, seconds, held_since)
        self._write(MaintenanceRow(name, str(action), due.reason, started_at, seconds, self.run_id, result))
        reached("maintenance_recorded")

    def _save_begun(self, name: str, action: Action, upkeep: TableUpkeep, now: float) -> None:
        """Save a failure before the action begins. An action that ends this process then rests, too."""
        before = upkeep.last.get(action, LastAction(now))
        begun = replace(before, at=now, failures=before.failures + 1, why=_NOT_ENDED)
        save_upkeep(self.instance, self.settings.code_location, name, upkeep.with_action(action, begun))

    def _performed(
        self, lake: "LakeFacts", name: str, action: Action, found: Any, upkeep: TableUpkeep, held_since: float
    ) -> ActionResult:
        from dagster_tidemark.lakehouse.maintenance.procedures import perform

        table, now = self.tables[name], event_time.now()
        try:
            if action is Action.ORPHANS:
                require_own_folder(name, self._locations, [f"{self.settings.warehouse}/models"])
            with naming_the_server(self.spark):
                return perform(
                    self.spark,
                    table,
                    found,
                    action,
                    lake.facts[name],
                    self.policy,
                    searched=upkeep.searched,
                    now=now,
                    held_since=held_since,
                )
        except SparkUnreachable:  # not because of this table
            save_upkeep(self.instance, self.settings.code_location, name, upkeep)
            raise
        except SparkLost:
            raise
        except OrphansRefused as error:
            return ActionResult(REFUSED, message=str(error))
        except Exception as error:  # of Spark, the catalog or the store, about this table
            return ActionResult(FAILED, message=error_line(error))

    def _record(
        self,
        lake: "LakeFacts",
        due: DueAction,
        upkeep: TableUpkeep,
        result: ActionResult,
        seconds: float,
        held_since: float,
    ) -> None:
        now, name, action = event_time.now(), due.table, due.action
        self.done[result.result] += 1
        before = upkeep.last.get(action)
        failures = (before.failures if before else 0) + 1 if result.has_failed else 0
        left = 0
        if not result.has_failed and action is not Action.ORPHANS:
            lake.read(self.lake, name, upkeep, open_runs(self.instance, now), now)
            left = lake.facts[name].count(action) if name in lake.facts else 0
        if result.has_failed:
            self._not_done(f"{name}: {action}: {result.result}: {result.message}")
        else:
            self.log.info(f"{name}: {action}: {result.result} in {seconds:.1f} s, because of {due.reason}")
        upkeep = upkeep.with_action(
            action, LastAction(now, seconds, left, failures, result.message if failures else "")
        )
        if action is Action.ORPHANS and not failures:
            searched = next_search(upkeep.searched, result.candidates, now, held_since)
            upkeep = replace(upkeep, searched=searched)
        save_upkeep(self.instance, self.settings.code_location, name, upkeep)

    def _not_done(self, line: str) -> None:
        self.said.append(line)
        self.log.error(line)

    def _write(self, row: MaintenanceRow) -> None:
        """Add a row to ops.maintenance. A fault is logged: the work is done, and `tidemark status` shows it."""
        from dagster_tidemark.lakehouse.append import TableCommit, rows_of

        try:
            self._journal.refresh()  # maintenance of this table has commits, too
            rows = rows_of(self._journal.schema, [row.as_row()])
            until_committed(
                lambda: self._journal.commit(TableCommit(rows=rows)), MAINTENANCE.name, look_again=self._journal.refresh
            )
        except Exception as error:  # of the catalog or the store
            said = error_line(error)
            self.log.warning(f"{row.table}: {row.action} is not recorded in {MAINTENANCE.name}: {said}")

    @cached_property
    def lake(self) -> "Catalog":
        """The catalog.

        Raises:
            MaintenanceStopped: it does not answer.
        """
        from dagster_tidemark.lakehouse.append import open_lake

        try:
            return open_lake(self.settings)
        except Exception as error:  # drivers and catalogs raise errors of any type
            said = error_line(error)
            raise MaintenanceStopped(f"the catalog {self.settings.catalog_shown} does not answer: {said}") from error

    @cached_property
    def spark(self) -> "SparkSession":
        """A session, which ends with the work."""
        session = new_session(self.settings)
        self._closing.callback(session.stop)
        return session

    @cached_property
    def _journal(self) -> "Appendable":
        from dagster_tidemark.lakehouse.append import Appendable

        return Appendable(self.lake, MAINTENANCE)

    @cached_property
    def _locations(self) -> dict[str, str]:
        from dagster_tidemark.maintenance.lake_facts import locations

        return locations(self.lake)


def maintenance_job(
    tables: Mapping[str, Table], settings: Settings, name: str = JOB, op: str = OP, *, broken: str = ""
) -> dg.JobDefinition:
    """Return the job that maintains tables. Its config names the tables.

    Args:
        tables: All tables of the location by name.
        op: Name of its op. All ops of a code location have different names.
        broken: A part of the code location that cannot be loaded; empty if there is none.
    """

    @dg.op(
        name=op,
        config_schema={"tables": [str], "by_hand": dg.Field(bool, default_value=False)},
        description="Does the due maintenance of some tables: Iceberg's procedures, one after the other.",
    )
    def maintain(context: dg.OpExecutionContext) -> None:
        by_hand: bool = context.op_config["by_hand"]
        until = time.monotonic() + _LONGEST_SECONDS
        policy = MaintenancePolicy()
        work = MaintenanceWork(
            context.instance,
            settings,
            tables,
            policy.at_once() if by_hand else policy,
            context.run_id,
            context.log,
            broken,
            yields=(lambda: "") if by_hand else lambda: _why_to_stop(context.instance, until),
        )
        if why := work.work(context.op_config["tables"]):
            context.log.info(f"stopped: {why}. The rest is done later")
        figures: dict[str, Any] = dict(sorted(work.done.items()))
        if work.said:
            figures[NOT_DONE] = work.said[:20]
        context.log_event(dg.AssetObservation(MAINTENANCE_ASSET, metadata=figures))

    @dg.job(
        name=name,
        description="Compacts tables, expires snapshots and removes orphan files while no other work is due.",
        tags={
            MAINTENANCE_TAG: settings.code_location,
            TABLES: "ops/maintenance",
            PRIORITY: str(_PRIORITY),
            **NOT_RETRIED,
        },
        executor_def=recorded_in_process,
    )
    def job() -> None:
        maintain()

    return job


def run_config(tables: Sequence[str], op: str = OP, *, by_hand: bool = False) -> dict[str, Any]:
    """Return the config of a run that maintains some tables."""
    return {"ops": {op: {"config": {"tables": list(tables), "by_hand": by_hand}}}}


def _why_to_stop(instance: DagsterInstance, until: float) -> str:
    if time.monotonic() > until:
        return f"it has worked for {_LONGEST_SECONDS:.0f} s"
    queued = open_runs(instance, event_time.now()).queued
    return f"{queued} runs wait in the queue" if queued else ""
