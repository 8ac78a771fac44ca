"""`tidemark restore-catalog`: compare the catalog with the warehouse after a restore, and register tables again."""

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import Settings, load_settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_tidemark.lakehouse.catalog_repair import ComparedTable

_ALIVE_SECONDS = 60.0
"""A heartbeat that is younger is of a daemon that runs."""
_CLOCKS_SECONDS = 120.0
"""A heartbeat that is younger than both together may be of a daemon whose clock is behind: a new one shows it."""
_BETWEEN_BEATS = 35.0
"""Longest time between two heartbeats of a daemon that runs."""


def restore_catalog(
    apply: Annotated[bool, typer.Option("--apply", help="Register the tables that can be registered.")] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Remove this table from the catalog, with --apply, to build it again. Its files stay.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of lines.")] = False,
) -> None:
    """Compare the catalog with the metadata files in the warehouse, and print a line for each table that differs.

    Stop the daemon and the code servers first: a run that commits at the same moment would lose its commit. Exits with
    1 if a table still differs, or if a daemon runs.
    """
    from dagster_tidemark.lakehouse.append import open_lake
    from dagster_tidemark.lakehouse.catalog_repair import CatalogState, compared

    settings = load_settings()
    lake = open_lake(settings)
    found = compared(lake, settings.warehouse)
    if apply:
        _require_no_daemon(settings)
        _change(lake, found, drop or ())
        before, found = found, compared(lake, settings.warehouse)
        _show_changes(before, found)
    differs = [each for each in found if each.state is not CatalogState.OK]
    if as_json:
        print(json.dumps([vars(each) for each in found], indent=2))
    else:
        for each in differs:
            typer.echo(f"{each.name}: {each.state}{f': {each.said}' if each.said else ''}; {_remedy(each)}")
        typer.echo(f"{len(found) - len(differs)} of {len(found)} tables are ok")
    if differs:
        fail(f"the catalog and the warehouse differ: {', '.join(each.name for each in differs)}", code=1)


def _change(lake: "Catalog", found: "Sequence[ComparedTable]", drop: Sequence[str]) -> None:
    from dagster_tidemark.lakehouse.catalog_repair import REPAIRABLE, CatalogState, NotRepaired, forget, repair

    by_name = {each.name: each for each in found}
    for name in drop:
        if name not in by_name or by_name[name].state in REPAIRABLE | {CatalogState.OK}:
            state = by_name[name].state if name in by_name else "no such table"
            raise NotRepaired(f"--drop {name}: expected a table whose files are gone, found: {state}")
    for each in found:
        if each.name in drop:
            forget(lake, each.name)
        elif each.state in REPAIRABLE:
            repair(lake, each)


def _show_changes(before: "Sequence[ComparedTable]", after: "Sequence[ComparedTable]") -> None:
    now = {each.name: each for each in after}
    for each in before:
        if each.name not in now:
            typer.echo(f"{each.name}: removed from the catalog; then `tidemark rebuild` its asset", err=True)
        elif now[each.name].state is not each.state:
            typer.echo(f"{each.name}: registered with {now[each.name].newest}", err=True)


def _remedy(found: "ComparedTable") -> str:
    from dagster_tidemark.lakehouse.catalog_repair import REPAIRABLE, CatalogState

    if found.state in REPAIRABLE:
        return f"--apply registers {found.newest}"
    if found.state is CatalogState.AMBIGUOUS:
        return f"move one of them out of the folder: {found.newest}"
    return f"restore the objects' versions, or --apply --drop {found.name} and build it again"


def _require_no_daemon(settings: Settings) -> None:
    """End the command if a daemon has sent a heartbeat lately, or if that is not known."""
    from dagster_tidemark.cli.storage import opened_instance
    from dagster_tidemark.dagster_internals.instance_store import heartbeats
    from dagster_tidemark.local.platform.instance_lock import NothingRuns, take_environment

    try:
        take_environment(settings)
    except NothingRuns:
        if settings.spark_remote is None:  # a stopped laptop
            return
        fail("it is not known whether a daemon runs: set DAGSTER_HOME to the deployment's folder", code=1)
    with opened_instance() as instance:
        last = max(heartbeats(instance).values(), default=0.0)
        runs = time.time() - last < _ALIVE_SECONDS
        if not runs and time.time() - last < _ALIVE_SECONDS + _CLOCKS_SECONDS:
            typer.echo(f"waiting for {_BETWEEN_BEATS:.0f} s: a daemon that runs sends a heartbeat", err=True)
            time.sleep(_BETWEEN_BEATS)
            runs = max(heartbeats(instance).values(), default=0.0) != last
    if runs:
        fail("a daemon runs on this instance: stop it and the code servers, and wait a minute", code=1)
