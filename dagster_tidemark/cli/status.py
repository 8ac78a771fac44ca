"""`tidemark status`: show the state of the contracts, or the services of the platform."""

from typing import Annotated

import typer

from dagster_tidemark.cli.commands import LEFT_OUT, fail
from dagster_tidemark.planner.wording import names
from dagster_tidemark.settings import load_settings


def status(
    asset: Annotated[
        str | None, typer.Option(help="Only this asset, by its key: marts/sales_daily.", show_default=False)
    ] = None,
    services: Annotated[bool, typer.Option("--services", help="Show the platform's processes instead.")] = False,
    arrivals: Annotated[bool, typer.Option("--arrivals", help="Show expected arrivals of sources instead.")] = False,
    lags: Annotated[bool, typer.Option("--lags", help="Show the lags of the last 24 hours instead.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every few seconds, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """Show each asset's freshness status.

    Exits with 4 if a contract is breached, 9 if the state of one is unknown, 10 if a stream is behind or not read, 5 if
    an asset is set aside, 6 if whole files are in quarantine, 11 if a channel for incidents is dead, 2 if a part of the
    code location is broken and was left out.
    """
    from dagster_tidemark import location
    from dagster_tidemark.cli.arrival_view import show_arrivals
    from dagster_tidemark.cli.contract_rows import behind, breached, causes, quarantined, set_aside, unknown
    from dagster_tidemark.cli.lag_view import show_lags
    from dagster_tidemark.cli.status_view import dead_channels, show_contracts, show_services
    from dagster_tidemark.preview.manifest import half_published

    if services:
        show_services(load_settings(), as_json=as_json)
        return
    if arrivals:
        show_arrivals(load_settings(), as_json=as_json)
        return
    if lags:
        show_lags(load_settings(), asset, as_json=as_json)
        return
    try:
        found = show_contracts(load_settings(), asset, watch=watch, as_json=as_json)
    except KeyboardInterrupt:
        return
    for sentence in half_published(load_settings().state_dir):
        typer.echo(sentence, err=True)
    if broken := breached(found):
        fail(f"broken: {', '.join(broken)}", code=4)
    if blind := unknown(found):
        why = names(cause.name for cause in causes(found)) or "no sensor has run lately"
        fail(f"unknown ({why}): {', '.join(blind)}", code=9)
    if late := behind(found):
        fail(f"streams that are behind (no commit for a minute) or that no shift reads: {', '.join(late)}", code=10)
    if aside := set_aside(found):
        fail(f"set aside, so the automation ignores them: {', '.join(aside)}", code=5)
    if lacking := quarantined(found):
        fail(f"files are in quarantine, so rows are missing: {', '.join(lacking)}", code=6)
    if silent := dead_channels(load_settings()):
        fail(f"incidents cannot be reported: {'; '.join(silent)}", code=11)
    if location.broken_parts(load_settings()):
        fail(LEFT_OUT, code=2)
