"""`tidemark prune`: delete old runs, events, check results, ticks, notes, entries and previews that nothing needs."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.retention.prune import Pruning

_AGE = re.compile(r"([1-9]\d*)([hd])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1)}


class Unplanned(StrEnum):
    """Keep or delete runs of assets and jobs that Tidemark does not plan."""

    KEEP = "keep"
    DELETE = "delete"


def prune(
    older_than: Annotated[
        str, typer.Option(help="Age of the records to delete: 30d or 12h, at least 1h.", show_default=False)
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Delete. Without this, nothing changes.")] = False,
    unplanned: Annotated[
        Unplanned, typer.Option(help="Old runs of assets and jobs that Tidemark does not plan.")
    ] = Unplanned.KEEP,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of lines.")] = False,
) -> None:
    """Delete old records that no decision needs, or list them (the default).

    Exits with 1 if it is unknown which records are needed, if some assets keep records that a restart needs, or if the
    bucket or the catalog cannot be read: then quarantine entries or previews stay.
    """
    from rich.console import Console

    from dagster_tidemark import location
    from dagster_tidemark.asset_graph import planner_graph
    from dagster_tidemark.cli.prune_lake import prune_lake
    from dagster_tidemark.cli.storage import opened_instance
    from dagster_tidemark.local.platform.instance_lock import take_environment
    from dagster_tidemark.retention import prune as pruning
    from dagster_tidemark.sensors.freshness_sensor import reports_need

    age = _age(older_than)
    settings = take_environment(load_settings())
    assets = location.asset_graph(settings)  # a broken module would hide assets, whose runs would seem unplanned
    told = Console(stderr=True)
    with opened_instance() as instance:
        found = pruning.prune(
            instance,
            lambda: planner_graph.graph_of(assets, contract_scale=settings.contract_scale),
            max(age, reports_need(instance, settings.code_location, assets)),
            apply=apply,
            unplanned=unplanned is Unplanned.DELETE,
            sensors=location.sensor_names(settings),
            progress=lambda line: told.print(line),
        )
        of_lake = prune_lake(settings, instance, assets, found.before, apply=apply)
    found = replace(found, amounts={**found.amounts, **of_lake.amounts})
    if as_json:
        of_json = asdict(found) | {"kept_previews": of_lake.kept, "faults": of_lake.faults}
        typer.echo(json.dumps(of_json, indent=2))
    else:
        _show(found, of_lake.kept)
    for fault in of_lake.faults:
        typer.echo(f"tidemark: {fault}", err=True)
    if found.unproven:
        names = ", ".join(found.unproven)
        fail(f"records of {names} stay: without them, a restarted planner would decide differently", code=1)
    if of_lake.faults:
        raise typer.Exit(1)


def _show(found: "Pruning", kept_previews: Sequence[str]) -> None:
    at = datetime.fromtimestamp(found.before, UTC).strftime("%Y-%m-%d %H:%M UTC")
    typer.echo(f"{'deleted' if found.applied else 'to delete'}, older than {at}:")
    for kind, amount in found.amounts.items():
        typer.echo(f"  {kind}: {amount.count} ({_bytes(amount.size)})")
    for why, count in found.kept.items():
        typer.echo(f"kept: {count} runs that {why}")
    for line in kept_previews:
        typer.echo(f"kept: {line}")
    if found.noted:
        done = "were" if found.applied else "will be"
        typer.echo(f"{found.noted} partitions {done} noted in the journal first")
    if not found.applied:
        typer.echo("nothing was deleted: --apply deletes")


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        fail(f"--older-than {text}: expected a number of days or hours, such as 30d or 12h", code=2)
    return int(found[1]) * _UNITS[found[2]]


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
