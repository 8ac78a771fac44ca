"""`tidemark up` and `tidemark feed`: run the local platform until Ctrl-C, or its sample feed alone."""

from typing import Annotated, Any

import typer

from dagster_tidemark.cli.commands import fail, require_local
from dagster_tidemark.settings import load_settings

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
