"""Output of `tidemark status`, for a terminal of 80 columns: contracts, services, expected arrivals, or lags.

Belongs here: opening the instance, and printing. Does not belong here: the content of a row
(`cli.contract_rows`, `local.platform.supervision`) and exit codes (`cli.status`).
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer
from dagster import DagsterInstance
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dagster_tidemark.cli.commands import name_left_out
from dagster_tidemark.cli.contract_rows import ContractRow, NoSuchAsset, causes, kept_rows, not_looked_yet, rows
from dagster_tidemark.cli.incident_view import dead_lines
from dagster_tidemark.cli.override_view import lines as override_lines
from dagster_tidemark.cli.storage import opened_instance
from dagster_tidemark.dagster_internals.event_time import now
from dagster_tidemark.engine import saved_overview
from dagster_tidemark.engine.doubts import Cause
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.engine.saved_overview import SET_ASIDE
from dagster_tidemark.engine.stream_rows import StreamRow
from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.event_log import standby
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.event_log.observations import dead_letters_told
from dagster_tidemark.incidents.incident import ArrivalRow
from dagster_tidemark.incidents.sender import dead
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.incidents.wording import title
from dagster_tidemark.local.platform.instance_lock import take_environment
from dagster_tidemark.maintenance.maintenance_overview import kept_overview
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.wording import counted, moment, names
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
    from dagster_tidemark.engine.lag_history import AssetLag

_WATCH_SECONDS = 3.0
_DAY = 86_400.0
_STYLES = {
    FreshnessStatus.MET: "green",
    FreshnessStatus.AT_RISK: "yellow",
    FreshnessStatus.UNKNOWN: "bold yellow",
    FreshnessStatus.BREACHED: "bold red",
    FreshnessStatus.NOT_JUDGED: "bold red",
    SET_ASIDE: "bold red",
}


def show_contracts(settings: Settings, asset: str | None, *, watch: bool, as_json: bool) -> Sequence[ContractRow]:
    """Print the state of the contracts. With `watch`, repeat until Ctrl-C.

    Returns:
        The printed rows.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        NoSuchAsset: no asset has this name.
        StorageUnreachable: Dagster's storage does not answer.
    """
    settings = take_environment(settings)
    with opened_instance() as instance:
        found = _found(instance, settings, asset)
        for line in standby.mistakes(instance, now()):
            typer.echo(f"tidemark: {line}", err=True)
        if as_json:
            print(json.dumps([row.as_dict() for row in found], indent=2))
        elif not watch:
            Console().print(explained(found, now()))
            for line in (*_override_lines(instance, settings), *_incident_lines(instance, settings)):
                Console().print(Text(line))
            if (upkeep := kept_overview(instance, settings.code_location)) is not None:
                for line in upkeep.lines():
                    Console().print(Text(line))
            if given_up := dead_letters_told(instance):
                Console().print(
                    f"{given_up} notifications are in the dead-letter queue: `tidemark redrive` sends them again"
                )
        else:
            with Live(explained(found, now())) as live:
                while True:
                    time.sleep(_WATCH_SECONDS)
                    live.update(explained(_found(instance, settings, asset), now()), refresh=True)
    return found


def dead_channels(settings: Settings) -> list[str]:
    """Return a line for each dead channel, which has been unable to send for a minute."""
    with opened_instance() as instance:
        book, at = IncidentStore(instance, settings.code_location).read(), now()
    return [f"channel {name}: {why}" for name, why in dead(book, at).items()]


def _override_lines(instance: DagsterInstance, settings: Settings) -> list[str]:
    kept = saved_overview.kept(instance, settings.code_location)
    lasting = [each for each in OverrideStore(instance).read() if each.lasts(now())]
    return override_lines(lasting, kept.left if kept is not None else {})


def _incident_lines(instance: DagsterInstance, settings: Settings) -> list[str]:
    book, at = IncidentStore(instance, settings.code_location).read(), now()
    open_ = [f"{incident.id} {title(incident)}" for incident in book.open]
    more = ["`tidemark incidents` shows more"] if open_ else []
    return [*open_, *more, *dead_lines(book, at)]


def _found(instance: DagsterInstance, settings: Settings, asset: str | None) -> Sequence[ContractRow]:
    """Return the rows that the sensor `contracts` stored at its last tick.

    The code location is loaded only if the sensor has never run, or if code was edited since.
    """
    kept = saved_overview.kept(instance, settings.code_location)
    if kept is None:
        return not_looked_yet(rows(instance, _loaded(settings), asset, settings))
    edited = {} if kept.code == code_of(settings) else _edited(instance, settings)
    return kept_rows(instance, kept, asset, now(), edited)


def _loaded(settings: Settings) -> "AnyGraph":
    """Load the assets of this folder. Leave out broken parts, and list them on stderr."""
    from dagster_tidemark import location

    with location.without_broken_parts():
        graph: AnyGraph = location.asset_graph(settings)
    name_left_out(settings)
    return graph


def _edited(instance: DagsterInstance, settings: Settings) -> dict[str, str]:
    """Return the edited code of each asset that the platform has not loaded yet."""
    from dagster_tidemark.asset_graph import planner_graph
    from dagster_tidemark.event_log import deployed
    from dagster_tidemark.planner.code_changes import not_loaded

    try:
        assets = _loaded(settings)
    except TidemarkError as error:  # the rows of the code that the platform runs can still be shown
        typer.echo(f"tidemark: the code in this folder cannot be loaded: {error}", err=True)
        return {}
    graph = planner_graph.graph_of(assets, contract_scale=settings.contract_scale)
    return dict(not_loaded(deployed.kept(instance, graph), graph))


def show_services(settings: Settings, *, as_json: bool) -> None:
    """Print each process of the running platform.

    Raises:
        NothingRuns: no platform runs.
        SupervisorDied: the platform's supervisor was killed.
    """
    from dagster_tidemark.local.platform.supervision import services

    found = [vars(service) for service in services(settings)]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    shown = Table(*(str(name).replace("_", " ") for name in found[0]))
    for service in found:
        shown.add_row(*("" if value is None else str(value) for value in service.values()))
    Console().print(shown)


def show_arrivals(settings: Settings, *, as_json: bool) -> None:
    """Print the misses, the newest and the next window of each source with expected arrivals.

    Raises:
        NothingRuns: no platform runs, and the environment names no Dagster home.
        StorageUnreachable: Dagster's storage does not answer.
    """
    settings = take_environment(settings)
    with opened_instance() as instance:
        found = IncidentStore(instance, settings.code_location).read().arrivals
    if as_json:
        print(json.dumps([asdict(row) for row in found], indent=2))
    elif found:
        Console().print(arrival_table(found))
    else:
        print("no expected arrivals, or the sensor contracts has not run yet")


def arrival_table(found: Sequence[ArrivalRow]) -> Table:
    """Return a table with a row for the windows of a source in the same state."""
    table = Table("source", "windows", "state", "due", "arrived")
    for row in found:
        more = f" and {row.count - len(row.partitions)} more" if row.count > len(row.partitions) else ""
        state = f"{row.state}: {row.said}" if row.said else str(row.state)
        times = ("" if at is None else moment(at) for at in (row.due_at, row.arrived_at))
        table.add_row(*map(Text, (row.source, ", ".join(row.partitions) + more, state, *times)))
    return table


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


def table(found: Sequence[ContractRow], now: float, numbers: Mapping[Cause, int] = MappingProxyType({})) -> Table:
    """Return the rows as a table for a terminal, at a time (Unix seconds).

    Args:
        numbers: Number of each cause. The state of a row is followed by the numbers of its causes.
    """
    # Without a border and with short headings, so that it fits into 80 columns.
    shown = Table(title=f"contracts at {moment(now)}", title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    shown.pad_edge = False
    for column in ("asset", "contract", "state", "lag", "due", "last run"):
        shown.add_column(column, no_wrap=column == "asset")
    for row in found:
        shown.add_row(
            row.asset,
            row.contract.partition(",")[0] or _without_contract(row),
            _state(row, numbers),
            _brief(row.lag) if row.lag else "",
            _due(row, now),
            _last(row, now),
        )
    return shown


def explained(found: Sequence[ContractRow], now: float) -> Group:
    """Return the table, the causes of unknown states, and lines about single assets.

    Lines about an asset give the reason why its contract is not met or cannot be kept, partitions that the automation
    ignores, edited code that is not loaded, rejected files and rows, and its stream. The reason of a single asset is
    always shown.
    """
    concerned = causes(found)
    numbers = {cause: number for number, cause in enumerate(concerned, start=1)}
    shown = [_cause(numbers[cause], cause, assets, found) for cause, assets in concerned.items()]
    whys = [f"{row.asset}: {row.reason}" for row in found if row.reason and (len(found) == 1 or _needs_reason(row))]
    whys += [f"{row.asset}: its contract cannot be kept: {row.infeasible}" for row in found if row.infeasible]
    whys += [f"{row.asset}: {row.not_loaded}: reload the code location" for row in found if row.not_loaded]
    whys += [f"{row.asset}: {_rejected(row)}" for row in found if row.files_rejected or row.rows_rejected]
    whys += [f"{row.asset}: {_stream(row.stream, numbers).told(now)}" for row in found if row.stream is not None]
    gap = [Text("")] if shown and whys else []
    return Group(table(found, now, numbers), *shown, *gap, *map(Text, whys))


def _needs_reason(row: ContractRow) -> bool:
    if row.causes and row.state == FreshnessStatus.UNKNOWN and not row.set_aside:
        return False  # the causes printed below the table are the whole reason
    return bool(row.set_aside) or row.state not in ("", FreshnessStatus.MET)


def _state(row: ContractRow, numbers: Mapping[Cause, int]) -> str:
    refers = f" ({','.join(str(numbers[cause]) for cause in row.causes)})" if row.causes and numbers else ""
    return f"[{_STYLES[row.state]}]{row.state}[/]{refers}" if row.state else ""


def _stream(row: StreamRow, numbers: Mapping[Cause, int]) -> StreamRow:
    """Return a stream's row that refers to the cause of its problem by number, if that cause is printed above."""
    number = next((number for cause, number in numbers.items() if cause.said == row.hindrance), None)
    return row if number is None else replace(row, hindrance=f"see ({number})")


def _cause(number: int, cause: Cause, assets: Sequence[str], found: Sequence[ContractRow]) -> Table:
    """Return a cause with its number, the affected assets, and the remedy."""
    promised = sum(bool(row.contract) for row in found)
    some = f"{len(assets)} of {promised} contracts: " if len(assets) > 1 else ""
    concerns = f"all {promised} contracts" if 1 < promised == len(assets) else f"{some}{', '.join(assets)}"
    parts = {"since": moment(cause.since), "concerns": concerns, "next": cause.remedy}
    shown = Table.grid(padding=(0, 1))
    shown.add_row(f"({number})", Text(cause.said))
    for name, value in parts.items():
        if value:
            shown.add_row("", Text(f"{name}: {value}"))
    return shown


def _without_contract(row: ContractRow) -> str:
    if row.source:
        return "a source"
    return "asap" if row.asap else "its readers'"


def _rejected(row: ContractRow) -> str:
    files, rows = len(row.files_rejected), row.rows_rejected
    of_files = f"{counted(files, 'file')} cannot be loaded ({names(row.files_rejected)})" if files else ""
    of_rows = f"{counted(rows, 'row')} {'was' if rows == 1 else 'were'} rejected" if rows else ""
    return f"{'; '.join(filter(None, (of_files, of_rows)))}: see `tidemark quarantine --asset {row.asset}`"


def _due(row: ContractRow, now: float) -> str:
    if row.due is None:
        return ""
    return "now" if row.due <= now else f"in {_brief(row.due - now)}"


def _last(row: ContractRow, now: float) -> str:
    if row.last_built is None:
        return ""
    how = "" if row.last_run == "success" else f"{row.last_run or 'reported'} "
    return f"{how}{_brief(now - row.last_built)} ago"


def _brief(seconds: float) -> str:
    """Return a time span in its largest unit, without the smaller ones."""
    number, unit, *_ = span(seconds).split()
    return f"{number} {unit}"
