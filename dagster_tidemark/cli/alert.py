"""`tidemark alert test`: send a test message through each channel, and list the contracts without a channel."""

from typing import Annotated

import typer

from dagster_tidemark.cli.commands import LEFT_OUT, fail, name_left_out
from dagster_tidemark.settings import load_settings

commands = typer.Typer(help="Channels for messages about late data.", no_args_is_help=True)


@commands.callback()
def _group() -> None:
    """Make `test` a subcommand: without this callback Typer would run the only command without a name."""


@commands.command("test")
def test(
    channel: Annotated[str | None, typer.Argument(help="Only this channel, by its name.", show_default=False)] = None,
) -> None:
    """Send a test message by each channel; exits with 1 if a channel does not take it."""
    import time

    from dagster_tidemark import location
    from dagster_tidemark.incidents.declared import channels_of
    from dagster_tidemark.incidents.trial import sent_by, uncovered

    settings = load_settings()
    with location.without_broken_parts():
        graph = location.asset_graph(settings)
    is_broken = name_left_out(settings)
    known = channels_of(settings.code_location)
    if not known:
        fail("the code location declares no channel: give build_definitions notify=[...]", code=2)
    wanted = [each for each in known if channel in (None, each.label)]
    if not wanted:
        fail(f"there is no channel {channel!r}; known channels: {', '.join(each.label for each in known)}", code=2)
    failed = []
    for each in wanted:
        error = sent_by(each, settings, time.time())
        typer.echo(f"{each.label}: {error or 'sent'}")
        failed += [each.label] if error else []
    if lacking := uncovered(graph, known):
        typer.echo(f"no channel gets incidents about: {', '.join(lacking)}")
    if failed:
        fail(f"the test message was not accepted by {', '.join(failed)}", code=1)
    if is_broken:
        fail(LEFT_OUT, code=2)
