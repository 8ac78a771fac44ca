"""The console script `pipelines`: one module a command; what an error ends as is in `cli.commands`."""

import typer

from pipelines.tidemark.cli import env, feed, lock, new, plan, quarantine, reconcile, redrive, status, up
from pipelines.tidemark.cli.commands import Commands

app = typer.Typer(
    help="Tidemark's commands. `make dev` calls `pipelines up`.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.command(**feed.OPTIONS)(feed.feed)
app.command()(env.env)
app.command()(reconcile.reconcile)
app.command()(redrive.redrive)
app.command()(status.status)
app.command()(plan.plan)
app.add_typer(lock.commands, name="lock")
app.add_typer(new.commands, name="new")
app.add_typer(quarantine.commands, name="quarantine")


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
