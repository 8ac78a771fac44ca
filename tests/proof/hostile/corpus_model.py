"""What a case is, and the builders the tables of cases are made with.

A good row of feed `orders` has a number: its ids follow from it, and it was ordered that many minutes into the hour.
Every id fits eight bits, so the same rows can be written with any integer width. A case names the numbers that must
stand in the table afterwards (with what is stored differently from the good row) and how many entries of which reason
its files leave in quarantine.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from tests.parquet_files import parquet_of


@dataclass(frozen=True)
class FileCase:
    """Files of one partition, what stands in the core table afterwards and what lies in quarantine."""

    name: str
    feed: str
    files: Callable[[datetime], dict[str, bytes]]
    rows: Callable[[datetime], set[tuple[Any, ...]]]
    entries: Callable[[datetime], Counter[tuple[str, str]]]
    unsure: str = ""


@dataclass(frozen=True)
class MessageCase:
    """A message of the events queue, the partitions it asks to look at again and whether it is left in the queue."""

    name: str
    body: str
    hints: frozenset[tuple[str, str | None]]
    stays: bool
    strays: int = 0
    unsure: str = ""


class Raw(str):
    """A cell that is written as it is: no quoting in CSV, a bare token in JSON."""


class Missing:
    """The type of MISSING, the cell that is not written at all (JSON only)."""


MISSING = Missing()

Cell = str | int | Decimal | None | Missing | Callable[[datetime], str]
Content = Callable[[datetime], bytes]
Changes = Mapping[str, Any]

COLUMNS = (
    "order_id",
    "line_number",
    "customer_id",
    "product_id",
    "store_id",
    "quantity",
    "unit_price_usd",
    "discount",
    "ordered_at",
)
HEADER = ",".join(COLUMNS)
MONEY = ("unit_price_usd", "discount", "cost_usd")
PLACES = Decimal("0.0001")
WIDE = Context(prec=80)
NUMBERS = (1, 2, 3)
NEIGHBOUR = "neighbour.csv"
NEIGHBOUR_NUMBER = 51


# Rows


def good(start: datetime, number: int) -> dict[str, Any]:
    """The good row of that number, with typed values."""
    return {
        "order_id": number,
        "line_number": 1,
        "customer_id": 10 + number,
        "product_id": 20 + number,
        "store_id": 30 + number,
        "quantity": 2,
        "unit_price_usd": Decimal("19.9900"),
        "discount": Decimal("0.1000"),
        "ordered_at": start + timedelta(minutes=number),
    }


def stored(start: datetime, number: int, changes: Changes) -> tuple[Any, ...]:
    """The row as it must stand in the table. A changed `ordered_at` is given as the time since the hour's start."""
    values = good(start, number)
    for column, value in changes.items():
        if column in MONEY:
            values[column] = Decimal(value).quantize(PLACES)
        elif column == "ordered_at":
            values[column] = start + value
        else:
            values[column] = value
    return tuple(values[column] for column in COLUMNS)


def text(start: datetime, number: int) -> dict[str, str]:
    """The good row as text."""
    values = good(start, number)
    stamp = values["ordered_at"].strftime("%Y-%m-%dT%H:%M:%SZ")
    return {column: str(value) for column, value in values.items()} | {"ordered_at": stamp}


def at(pattern: str, **delta: float) -> Callable[[datetime], str]:
    """A time in the hour of the case (or `delta` away from its start) in the form of a strftime pattern."""
    return lambda start: (start + timedelta(**delta)).strftime(pattern)


@dataclass(frozen=True)
class Sent:
    """A row with cells of its own, and what becomes of it: a reason code, or what is stored unlike the good row."""

    cells: Mapping[str, Cell]
    becomes: str | Changes


def bad(reason: str, **cells: Cell) -> Sent:
    """A row that is rejected."""
    return Sent(cells, reason)


def fine(changes: Changes, **cells: Cell) -> Sent:
    """A row that is odd, and stored."""
    return Sent(cells, changes)


def each(reason: str, column: str, *cells: Cell) -> list[Sent]:
    """One rejected row per cell of a column."""
    return [bad(reason, **{column: cell}) for cell in cells]


# Files of rows


def line(cells: Iterable[str]) -> str:
    """A CSV line as RFC 4180 wants it; Raw cells stay as they are."""
    return ",".join(
        cell if isinstance(cell, Raw) or not set(cell) & set(',"\n\r') else '"' + cell.replace('"', '""') + '"'
        for cell in cells
    )


def lines(start: datetime, numbers: Sequence[int] = NUMBERS, extra: Mapping[str, str] | None = None) -> list[str]:
    """Header and good rows, with columns that nobody asked for at the end."""
    more = extra or {}
    rows = (line([*text(start, number).values(), *more.values()]) for number in numbers)
    return [line([*COLUMNS, *more]), *rows]


def join(parts: Iterable[str], eol: str = "\n", *, end: bool = True) -> bytes:
    """Lines as a file."""
    return (eol.join(parts) + (eol if end else "")).encode()


def csv(start: datetime, numbers: Sequence[int] = NUMBERS, extra: Mapping[str, str] | None = None) -> bytes:
    """A CSV file of good rows."""
    return join(lines(start, numbers, extra))


def headed(header: str) -> Content:
    """The good CSV file under another first line."""
    return lambda start: join([header, *lines(start)[1:]])


def with_line(raw: str) -> Content:
    """The good CSV file with a line between its first and its second row."""
    return lambda start: join([*lines(start)[:2], raw, *lines(start)[2:]])


def json_line(start: datetime, number: int, cells: Mapping[str, Cell] | None = None) -> str:
    """A good row as a JSON object with some of its values replaced."""
    values: dict[str, Cell] = {column: Raw(value) for column, value in text(start, number).items()}
    values["ordered_at"] = text(start, number)["ordered_at"]
    values.update(cells or {})
    pairs = (f"{json.dumps(key)}: {token(value, start)}" for key, value in values.items() if value is not MISSING)
    return "{" + ", ".join(pairs) + "}"


def token(cell: Cell, start: datetime) -> str:
    """A cell as JSON."""
    if isinstance(cell, Raw | Decimal):
        return str(cell)
    return json.dumps(cell(start) if callable(cell) else cell, ensure_ascii=False)


def jsonl(start: datetime, numbers: Sequence[int] = NUMBERS) -> bytes:
    """A JSON lines file of good rows."""
    return join(json_line(start, number) for number in numbers)


def with_json(raw: str) -> Content:
    """The good JSON lines file with a line between its first and its second row."""
    return lambda start: join([json_line(start, 1), raw, json_line(start, 2), json_line(start, 3)])


PARQUET_TYPES: dict[str, pa.DataType] = {column: pa.int64() for column in COLUMNS} | {
    "unit_price_usd": pa.decimal128(18, 4),
    "discount": pa.decimal128(18, 4),
    "ordered_at": pa.timestamp("us", "UTC"),
}


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Good values of a column as an array of another type."""
    if pa.types.is_decimal(kind):
        unit = Decimal(1).scaleb(-kind.scale)
        return pa.array([Decimal(value).quantize(unit, context=WIDE) for value in values], kind)
    if pa.types.is_floating(kind):
        return pa.array([float(value) for value in values], kind)
    return pa.array(values, kind)


def parquet(
    start: datetime,
    *,
    numbers: Sequence[int] = NUMBERS,
    types: Mapping[str, pa.DataType] | None = None,
    columns: Mapping[str, pa.Array | None] | None = None,
    **options: Any,
) -> bytes:
    """A Parquet file of good rows: some columns of other types, some replaced, added or (None) left out."""
    kinds = PARQUET_TYPES | dict(types or {})
    arrays: dict[str, pa.Array | None] = {}
    for column in COLUMNS:
        source = text if pa.types.is_string(kinds[column]) or pa.types.is_binary(kinds[column]) else good
        arrays[column] = array([source(start, number)[column] for number in numbers], kinds[column])
    arrays.update(columns or {})
    return parquet_of(pa.table({name: values for name, values in arrays.items() if values is not None}), **options)


# Cases of feed orders


@dataclass(frozen=True)
class Outcome:
    """What becomes of one file: the numbers it leaves in the table, what differs from the good rows, its entries."""

    keeps: Mapping[int, Changes] = field(default_factory=dict)
    entries: Mapping[str, int] = field(default_factory=dict)


def plain(*numbers: int) -> dict[int, Changes]:
    """These good rows as they are."""
    return {number: {} for number in numbers}


def keeps(*numbers: int, **entries: int) -> Outcome:
    """These numbers stand in the table as they are; so many rows are rejected per reason."""
    return Outcome(plain(*numbers), entries)


def turned_away(reason: str) -> Outcome:
    """The file goes to quarantine as a whole."""
    return Outcome({}, {reason: 1})


ALL = keeps(*NUMBERS)


def orders(
    name: str,
    files: Mapping[str, Content],
    stays: Mapping[int, Changes],
    entries: Mapping[tuple[str, str], int] | None = None,
    unsure: str = "",
) -> FileCase:
    """A case of any number of files."""
    return FileCase(
        name,
        "orders",
        lambda start: {key: content(start) for key, content in files.items()},
        lambda start: {stored(start, number, changes) for number, changes in stays.items()},
        lambda _: Counter(entries or {}),
        unsure,
    )


def one(name: str, key: str, content: Content, outcome: Outcome, unsure: str = "", *, alone: bool = False) -> FileCase:
    """A case of one hostile file. If that leaves no row, a good neighbour shows that the other files are committed."""
    files, stays = {key: content}, dict(outcome.keeps)
    if not stays and not alone:
        files[NEIGHBOUR] = lambda start: csv(start, (NEIGHBOUR_NUMBER,))
        stays[NEIGHBOUR_NUMBER] = {}
    return orders(name, files, stays, {(key, reason): count for reason, count in outcome.entries.items()}, unsure)


def rows(name: str, sent: Sequence[Sent], unsure: str = "", form: str = "csv") -> FileCase:
    """A case of one file in which every hostile row stands between two good ones."""
    hostile = {2 * index + 2: row for index, row in enumerate(sent)}
    numbers = range(1, 2 * len(sent) + 2)
    stays: dict[int, Changes] = {number: {} for number in numbers if number not in hostile}
    stays.update({number: row.becomes for number, row in hostile.items() if not isinstance(row.becomes, str)})
    entries = Counter((f"rows.{form}", row.becomes) for row in sent if isinstance(row.becomes, str))

    def content(start: datetime) -> bytes:
        cells = {number: hostile[number].cells if number in hostile else {} for number in numbers}
        if form == "jsonl":
            return join(json_line(start, number, cells[number]) for number in numbers)
        table = [[as_text(start, number, cells[number], column) for column in COLUMNS] for number in numbers]
        if form == "parquet":
            return parquet_of(
                pa.table(
                    {name: pa.array(v, pa.string()) for name, v in zip(COLUMNS, zip(*table, strict=True), strict=True)}
                )
            )
        return join([HEADER, *(line(cell or "" for cell in row) for row in table)])

    return orders(name, {f"rows.{form}": content}, stays, entries, unsure)


def as_text(start: datetime, number: int, cells: Mapping[str, Cell], column: str) -> str | None:
    """The cell of a column as text; None is null."""
    cell = cells.get(column, text(start, number)[column])
    if cell is None or isinstance(cell, str):
        return cell
    return cell(start) if callable(cell) else str(cell)
