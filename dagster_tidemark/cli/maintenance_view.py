"""Work of `tidemark maintain`."""

from collections.abc import Mapping

import psutil
import typer

from dagster_tidemark import location
from dagster_tidemark.cli.commands import fail, name_left_out
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.run_process import identity_of
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.lakehouse.maintenance.due import MaintenancePolicy
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.maintenance.job import NOT_DONE, OP, maintenance_job, run_config
from dagster_tidemark.maintenance.lake_facts import LakeFacts
from dagster_tidemark.maintenance.maintained_tables import maintained_tables, saved_upkeep
from dagster_tidemark.maintenance.spare_time import open_runs
from dagster_tidemark.planner.wording import names
from dagster_tidemark.sensors.dead_runs import end_dead_runs
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import MAINTENANCE, PROCESS

_QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def show_due(settings: Settings, table: str | None) -> list[str]:
    """Print the maintenance that `tidemark maintain` would do now. Return a line for each unreadable table."""
    settings = take_environment(settings)
    tables = _tables(settings)
    chosen = _chosen(tables, table)
    with opened_instance() as instance:
        now = event_time.now()
        lake = LakeFacts(tables, MaintenancePolicy().at_once(), broken=_broken(settings))
        found = open_lake(settings)
        runs, upkeep = open_runs(instance, now), saved_upkeep(instance, settings.code_location, chosen)
        lake.read_all_needs(found)
        for name in chosen:
            lake.read(found, name, upkeep[name], runs, now)
    due = [each for name in chosen for each in lake.due(name, now)]
    for each in due:
        typer.echo(
            f"{each.table}: would {each.action}: {each.reason}" + (f"; not now: {each.waits}" * bool(each.waits))
        )
    if not due and not lake.unreadable:
        typer.echo("nothing to do")
    return [f"{name}: {why}" for name, why in sorted(lake.unreadable.items())]


def maintain_now(settings: Settings, table: str | None) -> list[str]:
    """Maintain tables in a run of this process. Return a line for each fault."""
    settings = take_environment(settings)
    tables = _tables(settings)
    chosen = _chosen(tables, table)
    with opened_instance() as instance:
        end_dead_runs(instance)  # such as an earlier run of this command that was killed
        if others := open_runs(instance, event_time.now()).maintenance:
            fail(f"run {others[0]} maintains tables: wait for its end, or cancel it in the UI", code=1)
        job = maintenance_job(tables, settings, broken=_broken(settings))
        tags = {MAINTENANCE: settings.code_location, PROCESS: identity_of(psutil.Process())}
        config = run_config(chosen, by_hand=True) | _QUIET
        result = job.execute_in_process(run_config=config, instance=instance, tags=tags)
    figures = {
        name: value.value
        for observation in result.asset_observations_for_node(OP)
        for name, value in observation.metadata.items()
    }
    faults = figures.pop(NOT_DONE, None)
    typer.echo(", ".join(f"{count} {name}" for name, count in figures.items()) or "nothing to do")
    return [str(line) for line in faults] if isinstance(faults, list | tuple) else []


def _tables(settings: Settings) -> Mapping[str, Table]:
    with location.without_broken_parts():
        found = maintained_tables(location.tables(settings).values(), location.streams(settings))
    name_left_out(settings)
    return found


def _broken(settings: Settings) -> str:
    return next(iter(location.broken_parts(settings)), "")


def _chosen(tables: Mapping[str, Table], table: str | None) -> list[str]:
    if table is None:
        return list(tables)
    name = table.replace("/", ".")
    if name not in tables:
        raise Terminal(f"there is no table {table}; known tables: {names(tables)}")
    return [name]
