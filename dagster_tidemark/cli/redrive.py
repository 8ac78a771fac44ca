"""`tidemark redrive`: move messages from a dead-letter queue back to their queue."""

import json
from typing import Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings


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
