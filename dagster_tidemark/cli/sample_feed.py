"""`tidemark feed`: run the code location's sample feed, which defines its own options."""

from typing import Any

import typer

from dagster_tidemark.cli.commands import require_local
from dagster_tidemark.settings import load_settings

OPTIONS: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
"""All arguments, including `--help`, are passed to the sample feed."""


def feed(context: typer.Context) -> None:
    """Write the code location's sample files to the landing bucket, continuously."""
    from dagster_tidemark import location

    settings = load_settings(may_be_unfit=True)  # in production only this command itself is refused
    require_local(settings, "tidemark feed")
    location.feed_command(settings)(context.args, prog_name="tidemark feed")
