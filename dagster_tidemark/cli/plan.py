"""`tidemark plan`: list the runs that deploying this folder's code would cause, and deploy the code."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from dagster_tidemark.cli import lock
from dagster_tidemark.cli.commands import fail
from dagster_tidemark.errors import Terminal
from dagster_tidemark.settings import Settings, load_settings

if TYPE_CHECKING:
    from dagster_tidemark.engine.code_plan import CodePlan

SOMETHING_TO_DO = 2
UNVERSIONED = 7
"""The code of an asset changed under the same code version, so the plan misses rows that may change."""


_Select = Annotated[
    str | None,
    typer.Option(help='Only these assets, in Dagster\'s selection syntax: "core/orders+".', show_default=False),
]
_Json = Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a table.")]
_Against = Annotated[
    Path | None, typer.Option(help="Plan against a state written by --save, not the running instance.", dir_okay=False)
]
_Save = Annotated[
    Path | None, typer.Option(help="Write the instance's state to a file, and plan nothing.", dir_okay=False)
]
_Apply = Annotated[
    bool, typer.Option("--apply", help="Reload the code location, and wait until all rebuilds are done.")
]
_Yes = Annotated[bool, typer.Option("--yes", help="With --apply on a terminal: do not ask for confirmation.")]
_Diff = Annotated[bool, typer.Option("--diff", help="Show how the code differs from the deployed code.")]
_Preview = Annotated[
    str | None,
    typer.Option(
        "--preview",
        metavar="[NAME]",
        help="Build the plan on branches of the tables, and show how the rows differ. Previews with different names "
        "can exist at the same time.",
        show_default=False,
    ),
]
_Partitions = Annotated[
    str | None,
    typer.Option(
        help='With --preview: only these partitions of changed assets, and their readers: "A...B" or "A,B".',
        show_default=False,
    ),
]
_Publish = Annotated[
    str | None,
    typer.Option(
        "--publish",
        metavar="[NAME]",
        help="Publish the preview to the tables, and deploy this code.",
        show_default=False,
    ),
]
_Discard = Annotated[
    str | None, typer.Option("--discard", metavar="[NAME]", help="Drop the preview.", show_default=False)
]
_Previews = Annotated[bool, typer.Option("--previews", help="List the previews, with their age.")]
_MarkCurrent = Annotated[
    bool,
    typer.Option(
        "--mark-current",
        help="Record code that changed under the same code version as harmless, in code-versions.lock; plan nothing.",
    ),
]


def plan(
    select: _Select = None,
    as_json: _Json = False,
    against: _Against = None,
    save: _Save = None,
    apply: _Apply = False,
    yes: _Yes = False,
    diff: _Diff = False,
    preview: _Preview = None,
    partitions: _Partitions = None,
    publish: _Publish = None,
    discard: _Discard = None,
    previews: _Previews = False,
    mark_current: _MarkCurrent = False,
) -> None:
    """List the runs that deploying this code causes: which partitions of which assets, why, and for how long.

    The plan covers code, graph and tables; `status` shows pending data. Exits with 7 if an asset's code changed and its
    code version did not, else with 2 if there is something to do, else with 0; with 1 or 3 if no plan can be made, with
    8 if a table cannot be made as declared or a reader would fail. A preview exits with 7 if it left out a change that
    `plan` lists, else with 2 if rows differ or a check failed, else with 0.
    """
    settings = load_settings()
    with _failing_with_1():
        named = {"preview": preview, "publish": publish, "discard": discard, "previews": "" if previews else None}
        if chosen := {action: name for action, name in named.items() if name is not None}:
            others = bool(against or save or apply or mark_current)
            _preview(settings, select, partitions, as_json=as_json, chosen=chosen, others=others)
            return
        if partitions:
            fail("--partitions chooses what --preview builds: give both", code=1)
        from dagster_tidemark.cli import plan_view

        if mark_current:
            if apply or against or as_json or save:
                fail("--mark-current plans nothing: give it alone or with --select", code=1)
            lock.mark([] if select is None else plan_view.selected_keys(settings, select))
        elif save is not None:
            plan_view.save(settings, save)
            typer.echo(f"{save}: state saved; plan on another machine with --against {save}")
        elif apply:
            if select or against or as_json:
                fail("--apply deploys all of the code: remove --select, --against and --json", code=1)
            _deploy(settings, diff=diff, yes=yes)
        elif yes:
            fail("--yes confirms --apply: give both", code=1)
        elif code := _exit_code(_shown(settings, select, against, as_json=as_json, diff=diff)):
            raise typer.Exit(code)


class PlanCommand(TyperCommand):
    """A command whose options may have a value or none, such as `--preview` and `--preview NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the value "" to such options without a value. Click cannot declare optional values."""
        given: list[str] = []
        for arg, after in zip(args, [*args, "-"][1:], strict=True):
            given += [arg, ""] if arg in _WITH_A_NAME and after.startswith("-") else [arg]
        return super().parse_args(ctx, given)


_WITH_A_NAME = ("--preview", "--publish", "--discard")


def _shown(settings: Settings, select: str | None, against: Path | None, *, as_json: bool, diff: bool) -> "CodePlan":
    """Print the plan and half published previews."""
    from dagster_tidemark.cli import plan_view
    from dagster_tidemark.preview.manifest import half_published

    found = plan_view.show(settings, select, against=against, as_json=as_json, with_diff=diff)
    for message in half_published(settings.state_dir):
        typer.echo(message, err=True)
    return found


def _exit_code(plan: "CodePlan") -> int:
    if plan.unversioned:
        return UNVERSIONED
    return SOMETHING_TO_DO if plan.has_work else 0


def _deploy(settings: Settings, *, diff: bool, yes: bool) -> None:
    """Deploy the code that the plan shows. On a terminal, ask for confirmation first."""
    from dagster_tidemark.cli import plan_apply
    from dagster_tidemark.local.platform.instance_lock import take_environment

    found = _shown(settings, None, None, as_json=False, diff=diff)
    if not yes and sys.stdin.isatty() and not typer.confirm("Deploy this code?", err=True):
        fail("nothing was deployed", code=1)
    # Deploy even if the code causes no run: new assets appear only after the code is loaded.
    plan_apply.apply(take_environment(settings), found)


def _preview(
    settings: Settings,
    select: str | None,
    partitions: str | None,
    *,
    as_json: bool,
    chosen: Mapping[str, str],
    others: bool,
) -> None:
    """Run the action `--preview`, `--publish`, `--discard` or `--previews`. Refuse options of other actions."""
    if partitions and [*chosen] != ["preview"]:
        fail("--partitions chooses what --preview builds: give both", code=1)
    if len(chosen) > 1 or others:
        fail(
            "--preview, --publish, --discard and --previews exclude each other and all other actions: give one of them",
            code=1,
        )
    [(action, name)] = chosen.items()
    if action != "preview" and (select or (as_json and action != "previews")):
        fail(f"--{action} is for whole previews: remove --select and --json", code=1)
    from dagster_tidemark.cli import plan_preview

    if action == "previews":
        plan_preview.show_previews(settings, as_json=as_json)
    elif action == "publish":
        plan_preview.publish(settings, name)
    elif action == "discard":
        plan_preview.discard(settings, name)
    elif code := plan_preview.preview(settings, name, select, partitions, as_json=as_json):
        raise typer.Exit(code)


@contextmanager
def _failing_with_1() -> Iterator[None]:
    """Exit with 1 on errors that would exit with 2, because 2 means that there is something to do."""
    try:
        yield
    except Terminal as error:
        fail(str(error), code=1 if error.exit_code == SOMETHING_TO_DO else error.exit_code)
