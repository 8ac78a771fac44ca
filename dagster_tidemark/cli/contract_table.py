"""Formats the rows of `tidemark status` for a terminal of 80 columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from dagster_tidemark.cli.contract_rows import ContractRow, causes
from dagster_tidemark.engine.doubts import Cause
from dagster_tidemark.engine.saved_overview import SET_ASIDE
from dagster_tidemark.engine.stream_rows import StreamRow
from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.wording import counted, moment, names

_STYLES = {
    FreshnessStatus.MET: "green",
    FreshnessStatus.AT_RISK: "yellow",
    FreshnessStatus.UNKNOWN: "bold yellow",
    FreshnessStatus.BREACHED: "bold red",
    FreshnessStatus.NOT_JUDGED: "bold red",
    SET_ASIDE: "bold red",
}


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
