"""`pipelines status`: how the contracts stand, or the services of the platform."""

from typing import Annotated

import typer

from pipelines.tidemark.cli.commands import fail
from pipelines.tidemark.settings import load_settings


def status(
    asset: Annotated[
        str | None, typer.Option(help="One asset only, by its key: marts/sales_daily.", show_default=False)
    ] = None,
    services: Annotated[bool, typer.Option("--services", help="The platform's processes instead.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every few seconds, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """Show each asset's freshness status; exits with 4 if a contract is broken, 5 if an asset is set aside."""
    from pipelines.tidemark.cli.status_view import show_contracts, show_services

    broken: list[str] = []
    aside: list[str] = []
    try:
        if services:
            show_services(load_settings(), as_json=as_json)
        else:
            broken, aside = show_contracts(load_settings(), asset, watch=watch, as_json=as_json)
    except KeyboardInterrupt:
        return
    if broken:
        fail(f"broken: {', '.join(broken)}", code=4)
    if aside:
        fail(f"set aside, so nobody looks after them: {', '.join(aside)}", code=5)
