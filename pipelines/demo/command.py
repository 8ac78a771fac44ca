"""`tidemark feed`: the options of the sample feed, and the exit codes of its errors."""

from datetime import datetime
from typing import Annotated

import typer
from dagster_tidemark import load_settings

from pipelines.demo.feed import DEFAULT_HOURS, LandingUnreachable, run_feed
from pipelines.demo.post import Post

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def feed(
    rate: Annotated[float, typer.Option(help="Files per minute, after the hours are written.")] = 6.0,
    once: Annotated[bool, typer.Option(help="Write all files of the hours, none damaged, and exit.")] = False,
    start: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H", "%Y-%m-%d"],
            help="First hour, UTC; by default the current hour is the last one.",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[int, typer.Option(help="Number of hours to write.")] = DEFAULT_HOURS,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    readings: Annotated[bool, typer.Option("--readings/--no-readings", help="Send readings of fridges.")] = True,
    requests: Annotated[bool, typer.Option("--requests/--no-requests", help="Send requests for scores.")] = True,
    deliveries: Annotated[
        bool, typer.Option("--deliveries/--no-deliveries", help="Send deliveries of a partner.")
    ] = True,
) -> None:
    """Write the sample grocer's files to the landing bucket and send its messages, until stopped."""
    settings = load_settings()
    try:
        post = Post(settings, seed, readings=readings, requests=requests, deliveries=deliveries)
        run_feed(settings, start=start, hours=hours, rate=rate, once=once, seed=seed, post=post)
    except ValueError as error:
        _fail(str(error), code=2)
    except LandingUnreachable as error:
        _fail(str(error), code=1)


def _fail(message: str, *, code: int) -> None:
    typer.echo(f"tidemark: {message}", err=True)
    raise typer.Exit(code)
