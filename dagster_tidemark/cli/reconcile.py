"""`tidemark reconcile` and `tidemark redrive`: find changes without a notification, and repeat failed notifications."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import LEFT_OUT, fail, name_left_out
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.sensors.change_detection import DetectedChanges
    from dagster_tidemark.sources.feed import Feed


def reconcile(
    feed: Annotated[
        list[str] | None, typer.Argument(help="Names of feeds. Default: all feeds.", show_default=False)
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(min=1, help="Number of days to list, up to today. Default: all.", show_default=False),
    ] = None,
    accept_removals: Annotated[
        bool,
        typer.Option("--accept-removals", help="Accept removed files, even if the bucket looks like the wrong one."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of lines.")] = False,
) -> None:
    """List the landing bucket, and report changes that no notification reported.

    Exits with 4 if removals were held back, 2 if a part of the code location is broken and was left out.
    """
    from rich.console import Console
    from rich.progress import Progress

    from dagster_tidemark import location
    from dagster_tidemark.sensors.reconcile_schedules import instance_of, last_days, reconcile_instance

    settings = load_settings()
    with location.without_broken_parts():
        known = {of.name: of for of in location.feeds(settings)}
    is_broken = name_left_out(settings)
    if unknown := [name for name in feed or () if name not in known]:
        fail(f"there is no feed {', '.join(unknown)}; known feeds: {', '.join(known)}", code=2)
    feeds = [known[name] for name in feed or known]
    told: dict[str, dict[str, object]] = {}
    with instance_of(settings) as instance, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"s3://{settings.landing_bucket}", total=len(feeds))

        def looked(of: "Feed", found: "DetectedChanges") -> None:
            told[of.name] = {"changed": len(found.changed), "held": found.held, "alarm": found.alarms.get(of)}
            progress.advance(bar)

        found = reconcile_instance(
            settings,
            feeds,
            instance,
            days=last_days(days) if days else None,
            accept_removals=accept_removals,
            looked=looked,
        )
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        for name, of_feed in told.items():
            typer.echo(f"{name}: {of_feed['changed']} partitions changed")
    if found.alarms:
        fail("; ".join(found.alarms.values()), code=4)
    if is_broken:
        fail(LEFT_OUT, code=2)


def redrive(
    queue: Annotated[
        str | None,
        typer.Option(help="Name of the queue. Default: the queue of the bucket's notifications.", show_default=False),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of messages to send, approximately.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a line.")] = False,
) -> None:
    """Move messages from a dead-letter queue back to their queue.

    Exits with 1 if the queue cannot be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    from dagster_tidemark.sources.notification_queue import QueueUnavailable
    from dagster_tidemark.sources.sqs import open_queue

    settings = load_settings()
    name = queue or settings.events_queue
    try:
        opened = open_queue(name, **settings.aws_options())
        sent = sum(opened.redrive(most))
        left = opened.dead_letters()
    except (BotoCoreError, ClientError, QueueUnavailable) as error:
        fail(f"queue {name} cannot be reached: {error}", code=1)
    if as_json:
        typer.echo(json.dumps({"sent": sent, "left": left}))
    elif left is None:
        typer.echo(f"{name} has no dead-letter queue")
    else:
        typer.echo(f"{sent} messages sent again, {left} left")
