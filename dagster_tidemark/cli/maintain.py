"""`tidemark maintain`: do the maintenance of tables now, or print what would be done."""

from typing import Annotated

import typer

from dagster_tidemark.cli.commands import fail
from dagster_tidemark.settings import load_settings


def maintain(
    table: Annotated[
        str | None, typer.Argument(help="Only this table: core.orders.", metavar="[TABLE]", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
) -> None:
    """Compact tables, expire snapshots and remove orphan files now, without waiting for spare time.

    Everything useful is done. Files and snapshots that a reader may need stay. Exits with 1 if an action failed or a
    table could not be read, 2 if no table has this name.
    """
    from dagster_tidemark.cli.maintenance_view import maintain_now, show_due

    settings = load_settings()
    faults = show_due(settings, table) if dry_run else maintain_now(settings, table)
    if faults:
        fail("; ".join(faults), code=1)
