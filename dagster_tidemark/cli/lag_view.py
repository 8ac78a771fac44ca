"""Output of `tidemark status --lags`: the lag of each contract over the last 24 hours, for a terminal or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dagster_tidemark.cli.commands import name_left_out
from dagster_tidemark.cli.contract_rows import NoSuchAsset
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.dagster_internals.event_time import now
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.wording import moment
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from dagster_tidemark.engine.lag_history import AssetLag

_DAY = 86_400.0


def show_lags(settings: Settings, asset: str | None, *, as_json: bool) -> None:
    """Print mean, 95th percentile and maximum of each asset's lag, and the share of time within its contract.

    The figures cover the last 24 hours, or the time since the first event of the log.

    Args:
        asset: The key of the only asset to show; None shows all.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        NoSuchAsset: no asset with a contract has this key.
        StorageUnreachable: Dagster's storage does not answer.
    """
    from dagster_tidemark import location
    from dagster_tidemark.engine.lag_history import lags

    settings = take_environment(settings)
    with location.without_broken_parts():
        graph = location.asset_graph(settings)
    name_left_out(settings)
    with opened_instance() as instance:
        end = now()
        found = lags(instance, graph, [(end - _DAY, end)], contract_scale=settings.contract_scale)
    if asset is not None:
        found = [each for each in found if each.asset == asset]
        if not found:
            raise NoSuchAsset(f"no asset with a contract has the key {asset}, or the event log is empty")
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    elif found:
        Console().print(lag_table(found))
    else:
        print("the event log is empty, or no asset has a contract")


def lag_table(found: Sequence["AssetLag"]) -> Table:
    """Return a table with a row for each asset."""
    table = Table("asset", "contract", "mean lag", "p95", "longest", "in time")
    if found:
        table.caption = f"since {moment(min(each.start for each in found))}"
    for each in found:
        spans = (span(seconds) for seconds in (each.lag.mean, each.lag.p95, each.lag.longest))
        table.add_row(*map(Text, (each.asset, each.contract, *spans, f"{each.lag.within:.2%}")))
    return table
