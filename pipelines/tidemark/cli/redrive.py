"""`pipelines redrive`: notifications that the queue has given up go back to it."""

import json
from typing import Annotated

import typer

from pipelines.tidemark.cli.commands import fail
from pipelines.tidemark.settings import load_settings


def redrive(
    most: Annotated[int, typer.Option(min=1, help="Send about so many messages at most.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a line.")] = False,
) -> None:
    """Send the notifications again that the queue has given up; exits with 1 if it cannot be reached."""
    from botocore.exceptions import BotoCoreError, ClientError

    from pipelines.tidemark.sources.messages import QueueUnavailable
    from pipelines.tidemark.sources.sqs import open_queue

    settings = load_settings()
    try:
        queue = open_queue(settings.events_queue, **settings.aws_options())
        sent = sum(queue.redrive(most))
        left = queue.dead_letters()
    except (BotoCoreError, ClientError, QueueUnavailable) as error:
        fail(f"queue {settings.events_queue} cannot be reached: {error}", code=1)
    if as_json:
        typer.echo(json.dumps({"sent": sent, "left": left}))
    elif left is None:
        typer.echo(f"{settings.events_queue} has no dead-letter queue")
    else:
        typer.echo(f"{sent} messages sent again, {left} left")
