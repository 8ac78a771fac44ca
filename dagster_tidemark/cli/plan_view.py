"""Output of `tidemark plan`: a table, or one JSON object.

Belongs here: collecting the inputs of a plan, and printing the plan. Does not belong here: computing the plan
(`engine.code_plan`).
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterInstance
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from dagster_tidemark import location
from dagster_tidemark.cli import lock
from dagster_tidemark.cli.plan_tables import table_differences
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.code_versions.code_diff import moved_definitions
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.engine.code_plan import (
    AssetPlan,
    CodePlan,
    MovedDefinition,
    SavedState,
    deployed_code,
    plan_against,
    plan_of,
    state_of,
)
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.deployed import code_texts
from dagster_tidemark.lakehouse.stored_tables import CatalogUnreadable, stored_tables
from dagster_tidemark.lakehouse.table_changes import Stored
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.maintenance.maintenance_overview import MaintenanceOverview, kept_overview
from dagster_tidemark.planner.code_changes import ADDED
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.rehearsal import Rebuild
from dagster_tidemark.planner.wording import moment
from dagster_tidemark.settings import Settings

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
"""Colors of the lines of a diff, by their first character."""
_REASONS = 3
"""Maximum number of reasons printed for an asset, and of assets printed for a changed definition."""


class NotDeployable(Terminal):
    """The code must not be deployed, because a table or a reader would fail."""

    exit_code = 8


def show(
    settings: Settings, select: str | None, *, against: Path | None, as_json: bool, with_diff: bool = False
) -> CodePlan:
    """Print the runs and the changes of tables that deploying this process's code would cause.

    Args:
        with_diff: True to print the diffs of changed definitions, False to print only their labels.

    Returns:
        The printed plan.

    Raises:
        NothingRuns: no platform runs, the environment names no Dagster home, and no file is given.
        NoSavedState: the file has no saved state.
        Terminal: nothing is selected.
        CatalogUnreadable: the catalog's tables cannot be read. The runs were printed before.
        NotDeployable: a table cannot be made as declared, or a reader would fail. The whole plan was printed before.
    """
    if against is None:
        settings = take_environment(settings)
    # The code location is loaded after the environment is set, because it reads the environment at import.
    definitions = location.definitions(settings)
    unread: CatalogUnreadable | None = None
    stored: Mapping[str, Stored] = {}
    code: Mapping[str, str]
    upkeep: MaintenanceOverview | None = None
    if against is not None:
        saved = SavedState.read(against)
        found = plan_against(definitions, saved, contract_scale=settings.contract_scale)
        stored = {name: Stored.of_json(held) for name, held in saved.tables.items()}
        code = saved.code
    else:
        with opened_instance() as instance:
            found = plan_of(definitions, instance, contract_scale=settings.contract_scale)
            code = deployed_code(definitions, instance)
            upkeep = kept_overview(instance, settings.code_location)
            try:
                stored = _stored(settings, instance)
            except CatalogUnreadable as error:
                unread = error
    found = with_code(found, settings, definitions, code)
    found = replace(found, tables=table_differences(settings, definitions, found, stored))
    found = found if select is None else selected(found, definitions, select)
    if as_json and unread is None:
        print(json.dumps(as_dict(found, with_diff=with_diff), indent=2))
    elif not as_json:
        Console().print(told(found, with_diff=with_diff))
        for line in upkeep.lines() if upkeep is not None and select is None else ():
            Console().print(Text(line))
    if unread is not None:
        raise unread
    if found.is_refused:
        raise NotDeployable("refused, see above: a table cannot be made as declared, or a reader would fail")
    return found


def with_code(plan: CodePlan, settings: Settings, definitions: dg.Definitions, code: Mapping[str, str]) -> CodePlan:
    """Return a plan with the differences of the code from the deployed code.

    Args:
        code: The text of the deployed code, by path; empty if it is not known.
    """
    moved = _moved(settings, definitions, code) if code else None
    same_version = {*(moved or ())} - {asset.key for asset in plan.assets if asset.is_new_version}
    unversioned, notes = lock.unseen_changes(same_version)
    return replace(plan, moved=moved, unversioned=unversioned, notes=notes)


def _moved(
    settings: Settings, definitions: dg.Definitions, code: Mapping[str, str]
) -> dict[str, list[MovedDefinition]]:
    if code == code_texts(settings.code_root, settings.code_location):
        return {}
    keys = definitions.resolve_asset_graph().materializable_asset_keys
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster's warnings, which other commands show
        project = Project(settings.code_root, settings.code_location)
        names = sorted(key.to_user_string() for key in keys)
        return moved_definitions(project, code, names, definitions.assets or ())


def _stored(settings: Settings, instance: DagsterInstance) -> Mapping[str, Stored]:
    """Return the declared tables as the catalog has them.

    Raises:
        CatalogUnreadable: the catalog does not answer, or has no declared table although some were built.
    """
    tables = location.tables(settings)
    found = stored_tables(settings, tables.values())
    if not found:
        built = next((n for n in tables if instance.get_latest_materialization_event(dg.AssetKey(n.split(".")))), None)
        if built is not None:
            catalog = settings.catalog_shown
            raise CatalogUnreadable(
                f"declared columns cannot be compared with tables: {built} was built, but the catalog {catalog} has "
                "no declared table; check that TIDEMARK_CATALOG_URI names the catalog of this platform"
            )
    return found


def selected_keys(settings: Settings, select: str) -> list[str]:
    """Return the selected assets, without sources.

    Raises:
        Terminal: the selection cannot be parsed, or selects sources only.
    """
    definitions = location.definitions(settings)
    built = {key.to_user_string() for key in definitions.resolve_asset_graph().materializable_asset_keys}
    if not (chosen := keys_of(definitions, select) & built):
        raise Terminal(f"--select {select}: it selects sources only")
    return sorted(chosen)


def save(settings: Settings, path: Path) -> None:
    """Write the state of the instance to a file, from which a plan can be made later.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
    """
    settings = take_environment(settings)
    with opened_instance() as instance:
        state = state_of(location.definitions(settings), instance, contract_scale=settings.contract_scale)
        stored = _stored(settings, instance)
        replace(state, tables={name: vars(table) for name, table in stored.items()}).write(path)


def as_dict(plan: CodePlan, *, with_diff: bool = False) -> dict[str, Any]:
    """Return a plan as JSON. Times are Unix seconds. An unpartitioned asset has one partition, which is null."""
    moved = plan.moved or {}
    return {
        "assets": [
            {
                "key": asset.key,
                "change": asset.change,
                "reason": "; ".join(reasons_of(asset.rebuilds)),
                "partitions": list(asset.partitions)
                or sorted((rebuild.partition for rebuild in asset.rebuilds), key=lambda partition: partition or ""),
                "indirect": not asset.is_certain,
                "certain": sum(rebuild.certain for rebuild in asset.rebuilds),
                "expected_minutes": None if asset.seconds is None else round(asset.seconds / 60, 2),
                "expected_rows": asset.rows,
                "due_at": max((r.due_at for r in asset.rebuilds if r.due_at is not None), default=None),
                "held": {str(r.partition): r.held for r in asset.rebuilds if r.held},
            }
            for asset in plan.assets
        ],
        "code": None
        if plan.moved is None
        else {
            key: [{"definition": each.label, **({"diff": list(each.diff)} if with_diff else {})} for each in moved[key]]
            for key in moved
        },
        "tables": [table.as_dict() for table in plan.tables],
        "removed": list(plan.removed),
        "unversioned": dict(plan.unversioned),
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "expected_minutes": None if plan.seconds is None else round(plan.seconds / 60, 2),
    }


def told(plan: CodePlan, *, with_diff: bool = False) -> Group:
    """Return a plan for a terminal of 80 columns."""
    lines: list[Any] = []
    if plan.runs:
        running = [asset for asset in plan.assets if asset.rebuilds]
        if certain := [asset for asset in running if asset.is_certain]:
            lines.append(_table("runs because of this code", certain))
        if indirect := [asset for asset in running if not asset.is_certain]:
            lines.append(_table("runs that follow if the rows of their inputs change", indirect))
        if any(not rebuild.certain for asset in plan.assets for rebuild in asset.rebuilds):
            lines.append(Text('"after" an asset: runs only where the rows of that asset change.'))
        if plan.seconds is not None:
            lasts = span(max(60.0, plan.seconds))
            lines.append(Text(f"about {lasts} of work, newest partitions first, after newly arrived data"))
    else:
        lines.append(Text("no partition would run because of this code"))
    lines += [Text(f"{asset.key}: {asset.change}") for asset in plan.assets if asset.change]
    lines += _code(plan, with_diff=with_diff)
    lines += [Text(message) for message in plan.unversioned.values()]
    lines += [Text(f"{key}: removed; its table stays until you drop it") for key in plan.removed]
    for asset in plan.assets:
        held = dict.fromkeys(rebuild.held for rebuild in asset.rebuilds if rebuild.held)
        lines += [Text(f"{asset.key}: held, {why}") for why in list(held)[:_REASONS]]
        due = [rebuild.due_at for rebuild in asset.rebuilds if rebuild.due_at is not None]
        lines += [Text(f"{asset.key}: due {moment(max(due))}")] if due else []
    lines += [Text(line) for table in plan.tables for line in table.lines()]
    return Group(*lines, *(Text(f"note: {line}") for line in (*plan.warnings, *plan.notes)))


def _table(title: str, assets: Sequence[AssetPlan]) -> Table:
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    shown.pad_edge = False
    shown.add_column("asset", no_wrap=True)
    shown.add_column("partitions")
    shown.add_column("minutes", justify="right")
    shown.add_column("rows", justify="right")
    shown.add_column("why")
    for asset in assets:
        minutes = "" if asset.seconds is None else f"{asset.seconds / 60:.1f}"
        rows = "" if asset.rows is None else f"{asset.rows:,}"
        shown.add_row(asset.key, partitions_of(asset), minutes, rows, "; ".join(reasons_of(asset.rebuilds)))
    return shown


def _code(plan: CodePlan, *, with_diff: bool) -> list[Any]:
    """Return lines about the changed definitions, each once with the assets that it affects."""
    if plan.moved is None:
        why = "the text of the deployed code is unknown; it is recorded from the next deploy on"
        return [Text(f"the code cannot be compared: {why}")] if with_diff else []
    concerns: dict[str, list[str]] = {}
    diffs: dict[str, Sequence[str]] = {}
    added = {asset.key for asset in plan.assets if asset.change == ADDED}  # all of their code is new
    for key, moved in plan.moved.items():
        for each in moved if key not in added else ():
            concerns.setdefault(each.label, []).append(key)
            diffs[each.label] = each.diff
    lines: list[Any] = []
    for label, keys in sorted(concerns.items()):
        more = f" and {len(keys) - _REASONS} more" if len(keys) > _REASONS else ""
        lines.append(Text(f"{label} changed: affects {', '.join(keys[:_REASONS])}{more}"))
        lines += (
            [
                Text(f"  {line}", style=_STYLES.get(line[:1], ""), no_wrap=True, overflow="ignore")
                for line in diffs[label]
            ]
            if with_diff
            else []
        )
    return lines


def partitions_of(asset: AssetPlan) -> str:
    """Return the number of rebuilt partitions as text, with the first and the last key."""
    keys = [rebuild.partition for rebuild in asset.rebuilds if rebuild.partition is not None]
    if not keys:
        return "all of it"
    ordered = [p for p in asset.partitions if p is not None] or sorted(keys)
    return ordered[0] if len(keys) == 1 else f"{len(keys)}: {ordered[0]} to {ordered[-1]}"


def reasons_of(rebuilds: Sequence[Rebuild]) -> list[str]:
    """Return the distinct reasons of rebuilds. For uncertain rebuilds the reason names only the assets before them."""
    said = (
        rebuild.reason if rebuild.certain else f"after {', '.join(sorted({key for key, _ in rebuild.after}))}"
        for rebuild in rebuilds
    )
    found = list(dict.fromkeys(said))
    return found[:_REASONS] + ([f"and {len(found) - _REASONS} more reasons"] if len(found) > _REASONS else [])


def selected(plan: CodePlan, definitions: dg.Definitions, select: str) -> CodePlan:
    """Return the part of a plan about the selected assets.

    Raises:
        Terminal: the selection cannot be parsed, or selects no asset.
    """
    keys = keys_of(definitions, select)
    assets = [asset for asset in plan.assets if asset.key in keys]
    tables = [table for table in plan.tables if table.asset in keys]
    moved = None if plan.moved is None else {key: of for key, of in plan.moved.items() if key in keys}
    unversioned = {key: message for key, message in plan.unversioned.items() if key in keys}
    return replace(plan, assets=assets, tables=tables, moved=moved, unversioned=unversioned, removed=())


def keys_of(definitions: dg.Definitions, select: str) -> set[str]:
    """Return the assets of a selection.

    Raises:
        Terminal: the selection cannot be parsed, or selects no asset.
    """
    try:
        chosen = dg.AssetSelection.from_string(select).resolve(definitions.resolve_asset_graph())
    except dg.DagsterError as error:
        raise Terminal(f"--select {select}: {error}") from error
    if not chosen:
        raise Terminal(f"--select {select}: it selects no asset")
    return {key.to_user_string() for key in chosen}
