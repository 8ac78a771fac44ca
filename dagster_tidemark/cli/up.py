"""`tidemark up`, `feed` and `env`: run the local platform, or its sample feed alone; connect other programs to it."""

import json
import shlex
from typing import Annotated, Any

import typer

from dagster_tidemark.cli.commands import fail, require_local
from dagster_tidemark.secret_values import is_secret
from dagster_tidemark.settings import LOCAL_KEY, Settings, load_settings

OPTIONS_OF_FEED: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
"""All arguments, including `--help`, are passed to the sample feed."""


def up(
    feed: Annotated[
        str,
        typer.Option(envvar="FEED", help="`sample` starts the code location's sample feed; `none` does not."),
    ] = "sample",
    kafka: Annotated[bool, typer.Option(envvar="KAFKA", help="Also start a Kafka broker.")] = False,
    verbose: Annotated[
        bool, typer.Option(envvar="VERBOSE", help="Show the services' logs as they are written.")
    ] = False,
) -> None:
    """Start the local cloud, Spark, the sample feed, Dagster and, with --kafka, Kafka. Ctrl-C stops all of them."""
    from rich.console import Console

    try:
        from dagster_tidemark.local.platform.whole_platform import run_platform
    except ModuleNotFoundError as missing:
        fail(f"`tidemark up` needs the package {missing.name}: pip install 'dagster-tidemark[local]'", code=2)

    settings = load_settings(may_be_unfit=True)  # in production only this command itself is refused
    require_local(settings, "tidemark up")
    if feed not in ("sample", "none"):
        fail(f"FEED={feed}: expected sample or none", code=2)
    run_platform(settings, with_feed=feed == "sample", with_kafka=kafka, verbose=verbose, console=Console())


def feed(context: typer.Context) -> None:
    """Write the code location's sample files to the landing bucket, continuously."""
    from dagster_tidemark import location

    settings = load_settings(may_be_unfit=True)  # in production only this command itself is refused
    require_local(settings, "tidemark feed")
    location.feed_command(settings)(context.args, prog_name="tidemark feed")


def env(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of shell lines.")] = False,
    secrets: Annotated[bool, typer.Option("--secrets", help="Print passwords, tokens and keys too.")] = False,
) -> None:
    """Print the variables of the running platform, or of production, for `eval "$(tidemark env)"`.

    Variables with secrets are left out and named on stderr. The keys of the local cloud are not secret.
    """
    environment = _environment(load_settings(may_be_unfit=True))
    hidden = [name for name, value in environment.items() if value != LOCAL_KEY and is_secret(name, value)]
    if not secrets:
        environment = {name: value for name, value in environment.items() if name not in hidden}
        if hidden:
            typer.echo(f"tidemark: left out, because they hold secrets: {', '.join(hidden)}; see --secrets", err=True)
    if as_json:
        typer.echo(json.dumps(environment, indent=2))
        return
    for name, value in environment.items():
        typer.echo(f"export {name}={_quoted(value)}")


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables of the running platform; in production those of the settings and declarations."""
    from dagster_tidemark.local.platform.instance_lock import running_environment

    if settings.environment == "local":
        return running_environment(settings)
    from dagster_tidemark import location
    from dagster_tidemark.environment import declared_variables

    with location.without_broken_parts():
        location.streams(settings)  # its declarations read variables
    return settings.exports() | declared_variables()


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{quoted}'"
