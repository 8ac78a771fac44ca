"""Entry point of the console script `tidemark`. Errors are handled in `cli.commands`."""

import gc
import sys
from contextlib import suppress
from typing import TextIO, cast

import typer

from dagster_tidemark.cli import (
    doctor,
    incidents,
    lock,
    maintain,
    metrics,
    new,
    overrides,
    plan,
    prune,
    quarantine,
    reconcile,
    restore_catalog,
    spark_conf,
    status,
    up,
)
from dagster_tidemark.cli.commands import Commands
from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.json_logs import JsonLines, write_json_logs
from dagster_tidemark.project_folder import NoProject, project_root
from dagster_tidemark.settings import load_settings

app = typer.Typer(
    help="Tables that run when their data must be fresh. `init` writes a project, `up` (`make dev`) starts it on this "
    "machine, `status` shows each table's freshness, and `doctor` finds out what does not work.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(new.init)
app.command()(up.up)
app.command(**up.OPTIONS_OF_FEED)(up.feed)
app.command()(up.env)
app.command()(doctor.doctor)
app.command("spark-conf")(spark_conf.spark_conf)
app.command()(spark_conf.jars)
app.command()(reconcile.reconcile)
app.command()(reconcile.redrive)
app.command()(maintain.maintain)
app.command("restore-catalog")(restore_catalog.restore_catalog)
app.command()(prune.prune)
app.command()(status.status)
app.command()(metrics.metrics)
app.command()(incidents.incidents)
app.command()(incidents.acknowledge)
app.command()(incidents.mute)
for _command in (overrides.pause, overrides.resume, overrides.skip, overrides.rebuild, overrides.overrides):
    app.command()(_command)
app.command(cls=plan.PlanCommand)(plan.plan)
app.add_typer(incidents.alert_commands, name="alert")
app.add_typer(lock.commands, name="lock")
app.add_typer(new.commands, name="new")
app.add_typer(quarantine.commands, name="quarantine")


def main() -> None:
    """Run the console script."""
    # A command creates many modules and declarations, and keeps all of them until it ends. Garbage collection after
    # every 700 objects takes a quarter of the time of `lock check`.
    gc.set_threshold(1_000_000)
    _find_project()
    lines = _json_lines()
    try:
        app()
    finally:
        if lines is not None:
            lines.close_line()
        # Without this, Python's garbage collection at exit takes as long as the import of Dagster.
        gc.freeze()


def _json_lines() -> JsonLines | None:
    """Write the command's logs and messages on stderr as JSON, if the settings say so."""
    try:
        settings = load_settings(may_be_unfit=True)
    except TidemarkError:  # the command reports it, unless it needs no settings
        return None
    if settings.log_format != "json":
        return None
    lines = JsonLines(sys.stderr)
    sys.stderr = cast(TextIO, lines)
    write_json_logs()
    return lines


def _find_project() -> None:
    """Make the project's package importable even if it is not installed, as `python -m` does."""
    with suppress(NoProject):  # a command that needs a project reports this error later
        # First on the path, even if it is already on it: another distribution may have a package of the same name.
        sys.path.insert(0, str(project_root()))


if __name__ == "__main__":
    main()
