"""`pipelines plan`: what the code of this folder would make run, before it is deployed; and deploying it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pipelines.tidemark.cli import lock
from pipelines.tidemark.cli.commands import fail
from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.settings import Settings, load_settings

SOMETHING_TO_DO = 2


def plan(
    select: Annotated[
        str | None,
        typer.Option(help='Only these assets, in Dagster\'s selection syntax: "core/orders+".', show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="A state that --save wrote, instead of the running instance.", dir_okay=False)
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the instance's state to a file, and plan nothing.", dir_okay=False)
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Reload the code location, and watch until all of it is rebuilt.")
    ] = False,
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Build it on branches of the tables, and show how the rows differ."),
    ] = False,
    partitions: Annotated[
        str | None,
        typer.Option(
            help='With --preview: these partitions of changed assets, and what reads them: "A...B" or "A,B".',
            show_default=False,
        ),
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Make the preview the tables, and deploy this code.")
    ] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Drop the preview.")] = False,
    mark_current: Annotated[
        bool,
        typer.Option(
            "--mark-current",
            help="Record code that changed under its code version as harmless, in code-versions.lock; plan nothing.",
        ),
    ] = False,
) -> None:
    """Show what deploying this code makes run: which partitions of which assets, why, and how long that takes.

    It is about code and graph only; data that is waiting is shown by `status`. Exits with 2 if there is something to
    do, 0 if there is nothing, 1 or 3 if it cannot tell. A preview exits with 2 if rows differ or a check failed.
    """
    settings = load_settings()
    with _failing_with_1():
        if preview or publish or discard or partitions:
            _preview(
                settings,
                select,
                partitions,
                as_json=as_json,
                chosen=[name for name, on in (("preview", preview), ("publish", publish), ("discard", discard)) if on],
                others=bool(against or save or apply or mark_current),
            )
            return
        from pipelines.tidemark.cli import plan_apply, plan_view

        if mark_current:
            if apply or against or as_json or save:
                fail("--mark-current plans nothing: give it alone or with --select", code=1)
            lock.mark([] if select is None else plan_view.selected_keys(settings, select))
            return
        if save is not None:
            plan_view.save(settings, save)
            typer.echo(f"{save}: plan elsewhere with --against {save}")
            return
        if apply and (select or against or as_json):
            fail("--apply deploys all of the code: leave --select, --against and --json away", code=1)
        found = plan_view.show(settings, select, against=against, as_json=as_json)
        for message in lock.forgotten():
            typer.echo(message, err=True)
        if apply:  # also where nothing is to be rebuilt: an asset that is new is there once the code is loaded
            plan_apply.apply(plan_view.of_the_platform(settings), found)
        elif found.has_work:
            raise typer.Exit(SOMETHING_TO_DO)


def _preview(
    settings: Settings,
    select: str | None,
    partitions: str | None,
    *,
    as_json: bool,
    chosen: list[str],
    others: bool,
) -> None:
    """What `--preview`, `--publish` and `--discard` do: one of them, with what goes with it."""
    if partitions and chosen != ["preview"]:
        fail("--partitions chooses what --preview builds: give both", code=1)
    if len(chosen) > 1 or others:
        fail("--preview, --publish and --discard go with no other of the command's actions: give one alone", code=1)
    if chosen != ["preview"] and (select or as_json):
        fail(f"--{chosen[0]} is about the whole preview: leave --select and --json away", code=1)
    from pipelines.tidemark.cli import plan_preview

    if chosen == ["publish"]:
        plan_preview.publish(settings)
    elif chosen == ["discard"]:
        plan_preview.discard(settings)
    elif plan_preview.preview(settings, select, partitions, as_json=as_json):
        raise typer.Exit(SOMETHING_TO_DO)


@contextmanager
def _failing_with_1() -> Iterator[None]:
    """Let no error end as if there were something to do."""
    try:
        yield
    except Terminal as error:
        fail(str(error), code=1 if error.exit_code == SOMETHING_TO_DO else error.exit_code)
