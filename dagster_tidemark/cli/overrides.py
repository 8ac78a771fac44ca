"""`tidemark pause`, `resume`, `skip`, `rebuild` and `overrides`: what people ask of the automation.

Belongs here: options and output. Does not belong here: the work (`cli.override_work`).
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.cli.override_selection import Selected
    from dagster_tidemark.planner.overrides import Override

_What = Annotated[
    str, typer.Argument(metavar="WHAT", help="An asset (core/orders), a group (group:marts), a feed or a stream.")
]
_Partitions = Annotated[
    list[str] | None,
    typer.Option("--partitions", help="Only these: FROM..TO, or a key; may be given several times."),
]
_Reason = Annotated[str, typer.Option("--reason", help="The reason, for the other readers.", show_default=False)]
_By = Annotated[
    str | None, typer.Option("--by", help="Your name. Default: the name of your login.", show_default=False)
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def pause(
    what: _What,
    reason: _Reason,
    until: Annotated[
        str | None,
        typer.Option("--until", help="End: 2026-11-30T08:00+01:00, or a duration: 30m, 4h, 2d.", show_default=False),
    ] = None,
    partitions: _Partitions = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel queued runs of the selection, too.")] = False,
    by: _By = None,
    as_json: _Json = False,
) -> None:
    """Request no runs of the selection until it is resumed, or until an end. You can still run it yourself.

    Runs that are under way or in the queue are not canceled, unless `--cancel` is given; a run that has begun ends as
    usual. A stream's shift ends after its step, and its queue or topic keeps the messages.
    """
    from dagster_tidemark.cli.override_work import cancel_queued, open_target, stored
    from dagster_tidemark.dagster_internals.event_time import now
    from dagster_tidemark.planner.overrides import OverrideKind

    end = None if until is None else _end(now(), until)
    with open_target(load_settings()) as target:
        made, found = stored(
            target, OverrideKind.PAUSE, what, by=_name(by), reason=_said(reason), until=end, given=partitions or ()
        )
        canceled = cancel_queued(target, made) if cancel else []
    if as_json:
        typer.echo(json.dumps(asdict(made) | {"canceled_runs": canceled}, indent=2))
        return
    typer.echo(f"{made.id}: paused {made.told()}")
    _list(made, found)
    if canceled:
        typer.echo(f"{len(canceled)} queued runs canceled")


def resume(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="The paused selection, or the id of the pause.")],
    by: _By = None,
    as_json: _Json = False,
) -> None:
    """End pauses. Missed work is caught up.

    A selection means pauses of this code location. An id ends a pause of any code location.
    """
    from dagster_tidemark.cli.override_work import open_target, resumed

    with open_target(load_settings()) as target:
        ended, others = resumed(target, what, _name(by))
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in ended], indent=2))
        return
    for each in ended:
        typer.echo(f"{each.id}: this pause of {each.what} has ended; missed work is caught up")
    for each in others:
        typer.echo(f"{each.id}: {each.what} is still paused {each.told()}")


def skip(
    what: _What,
    reason: _Reason,
    partitions: _Partitions = None,
    by: _By = None,
    as_json: _Json = False,
) -> None:
    """Leave out the selection's work that is pending now. Only later changes of its inputs are built.

    A skipped partition stays as it is, and assets that read it do not wait for it.
    """
    from dagster_tidemark.planner.overrides import OverrideKind

    said = "the work that is pending now is skipped"
    made = _store(OverrideKind.SKIP, what, _said(reason), partitions, by, said, as_json=as_json)
    if not as_json:
        typer.echo(f"to undo it: tidemark overrides --end {made.id}")


def rebuild(
    what: _What,
    reason: Annotated[str, typer.Option("--reason", help="The reason, for the other readers.")] = "",
    partitions: _Partitions = None,
    by: _By = None,
    as_json: _Json = False,
) -> None:
    """Build up-to-date partitions of the selection again. Inputs come first, then the newest partitions.

    Loads read their files again. In the UI, the run tag `tidemark/rebuild: true` does the same for a single run or a
    backfill.
    """
    from dagster_tidemark.planner.overrides import OverrideKind

    said = "built partitions are built again,"
    _store(OverrideKind.REBUILD, what, reason, partitions, by, said, as_json=as_json)


def overrides(
    history: Annotated[bool, typer.Option("--history", help="Show ended ones, too.")] = False,
    end: Annotated[
        str | None, typer.Option("--end", metavar="ID", help="End a pause, a skip or a rebuild.", show_default=False)
    ] = None,
    by: _By = None,
    as_json: _Json = False,
) -> None:
    """List pauses, skips and rebuilds, or end one.

    Work that an ended skip left out is pending again, unless another skip leaves it out, too. A rebuild that a later
    skip holds back is not complete: it continues if that skip is ended.
    """
    from dagster_tidemark.cli.override_view import lines
    from dagster_tidemark.cli.override_work import ended, open_target
    from dagster_tidemark.dagster_internals.event_time import now

    with open_target(load_settings()) as target:
        if end is not None:
            was = ended(target, end, _name(by))
            typer.echo(f"{was.id}: the {was.kind} of {was.what} has ended")
            return
        found = [each for each in target.store.read() if history or each.lasts(now())]
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    typer.echo("\n".join(lines(found)) or "nothing is paused, skipped or to be rebuilt")


def _store(
    kind: Any, what: str, reason: str, partitions: list[str] | None, by: str | None, said: str, *, as_json: bool
) -> "Override":
    """Store a skip or a rebuild, print it, and return it."""
    from dagster_tidemark.cli.override_work import open_target, stored

    with open_target(load_settings()) as target:
        made, found = stored(target, kind, what, by=_name(by), reason=reason, given=partitions or ())
    if as_json:
        typer.echo(json.dumps(asdict(made), indent=2))
    else:
        typer.echo(f"{made.id}: {said} {made.told()}")
        _list(made, found)
    return made


def _list(made: "Override", found: "Selected") -> None:
    covered = f", partitions {made.partitions}" if made.partitions else ""
    typer.echo(f"concerns {', '.join([*found.assets, *(f'stream {name}' for name in found.streams)])}{covered}")
    for key, why in found.left_out.items():
        typer.echo(f"leaves out {key}: {why}")


def _name(by: str | None) -> str:
    import getpass

    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        fail("--by: your login has no name; write --by NAME", code=2)


def _said(reason: str) -> str:
    if not reason.strip():
        fail("--reason: expected a reason for the other readers, found an empty text", code=2)
    return reason.strip()


def _end(now: float, until: str) -> float:
    from dagster_tidemark.cli.incidents import end_of

    is_span = until[:1].isdigit() and until[-1:] in "mhd" and until[:-1].isdigit()
    return end_of(now, until if is_span else None, None if is_span else until)
