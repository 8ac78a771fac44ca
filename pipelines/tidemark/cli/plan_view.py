"""What `pipelines plan` prints: a table for people, or one JSON object.

Belongs here: from settings to a plan, and the printing. Does not belong here: what is in a plan (`engine.code_plan`).
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterInstance
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pipelines.tidemark import location
from pipelines.tidemark.engine.code_plan import AssetPlan, CodePlan, SavedState, plan_against, plan_of, state_of
from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.local.platform.instance_lock import take_environment
from pipelines.tidemark.planner.contract_status import span
from pipelines.tidemark.planner.rehearsal import Rebuild
from pipelines.tidemark.planner.wording import moment
from pipelines.tidemark.settings import Settings, load_settings

_REASONS = 3
"""Reasons of an asset that are told; they are few where partitions are many."""


class NoSelection(Terminal):
    """The selection cannot be understood, or selects nothing."""


def show(settings: Settings, select: str | None, *, against: Path | None, as_json: bool) -> CodePlan:
    """Print what the code of this process would make run.

    Returns:
        What was printed.

    Raises:
        NothingRuns: no platform runs, the environment names no Dagster home, and no file is given.
        NoSavedState: the file holds none.
        NoSelection: nothing is selected.
    """
    if against is None:
        settings = of_the_platform(settings)
    # Only now: the code location reads the environment when it is imported.
    definitions = location.definitions(settings)
    if against is not None:
        found = plan_against(definitions, SavedState.read(against), contract_scale=settings.contract_scale)
    else:
        with DagsterInstance.get() as instance:
            found = plan_of(definitions, instance, contract_scale=settings.contract_scale)
    found = found if select is None else selected(found, definitions, select)
    if as_json:
        print(json.dumps(as_dict(found), indent=2))
    else:
        Console().print(told(found))
    return found


def of_the_platform(settings: Settings) -> Settings:
    """The settings, with whatever the running platform says: its contracts may run at a part of their time.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
    """
    take_environment(settings)
    return load_settings()


def selected_keys(settings: Settings, select: str) -> list[str]:
    """The assets that a selection means, sources left out; at least one.

    Raises:
        NoSelection: it cannot be understood, or selects nothing.
    """
    definitions = location.definitions(settings)
    built = {key.to_user_string() for key in definitions.resolve_asset_graph().materializable_asset_keys}
    if not (chosen := _keys(definitions, select) & built):
        raise NoSelection(f"--select {select}: it selects sources only")
    return sorted(chosen)


def save(settings: Settings, path: Path) -> None:
    """Write what a plan needs to know of the instance.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
    """
    settings = of_the_platform(settings)
    with DagsterInstance.get() as instance:
        state_of(location.definitions(settings), instance, contract_scale=settings.contract_scale).write(path)


def as_dict(plan: CodePlan) -> dict[str, Any]:
    """A plan as JSON. Of an unpartitioned asset the one partition is null; times are Unix seconds."""
    return {
        "assets": [
            {
                "key": asset.key,
                "change": asset.change,
                "reason": "; ".join(reasons_of(asset.rebuilds)),
                "partitions": [rebuild.partition for rebuild in asset.rebuilds],
                "certain": sum(rebuild.certain for rebuild in asset.rebuilds),
                "expected_minutes": None if asset.seconds is None else round(asset.seconds / 60, 2),
                "expected_rows": asset.rows,
                "due_at": max((r.due_at for r in asset.rebuilds if r.due_at is not None), default=None),
                "held": {str(r.partition): r.held for r in asset.rebuilds if r.held},
            }
            for asset in plan.assets
        ],
        "removed": list(plan.removed),
        "warnings": list(plan.warnings),
        "expected_minutes": None if plan.seconds is None else round(plan.seconds / 60, 2),
    }


def told(plan: CodePlan) -> Group:
    """A plan for a terminal of 80 columns."""
    lines: list[Any] = []
    if plan.has_work:
        shown = Table(title="what this code makes run", title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
        shown.pad_edge = False
        shown.add_column("asset", no_wrap=True)
        shown.add_column("partitions")
        shown.add_column("minutes", justify="right")
        shown.add_column("rows", justify="right")
        shown.add_column("why")
        for asset in (asset for asset in plan.assets if asset.rebuilds):
            minutes = "" if asset.seconds is None else f"{asset.seconds / 60:.1f}"
            rows = "" if asset.rows is None else f"{asset.rows:,}"
            shown.add_row(asset.key, partitions_of(asset), minutes, rows, "; ".join(reasons_of(asset.rebuilds)))
        lines.append(shown)
        if any(not rebuild.certain for asset in plan.assets for rebuild in asset.rebuilds):
            lines.append(Text("What comes after another asset runs only where that one's rows become others."))
        if plan.seconds is not None:
            lasts = span(max(60.0, plan.seconds))
            lines.append(Text(f"about {lasts} of work, newest partitions first, behind arrivals"))
    else:
        lines.append(Text("nothing to do: no partition would run because of this code"))
    lines += [Text(f"{asset.key}: {asset.change}") for asset in plan.assets if asset.change]
    lines += [Text(f"{key}: removed; its table stays until you drop it") for key in plan.removed]
    for asset in plan.assets:
        held = dict.fromkeys(rebuild.held for rebuild in asset.rebuilds if rebuild.held)
        lines += [Text(f"{asset.key}: held, {why}") for why in list(held)[:_REASONS]]
        due = [rebuild.due_at for rebuild in asset.rebuilds if rebuild.due_at is not None]
        lines += [Text(f"{asset.key}: due {moment(max(due))}")] if due else []
    return Group(*lines, *(Text(f"note: {warning}") for warning in plan.warnings))


def partitions_of(asset: AssetPlan) -> str:
    """How many partitions, and from which to which."""
    keys = [rebuild.partition for rebuild in asset.rebuilds if rebuild.partition is not None]
    if not keys:
        return "all of it"
    ordered = sorted(keys)
    return ordered[0] if len(keys) == 1 else f"{len(keys)}: {ordered[0]} to {ordered[-1]}"


def reasons_of(rebuilds: Sequence[Rebuild]) -> list[str]:
    """Why they run, each reason once. Inputs are told by their names alone."""
    said = (
        rebuild.reason if rebuild.certain else f"after {', '.join(sorted({key for key, _ in rebuild.after}))}"
        for rebuild in rebuilds
    )
    found = list(dict.fromkeys(said))
    return found[:_REASONS] + ([f"and {len(found) - _REASONS} more reasons"] if len(found) > _REASONS else [])


def selected(plan: CodePlan, definitions: dg.Definitions, select: str) -> CodePlan:
    """What a plan says of the assets that a selection means.

    Raises:
        NoSelection: it cannot be understood, or selects nothing.
    """
    keys = _keys(definitions, select)
    return replace(plan, assets=[asset for asset in plan.assets if asset.key in keys], removed=())


def _keys(definitions: dg.Definitions, select: str) -> set[str]:
    try:
        chosen = dg.AssetSelection.from_string(select).resolve(definitions.resolve_asset_graph())
    except dg.DagsterError as error:
        raise NoSelection(f"--select {select}: {error}") from error
    if not chosen:
        raise NoSelection(f"--select {select}: it selects no asset")
    return {key.to_user_string() for key in chosen}
