"""Entry point of the console script `tidemark`. Errors are handled in `cli.commands`."""

import gc
import sys
from contextlib import suppress

import typer

from dagster_tidemark.cli import (
    alert,
    doctor,
    env,
    incidents,
    init,
    lock,
    new,
    overrides,
    plan,
    quarantine,
    reconcile,
    redrive,
    sample_feed,
    spark_conf,
    status,
    up,
)
from dagster_tidemark.cli.commands import Commands
from dagster_tidemark.project_folder import NoProject, project_root

app = typer.Typer(
    help="Tidemark's commands. `make dev` calls `tidemark up`.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(init.init)
app.command()(up.up)
app.command(**sample_feed.OPTIONS)(sample_feed.feed)
app.command()(env.env)
app.command()(doctor.doctor)
app.command("spark-conf")(spark_conf.spark_conf)
app.command()(spark_conf.jars)
app.command()(reconcile.reconcile)
app.command()(redrive.redrive)
app.command()(status.status)
app.command()(incidents.incidents)
app.command()(incidents.acknowledge)
app.command()(incidents.mute)
for _command in (overrides.pause, overrides.resume, overrides.skip, overrides.rebuild, overrides.overrides):
    app.command()(_command)
app.command(cls=plan.PlanCommand)(plan.plan)
app.add_typer(alert.commands, name="alert")
app.add_typer(lock.commands, name="lock")
app.add_typer(new.commands, name="new")
app.add_typer(quarantine.commands, name="quarantine")


def main() -> None:
    """Run the console script."""
    # A command creates many modules and declarations, and keeps all of them until it ends. Garbage collection after
    # every 700 objects takes a quarter of the time of `lock check`.
    gc.set_threshold(1_000_000)
    _find_project()
    try:
        app()
    finally:
        # Without this, Python's garbage collection at exit takes as long as the import of Dagster.
        gc.freeze()


def former_name() -> None:
    """Run the console script `pipelines`, the name of `tidemark` before 0.2."""
    print("pipelines: renamed to `tidemark`; the next release removes this name", file=sys.stderr)
    main()


def _find_project() -> None:
    """Make the project's package importable even if it is not installed, as `python -m` does."""
    with suppress(NoProject):  # a command that needs a project reports this error later
        # First on the path, even if it is already on it: another distribution may have a package of the same name.
        sys.path.insert(0, str(project_root()))


if __name__ == "__main__":
    main()
