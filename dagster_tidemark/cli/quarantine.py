"""The commands `tidemark quarantine ...` and their options. `cli.quarantine_work` does the work."""

import json
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.cli.quarantine_work import QuarantineTarget
    from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection

commands = typer.Typer(help="Show rejected rows and files; retry, waive or patch them.", invoke_without_command=True)

Asset = Annotated[str | None, typer.Option(help="Only this asset, by its key: core/orders.", show_default=False)]
Reason = Annotated[
    list[str] | None, typer.Option(help="Only this reason; may be given several times.", show_default=False)
]
Since = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        help="Only entries since this time, UTC.",
        show_default=False,
    ),
]
File = Annotated[
    str | None, typer.Option(help="Only these files; a * matches anything.", show_default=False)
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object instead of text.")]
Because = Annotated[str, typer.Option(help="Reason; it is stored and shown.", show_default=False)]


@commands.callback()
def show(
    context: typer.Context,
    asset: Asset = None,
    reason: Reason = None,
    since: Since = None,
    file: File = None,
    sample: Annotated[int, typer.Option(min=0, help="Maximum number of entries to show, newest first.")] = 10,
    as_json: Json = False,
) -> None:
    """Count rejected rows and files by reason, and show some entries."""
    if context.invoked_subcommand is None:
        with _place() as place:
            from dagster_tidemark.cli import quarantine_work

            quarantine_work.show(place, _selection(place, asset, reason, since, file), sample=sample, as_json=as_json)


@commands.command()
def retry(
    asset: Asset = None, reason: Reason = None, since: Since = None, file: File = None, as_json: Json = False
) -> None:
    """Request a new read of the files of these entries, for example after a rule or the code changed."""
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        selected = _selection(place, asset, reason, since, file)
        found, left = quarantine_work.send_back(place, selected), quarantine_work.not_handled(place, selected)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        typer.echo("no entry matches")
    else:
        for of, partitions in found.items():
            typer.echo(f"{of}: {len(partitions)} partitions will be read again")
    if left:
        fail(f"not read again, because this code location does not load them: {', '.join(left)}", code=2)


@commands.command()
def waive(
    because: Because,
    asset: Asset = None,
    reason: Reason = None,
    since: Since = None,
    file: File = None,
    undo: Annotated[bool, typer.Option("--undo", help="Withdraw the waivers of these entries.")] = False,
) -> None:
    """Accept these entries: they stay and fail no check, even after their files are read again."""
    if not (asset or reason or since or file):
        fail("no entries selected: give --asset, --reason, --since or --file", code=2)
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        selected = _selection(place, asset, reason, since, file)
        if undo:
            typer.echo(f"{quarantine_work.unwaive(place, selected)} waivers withdrawn")
        else:
            typer.echo(f"{quarantine_work.waive(place, selected, because)} entries waived")


@commands.command()
def patch(
    key: Annotated[str, typer.Argument(help="Key of the file that was rejected, or has rejected rows.")],
    corrected: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Corrected copy of the file.")],
    because: Annotated[str, typer.Option(help="Reason; it is stored and shown.")] = "",
) -> None:
    """Put a corrected copy next to a file. Its rows replace rows of the same key; the file's entries are waived."""
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        typer.echo(f"stored as {quarantine_work.patch(place, key, corrected, because)}")


@commands.command()
def rehearse(
    asset: Annotated[str, typer.Option(help="Key of the asset: core/orders.", show_default=False)],
    days: Annotated[int, typer.Option(min=1, help="Number of days of files to read.")] = 7,
    as_json: Json = False,
) -> None:
    """Apply this working copy's rules to files that landed already, and write nothing.

    Exits with 4 if the rejected share of a partition is above the feed's `quarantine_share`.
    """
    with _place() as place:
        from dagster_tidemark.cli import quarantine_work

        said, load = quarantine_work.rehearse_days(place, asset, days), place.load_of(asset)
        quarantine_work.show_rehearsal(load, said, as_json=as_json)
    if said.largest_share > load.feed.quarantine_share:
        raise typer.Exit(4)


def _place() -> AbstractContextManager["QuarantineTarget"]:
    from dagster_tidemark.cli.quarantine_work import open_place

    return open_place(load_settings())


def _selection(
    place: "QuarantineTarget", asset: str | None, reason: list[str] | None, since: datetime | None, file: str | None
) -> "Selection":
    from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection

    if asset:
        place.require(asset)
    return Selection(asset, tuple(reason or ()), since, file)
