"""`tidemark lock`: find assets whose code changed and whose `code_version` did not."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings

if TYPE_CHECKING:
    from dagster_tidemark.code_versions.lock_file import Asset

commands = typer.Typer(help="Compare code with code versions, in code-versions.lock.", no_args_is_help=True)


@commands.command()
def check(as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of lines.")] = False) -> None:
    """Fail if an asset's code changed under the same code version, or if the lock file is out of date.

    `make check` runs this command. It exits with 2 if there is something to do, and names the command to run.
    """
    from dagster_tidemark.code_versions import lock_file

    assets, path = _assets(), _path()
    found = lock_file.differences(lock_file.read(path), assets)
    if as_json:
        fields = ("asset", "difference", "definitions", "message")
        typer.echo(json.dumps([{name: getattr(each, name) for name in fields} for each in found], indent=2))
    else:
        for each in found:
            typer.echo(each.message)
    if found:
        fail(f"{len(found)} of {len(assets)} assets differ from {path.name}", code=2)
    if not as_json:
        typer.echo(f"{path.name}: {len(assets)} assets, all up to date")
        for line in lock_file.undecided(assets):
            typer.echo(f"note: {line}", err=True)


@commands.command()
def update() -> None:
    """Record raised versions, new assets and removed assets, but no code that changed under the same version.

    Exits with 2 if there is such code: raise its version, or run `tidemark lock mark-current`.
    """
    from dagster_tidemark.code_versions import lock_file

    assets, path = _assets(), _path()
    before = lock_file.read(path)
    after, forgotten = lock_file.updated(before, assets)
    lock_file.write(path, after)
    for finding in lock_file.differences(before, assets):
        if finding not in forgotten:
            typer.echo(f"{finding.asset}: {finding.difference}, recorded")
    for finding in forgotten:
        typer.echo(finding.message)
    if forgotten:
        fail(f"{len(forgotten)} of {len(assets)} assets were not updated in {path.name}", code=2)


@commands.command(name="mark-current")
def mark_current(
    assets: Annotated[
        list[str] | None,
        typer.Argument(help="Keys such as core/orders. Default: all assets whose code changed.", show_default=False),
    ] = None,
) -> None:
    """Record changed code as harmless: existing partitions count as built with it, and are not rebuilt."""
    mark(assets or [])


def mark(names: list[str]) -> None:
    """Record the changed code of some assets as current. Without names, record all changed assets.

    Raises:
        typer.Exit: an asset does not exist.
    """
    from dagster_tidemark.code_versions import lock_file

    assets, path = _assets(), _path()
    if unknown := [name for name in names if name not in assets]:
        fail(f"there is no asset {', '.join(unknown)}; known assets: {', '.join(assets)}", code=2)
    lock = lock_file.read(path)
    found = [f for f in lock_file.differences(lock, assets) if f.difference is lock_file.Difference.FORGOTTEN]
    chosen = {finding.asset for finding in found if not names or finding.asset in names}
    lock_file.write(path, lock_file.marked(lock, assets, chosen))
    for name in sorted(chosen):
        typer.echo(f"{name}: its present code is recorded under code_version {assets[name].code_version!r}")
    for name in sorted(set(names) - chosen):
        typer.echo(f"{name}: its code has not changed")


def unseen_changes(changed: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Return what may change rows although no run rebuilds them.

    Args:
        changed: Assets whose code differs from the deployed code, which has the same version.

    Returns:
        A message for each asset whose code changed under the same version, and a message for each line that reads a
        file whose path is not known.
    """
    from dagster_tidemark.code_versions import lock_file

    assets = _assets()
    found = lock_file.unversioned(lock_file.read(_path()), assets, changed)
    return {finding.asset: finding.message for finding in found}, lock_file.undecided(assets)


def _assets() -> "Mapping[str, Asset]":
    import warnings

    from dagster_tidemark import location
    from dagster_tidemark.code_versions.assets import assets_of
    from dagster_tidemark.code_versions.project import Project
    from dagster_tidemark.engine.condition import own_assets

    settings = load_settings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster's warnings, which other commands show
        assets = own_assets(location.definitions(settings))
        return assets_of(assets, Project(settings.code_root, settings.code_location))


def _path() -> Path:
    from dagster_tidemark.code_versions.lock_file import NAME

    return load_settings().root / NAME
