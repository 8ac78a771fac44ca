"""Generates a table's three modules: schema, transform and asset. The transform counts rows, as a starting point."""

from collections.abc import Mapping, Sequence

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.table import LINEAGE, Table
from dagster_tidemark.scaffold.python_text import fitted, literal, require_name

_GRAINS = {
    "hour": ("HOURS", "timestamp", 'F.date_trunc("HOUR", "{}")'),
    "day": ("DAYS", "date", 'F.to_date("{}")'),
    "week": ("WEEKS", "date", 'F.to_date(F.date_trunc("WEEK", "{}"))'),
    "month": ("MONTHS", "date", 'F.to_date(F.date_trunc("MONTH", "{}"))'),
}
BY = (*_GRAINS, "none")
"""The grains by which a new table can be partitioned, and `none`."""
_LONG = 50


class NoInput(Terminal):
    """The input is not a declared table, or lacks a requested column. The message lists the existing ones."""


def table_modules(name: str, source: Table, by: str, key: tuple[str, ...], *, package: str) -> Mapping[str, str]:
    """Return the Python text of each module, by its path below the package.

    Args:
        name: The table's name, in the namespace `marts`.
        source: The table whose rows are counted.
        by: One of `BY`.
        key: Columns of the source that identify a row of the new table, together with the partition.
        package: The code location's package.

    Raises:
        NoModule: the name is not an identifier.
        NoInput: the source lacks a key column, or has no time column for the partitions.
    """
    require_name(name, "table")
    if missing := [column for column in key if column not in source.columns]:
        raise NoInput(f"{source.name} has no column {', '.join(missing)}; it has {', '.join(source.columns)}")
    if not key and by == "none":
        raise NoInput("give --key, --by, or both: they say what one row of the table is")
    names = _Names(name, source, by, key, package)
    return {
        f"schemas/{name}.py": _schema(names),
        f"transforms/{name}.py": _transform(names),
        f"assets/marts/{name}.py": _asset(names),
    }


class _Names:
    def __init__(self, name: str, source: Table, by: str, key: tuple[str, ...], package: str) -> None:
        self.name, self.package, self.source = name, package, source
        self.input = source.name.rpartition(".")[2]
        self.source_key = source.name.replace(".", "/")
        cut = [] if by == "none" else [by]
        self.row_key = tuple(dict.fromkeys([*cut, *key]))
        self.by = by if cut else None
        self.one_row = f"{_in_words(self.row_key)}: how many rows of {self.source_key} it has"
        grain = _GRAINS.get(by)
        self.definition = grain[0] if grain else None
        self.columns = ({by: grain[1]} if grain else {}) | {c: source.columns[c] for c in key}
        self.cut_sql = grain[2].format(_time_column(source, by)) if grain else None
        self.same_grain = self.by is not None and source.partition_columns == (by,)


def _in_words(columns: Sequence[str]) -> str:
    """Return the names of columns for the generated docstring, as many as fit into one line."""
    words = [column.replace("_", " ") for column in columns]
    told = [word for n, word in enumerate(words) if n == 0 or len(" and ".join(words[: n + 1])) <= _LONG]
    return " and ".join([*told, *(["so on"] if len(told) < len(words) else [])])


def _time_column(source: Table, by: str) -> str:
    """Return the source's column with the time of a row: the partition column, or else the first time column.

    Raises:
        NoInput: the source has no such column.
    """
    own = [c for c in (*source.partition_columns, *source.columns) if c not in LINEAGE]
    times = [c for c in own if source.columns[c] in ("timestamp", "date")]
    times = [c for c in times if by != "hour" or source.columns[c] == "timestamp"]
    if not times:
        raise NoInput(f"{source.name} has no time column to partition by {by}; give --by none for one table")
    return times[0]


def _schema(of: _Names) -> str:
    columns = {**of.columns, "rows": "bigint"}
    lines = [
        f'"""marts/{of.name}: its columns and row key."""',
        "",
        "from dagster_tidemark import Table",
        "",
        f"{of.name.upper()} = Table(",
        f'    name="marts.{of.name}",',
        "    columns={",
        *(f"        {literal(column)}: {literal(kind)}," for column, kind in columns.items()),
        "    },",
        *([f'    partitioned_by="{of.by}",'] if of.by else []),
        *fitted("row_key=(", [*map(literal, of.row_key)], "),"),
        f'    comment="{of.one_row[:1].upper()}{of.one_row[1:]}",',
        ")",
        "",
    ]
    return "\n".join(lines)


def _transform(of: _Names) -> str:
    keys = [f'{of.cut_sql}.alias("{of.by}")'] if of.cut_sql and not of.same_grain else []
    keys += [f"F.col({literal(column)})" for column in of.row_key if not (keys and column == of.by)]
    lines = [
        f'"""marts/{of.name}: how it is computed."""',
        "",
        "from dagster_tidemark import shaped_as",
        "from pyspark.sql import DataFrame",
        "from pyspark.sql import functions as F",
        "",
        f"from {of.package}.schemas.{of.name} import {of.name.upper()}",
        "",
        "",
        f"def {of.name}({of.input}: DataFrame) -> DataFrame:",
        f'    """One row per {of.one_row}."""',
        *fitted("by = [", keys, "]"),
        f'    counted = {of.input}.groupBy(*by).agg(F.count(F.lit(1)).alias("rows"))',
        f"    return shaped_as(counted, {of.name.upper()}.columns)",
        "",
    ]
    return "\n".join(lines)


def _asset(of: _Names) -> str:
    lines = [
        f'"""marts/{of.name}."""',
        "",
        "from datetime import timedelta",
        "",
        "from dagster_tidemark import table_asset",
        "from pyspark.sql import DataFrame",
        "",
        *([f"from {of.package}.partitions import {of.definition}"] if of.definition else []),
        f"from {of.package}.schemas.{of.name} import {of.name.upper()}",
        f"from {of.package}.transforms import {of.name} as transform",
        "",
        "",
        "@table_asset(",
        f"    {of.name.upper()},",
        f'    ins={{"{of.input}": "{of.source_key}"}},',
        *([f"    partitions={of.definition},"] if of.definition else []),
        "    fresh=timedelta(hours=1),",
        '    code_version="1",',
        ")",
        f"def {of.name}({of.input}: DataFrame) -> DataFrame:",
        f'    """One row per {of.one_row}."""',
        f"    return transform.{of.name}({of.input})",
        "",
    ]
    return "\n".join(lines)
