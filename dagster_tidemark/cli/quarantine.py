"""The options of the commands `tidemark quarantine ...`. Their work is done in `cli.quarantine_work`."""

import json
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.cli.quarantine_work import Target
    from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection

commands = typer.Typer(help="What was turned away, and what to do about it.", invoke_without_command=True)

Asset = Annotated[str | None, typer.Option(help="Of one asset only, by its key: core/orders.", show_default=False)]
Reason = Annotated[
    list[str] | None, typer.Option(help="For this reason only; may be given several times.", show_default=False)
]
Since = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        help="What was entered since then only, UTC.",
        show_default=False,
    ),
]
File = Annotated[
    str | None, typer.Option(help="Of these files only; a * stands for anything.", show_default=False)
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of words.")]
Because = Annotated[str, typer.Option(help="Why; it is kept and shown.", show_default=False)]


@commands.callback()
def show(
    context: typer.Context,
    asset: Asset = None,
    reason: Reason = None,
    since: Since = None,
    file: File = None,
    sample: Annotated[int, typer.Option(min=0, help="Show so many of them, the newest first.")] = 10,
    as_json: Json = False,
) -> None:
    """Count what was turned away by reason, and show some of it; with a command, do something about it."""
    if context.invoked_subcommand is None:
        with _place() as place:
            from dagster_tidemark.cli import quarantine_work

            quarantine_work.show(place, _selection(place, asset, reason, since, file), sample=sample, as_json=as_json)


@commands.command()
def retry(
    asset: Asset = None, reason: Reason = None, since: Since = None, file: File = None, as_json: Json = False
) -> None:
    """Have these files read again, after a rule, the code or something about them changed."""
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        selected = _selection(place, asset, reason, since, file)
        found, left = quarantine_work.send_back(place, selected), quarantine_work.not_handled(place, selected)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        typer.echo("nothing of that was turned away")
    else:
        for of, partitions in found.items():
            typer.echo(f"{of}: {len(partitions)} partitions are read again")
    if left:
        fail(f"not read again, because this code does not load them: {', '.join(left)}", code=2)


@commands.command()
def waive(
    because: Because,
    asset: Asset = None,
    reason: Reason = None,
    since: Since = None,
    file: File = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take back such waivers.")] = False,
) -> None:
    """Leave it at that: these entries stay and fail no check, however often their files are read again."""
    if not (asset or reason or since or file):
        fail("say which entries: --asset, --reason, --since or --file", code=2)
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        selected = _selection(place, asset, reason, since, file)
        if undo:
            typer.echo(f"{quarantine_work.unwaive(place, selected)} waivers taken back")
        else:
            typer.echo(f"{quarantine_work.waive(place, selected, because)} entries waived")


@commands.command()
def patch(
    key: Annotated[str, typer.Argument(help="The key of the file that was turned away, in part or as a whole.")],
    corrected: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The corrected copy.")],
    because: Annotated[str, typer.Option(help="Why; it is kept and shown.")] = "",
) -> None:
    """Put a corrected copy beside a file: its rows take the place of rows of the same key, its entries are waived."""
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        typer.echo(f"put as {quarantine_work.patch(place, key, corrected, because)}")


@commands.command()
def rehearse(
    asset: Annotated[str, typer.Option(help="The asset, by its key: core/orders.", show_default=False)],
    days: Annotated[int, typer.Option(min=1, help="Of the files of so many days.")] = 7,
    as_json: Json = False,
) -> None:
    """Try this working copy's rules on files that landed already; nothing is written. Exits with 4 above the share."""
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        said, load = quarantine_work.rehearse_days(place, asset, days), place.load_of(asset)
        quarantine_work.show_rehearsal(load, said, as_json=as_json)
    if said.largest_share > load.feed.quarantine_share:
        raise typer.Exit(4)


def _place() -> AbstractContextManager["Target"]:
    from dagster_tidemark.cli.quarantine_work import open_place

    return open_place(load_settings())


def _selection(
    place: "Target", asset: str | None, reason: list[str] | None, since: datetime | None, file: str | None
) -> "Selection":
    from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection

    if asset:
        place.require(asset)
    return Selection(asset, tuple(reason or ()), since, file)
