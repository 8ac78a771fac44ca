"""The console script `pipelines`.

Belongs here: commands, their options, and how an error becomes one line and an exit code (1: it did not
work, 2: a wrong setting or option, 3: nothing runs, 4: removals were held back, or a promise on freshness is broken, 5:
an asset is set aside and nobody looks after it).
Does not belong here: what the commands do.
"""

import json
import shlex
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pipelines.tidemark.cli import quarantine
from pipelines.tidemark.settings import Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from pipelines.tidemark.sensors.change_detection import Found
    from pipelines.tidemark.sources.feed import Feed

app = typer.Typer(
    help="Tidemark's commands. `make dev` calls `pipelines up`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(quarantine.commands, name="quarantine")


@app.command()
def up(
    feed: Annotated[
        str,
        typer.Option(
            envvar="FEED",
            help="`sample` starts the code location's sample feed; `none` leaves the bucket to you.",
        ),
    ] = "sample",
    verbose: Annotated[
        bool, typer.Option(envvar="VERBOSE", help="Show the services' logs as they are written.")
    ] = False,
) -> None:
    """Start local cloud, Spark, sample feed and Dagster; Ctrl-C stops them all."""
    from rich.console import Console

    from pipelines.tidemark.local.platform.instance_lock import AlreadyRunning
    from pipelines.tidemark.local.platform.preconditions import CannotStart
    from pipelines.tidemark.local.platform.supervision import ServiceFailed, SupervisorDied
    from pipelines.tidemark.local.platform.up import run_platform
    from pipelines.tidemark.local.spark.jars import JarsMissing

    settings = _settings()
    if feed not in ("sample", "none"):
        _fail(f"FEED={feed}: give sample or none", code=2)
    if settings.environment != "local":
        _fail(f"TIDEMARK_ENVIRONMENT={settings.environment}: `pipelines up` is the platform of a laptop", code=2)
    try:
        run_platform(settings, with_feed=feed == "sample", verbose=verbose, console=Console())
    except (AlreadyRunning, CannotStart, JarsMissing, ServiceFailed, SupervisorDied) as error:
        _fail(str(error), code=1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def feed(context: typer.Context) -> None:
    """Write the code location's sample files to the landing bucket, and go on."""
    from pipelines.tidemark import location

    try:
        command = location.feed_command(_settings())
    except location.NoSampleFeed as error:
        _fail(str(error), code=2)
    command(context.args, prog_name="pipelines feed")


@app.command()
def env(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of shell lines.")] = False,
) -> None:
    """Print the environment of the platform that runs, for `eval "$(pipelines env)"`."""
    from pipelines.tidemark.local.platform.instance_lock import NothingRuns, running_environment

    try:
        environment = running_environment(_settings())
    except NothingRuns as error:
        _fail(str(error), code=3)
    if as_json:
        typer.echo(json.dumps(environment, indent=2))
        return
    for name, value in environment.items():
        typer.echo(f"export {name}={_quoted(value)}")


@app.command()
def reconcile(
    feed: Annotated[
        list[str] | None, typer.Argument(help="These feeds only; by default all.", show_default=False)
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(min=1, help="Look at the last so many days only; by default at everything.", show_default=False),
    ] = None,
    accept_removals: Annotated[
        bool,
        typer.Option("--accept-removals", help="Remove what vanished, even where that looks like the wrong bucket."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """List the landing bucket and report what no notification told; unchanged, nothing is written."""
    from rich.console import Console
    from rich.progress import Progress

    from pipelines.tidemark import location
    from pipelines.tidemark.sensors.reconcile import CannotReconcile, instance_of, last_days, reconcile_instance

    settings = _settings()
    declared = location.feeds(settings)
    known = {of.name: of for of in declared}
    if unknown := [name for name in feed or () if name not in known]:
        _fail(f"there is no feed {', '.join(unknown)}; there are {', '.join(known)}", code=2)
    feeds = [known[name] for name in feed] if feed else declared
    told: dict[str, dict[str, object]] = {}
    try:
        with instance_of(settings) as instance, Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"s3://{settings.landing_bucket}", total=len(feeds))

            def looked(of: "Feed", found: "Found") -> None:
                told[of.name] = {
                    "changed": len(found.changed),
                    "held": found.held,
                    "alarm": found.alarms.get(of),
                }
                progress.advance(bar)

            found = reconcile_instance(
                settings,
                feeds,
                instance,
                days=last_days(days) if days else None,
                accept_removals=accept_removals,
                looked=looked,
            )
    except CannotReconcile as error:
        _fail(str(error), code=1)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        for name, of_feed in told.items():
            typer.echo(f"{name}: {of_feed['changed']} partitions changed")
    if found.alarms:
        _fail("; ".join(found.alarms.values()), code=4)


@app.command()
def redrive(
    most: Annotated[int, typer.Option(min=1, help="Send about so many messages at most.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a line.")] = False,
) -> None:
    """Send the notifications again that the queue has given up; exits with 1 if it cannot be reached."""
    from botocore.exceptions import BotoCoreError, ClientError

    from pipelines.tidemark.sources.messages import QueueUnavailable
    from pipelines.tidemark.sources.sqs import open_queue

    settings = _settings()
    try:
        queue = open_queue(settings.events_queue, **settings.aws_options())
        sent = sum(queue.redrive(most))
        left = queue.dead_letters()
    except (BotoCoreError, ClientError, QueueUnavailable) as error:
        _fail(f"queue {settings.events_queue} cannot be reached: {error}", code=1)
    if as_json:
        typer.echo(json.dumps({"sent": sent, "left": left}))
    elif left is None:
        typer.echo(f"{settings.events_queue} has no dead-letter queue")
    else:
        typer.echo(f"{sent} messages sent again, {left} left")


@app.command()
def status(
    asset: Annotated[
        str | None, typer.Option(help="One asset only, by its key: marts/sales_daily.", show_default=False)
    ] = None,
    services: Annotated[bool, typer.Option("--services", help="The platform's processes instead.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every few seconds, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """Show how each asset's promise on its freshness stands; exits with 4 if one is broken, 5 if nobody looks."""
    from pipelines.tidemark.cli.contract_table import NoSuchAsset
    from pipelines.tidemark.cli.status import show_contracts, show_services
    from pipelines.tidemark.local.platform.instance_lock import NothingRuns
    from pipelines.tidemark.local.platform.supervision import SupervisorDied

    broken: list[str] = []
    aside: list[str] = []
    try:
        if services:
            show_services(_settings(), as_json=as_json)
        else:
            broken, aside = show_contracts(_settings(), asset, watch=watch, as_json=as_json)
    except (NoSuchAsset, NothingRuns, SupervisorDied) as error:
        codes: dict[type[Exception], int] = {NoSuchAsset: 2, NothingRuns: 3, SupervisorDied: 1}
        _fail(str(error), code=codes[type(error)])
    except KeyboardInterrupt:
        return
    if broken:
        _fail(f"broken: {', '.join(broken)}", code=4)
    if aside:
        _fail(f"set aside, so nobody looks after them: {', '.join(aside)}", code=5)


def _settings() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        _fail(str(error), code=2)


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{quoted}'"


def _fail(message: str, *, code: int) -> NoReturn:
    typer.echo(f"pipelines: {message}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
