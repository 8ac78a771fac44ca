"""Partitioning of a table: columns that determine the partition of a row, by time, by a key, or by several dimensions.

A partition key is a text from Dagster. Rows have column values instead, such as the start of a window or a region.
Belongs here: the conversion between keys and values, in Python and in SQL. Does not belong here: the list of
partitions, which Dagster's definition has.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from dagster_tidemark.sources.layout import SEPARATOR
from dagster_tidemark.sources.times import FORMATS

_JAVA = {"%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss"}
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""Arbitrary time to measure the length of keys: in one format, all times have the same number of characters."""

Of = Callable[[str], str]
"""Function from a column's name to the SQL expression for the column."""

Value = str | date | datetime
"""Value of a partition column. A time is in UTC."""


@dataclass(frozen=True)
class ByTime:
    """Partitioning by time windows. The column has the start of the window.

    Args:
        column: A timestamp column has the instant (UTC). A date column has the day in the definition's time zone.
        format: Format of the partition keys, the definition's `fmt`, with `%Y %m %d %H %M %S` and text. The default for
            a timestamp column is the format of hours; for a date column, the format of days, weeks and months.
        timezone: Time zone of the definition, if the column is a timestamp.
    """

    column: str
    format: str | None = None
    timezone: str = "UTC"

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return (self.column,)

    def require(self, table: str, types: Mapping[str, str]) -> None:
        """Check the type of the column, and the format.

        Raises:
            ValueError: the type or the format is not supported; the message names the table.
        """
        if types.get(self.column) not in ("timestamp", "date"):
            raise ValueError(
                f"table {table}: partitioned by {self.column}, which must be a timestamp or date column; "
                "for keys that are not times, use ByKey"
            )
        _java_pattern(table, self.format_of(types))

    def values(self, key: str, types: Mapping[str, str]) -> dict[str, Value]:
        """Return the value of each column for a partition key."""
        form = self.format_of(types)
        try:
            start = datetime.strptime(key, form).replace(tzinfo=ZoneInfo(self.timezone))
        except ValueError:
            start = datetime.strptime(key, f"{form}%z")  # when clocks go back, the key of the second hour has an offset
        return {self.column: start.date() if types[self.column] == "date" else start.astimezone(UTC)}

    def key_sql(self, types: Mapping[str, str], of: Of) -> str:
        """Return a SQL expression for the partition key of a row."""
        column, form = of(self.column), self.format_of(types)
        pattern = _java_pattern("", form)
        if not self._has_own_zone(types):
            return f"date_format({column}, '{pattern}')"
        local = f"from_utc_timestamp({column}, '{self.timezone}')"
        if "%H" not in form:
            return f"date_format({local}, '{pattern}')"
        # When clocks go back, two hours have the same local time. Dagster adds an offset to the key of the second hour.
        # The conversion to UTC returns the first hour, which shows if a row is in the second one.
        minutes = f"CAST((unix_timestamp({local}) - unix_timestamp({column})) / 60 AS INT)"
        sign = f"if({minutes} < 0, '-', '+')"
        offset = f"format_string('%s%02d%02d', {sign}, abs({minutes}) DIV 60, abs({minutes}) % 60)"
        is_first = f"to_utc_timestamp({local}, '{self.timezone}') = {column}"
        return f"concat(date_format({local}, '{pattern}'), if({is_first}, '', {offset}))"

    def values_sql(self, key: str, types: Mapping[str, str]) -> dict[str, str]:
        """Return SQL expressions that compute the partition columns from a column with a partition key."""
        form, kind = self.format_of(types), types[self.column]
        if form == FORMATS["timestamp"]:
            # A cast is used, because parsing with a pattern takes ten times as long.
            start = f"CAST(concat(left({key}, 10), ' ', substr({key}, 12)) AS TIMESTAMP)"
        elif form == FORMATS["date"]:
            start = f"to_date({key})" if kind == "date" else f"CAST({key} AS TIMESTAMP)"
        else:
            start = f"to_timestamp({key}, '{_java_pattern('', form)}')"
        if kind == "date":
            return {self.column: start if start.startswith("to_date") else f"CAST({start} AS DATE)"}
        if not self._has_own_zone(types):
            return {self.column: start}
        instant = f"to_utc_timestamp({start}, '{self.timezone}')"
        if "%H" in form:
            second = f"to_timestamp({key}, '{_java_pattern('', form)}xx')"
            has_offset = f"length({key}) > {len(_ANY_TIME.strftime(form))}"
            instant = f"if({has_offset}, {second}, {instant})"
        return {self.column: instant}

    def _has_own_zone(self, types: Mapping[str, str]) -> bool:
        """Return True if the keys are in a different time zone than the column, which is in UTC."""
        return types[self.column] == "timestamp" and self.timezone != "UTC"

    def format_of(self, types: Mapping[str, str]) -> str:
        """Return the format of the partition keys."""
        return self.format or FORMATS[types[self.column]]


@dataclass(frozen=True)
class ByKey:
    """Partitioning by static or dynamic keys. The column has the key itself."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return (self.column,)

    def require(self, table: str, types: Mapping[str, str]) -> None:
        """Check that the column exists and is a string.

        Raises:
            ValueError: the check failed; the message names the table and the column.
        """
        if types.get(self.column) != "string":
            raise ValueError(f"table {table}: {self.column}, which holds its partition keys, must be a string column")

    def values(self, key: str, types: Mapping[str, str]) -> dict[str, Value]:
        """Return the value of each column for a partition key."""
        return {self.column: key}

    def key_sql(self, types: Mapping[str, str], of: Of) -> str:
        """Return a SQL expression for the partition key of a row."""
        return of(self.column)

    def values_sql(self, key: str, types: Mapping[str, str]) -> dict[str, str]:
        """Return SQL expressions that compute the partition columns from a column with a partition key."""
        return {self.column: key}


@dataclass(frozen=True)
class ByDimensions:
    """Multi-dimensional partitioning. Each dimension of the definition has its own column."""

    dimensions: Mapping[str, ByTime | ByKey]

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns, sorted by the names of the dimensions, as Dagster orders the parts of a key."""
        return tuple(by.column for _, by in sorted(self.dimensions.items()))

    def require(self, table: str, types: Mapping[str, str]) -> None:
        """Check that there are several dimensions with separate columns, and check each dimension.

        Raises:
            ValueError: a check failed; the message names the table.
        """
        if len(self.dimensions) < 2 or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"table {table}: ByDimensions needs at least two dimensions, each with its own column")
        for by in self.dimensions.values():
            by.require(table, types)

    def values(self, key: str, types: Mapping[str, str]) -> dict[str, Value]:
        """Return the value of each column for a partition key."""
        parts = key.split(SEPARATOR)
        if len(parts) != len(self.dimensions):
            raise ValueError(
                f"{key!r} has {len(parts)} parts, expected one for each of {', '.join(sorted(self.dimensions))}"
            )
        found: dict[str, Value] = {}
        for part, (_, by) in zip(parts, sorted(self.dimensions.items()), strict=True):
            found |= by.values(part, types)
        return found

    def key_sql(self, types: Mapping[str, str], of: Of) -> str:
        """Return a SQL expression for the partition key of a row."""
        parts = [by.key_sql(types, of) for _, by in sorted(self.dimensions.items())]
        return f"concat_ws('{SEPARATOR}', {', '.join(parts)})"

    def values_sql(self, key: str, types: Mapping[str, str]) -> dict[str, str]:
        """Return SQL expressions that compute the partition columns from a column with a partition key."""
        found: dict[str, str] = {}
        for place, (_, by) in enumerate(sorted(self.dimensions.items())):
            found |= by.values_sql(f"split({key}, '[{SEPARATOR}]')[{place}]", types)
        return found


Partitioning = ByTime | ByKey | ByDimensions


def partitioning_of(declared: str | Partitioning | None) -> Partitioning | None:
    """Return the partitioning that a table declares. The name of a column means `ByTime` of that column."""
    return ByTime(declared) if isinstance(declared, str) else declared


def condition(partitions: Sequence[Mapping[str, Value]], of: Of) -> str:
    """Return a SQL condition that is true for rows of some partitions.

    Args:
        partitions: Values of the partition columns, one mapping per partition.
    """
    rows = [{column: _literal(value) for column, value in values.items()} for values in partitions]
    first, *others = list(rows[0])
    pruned = [_range(of(column), [row[column] for row in rows]) for column in rows[0]]
    if not others:
        return _all([*pruned, _one_of(of(first), [row[first] for row in rows])])
    by_others: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        by_others.setdefault(tuple(row[c] for c in others), []).append(row[first])
    exact = [
        _all([_one_of(of(first), mine), *(f"{of(c)} = {v}" for c, v in zip(others, theirs, strict=True))])
        for theirs, mine in sorted(by_others.items())
    ]
    return _all([*pruned, f"({' OR '.join(f'({each})' for each in exact)})"])


def _range(column: str, values: Collection[str]) -> str:
    """Return a range condition that is true for all values; empty for texts, which are ordered differently.

    To prune files, Iceberg needs one comparison per file for a range, but one per literal for a long IN.
    """
    is_text = any(value.startswith("'") for value in values)
    return "" if is_text else f"{column} BETWEEN {min(values)} AND {max(values)}"


def _all(conditions: Iterable[str]) -> str:
    return " AND ".join(filter(None, conditions))


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}'"
    return f"DATE '{value:%Y-%m-%d}'" if isinstance(value, date) else text_literal(value)


def text_literal(text: str) -> str:
    """Return a text as a SQL literal, with escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _one_of(column: str, values: Collection[str]) -> str:
    return f"{column} IN ({', '.join(sorted(set(values)))})"


def _java_pattern(table: str, form: str) -> str:
    """Return Spark's pattern for a Dagster `fmt`.

    Raises:
        ValueError: the format has an unknown directive.
    """
    parts: list[str] = []
    for part in _split(form):
        if part.startswith("%"):
            if part not in _JAVA:
                raise ValueError(
                    f"table {table}: unknown directive {part} in the format {form!r}; use {', '.join(_JAVA)}"
                )
            parts.append(_JAVA[part])
        else:
            # Letters are quoted, and the quotes are escaped, because the pattern becomes part of a SQL literal.
            parts.append("".join(f"\\'{c}\\'" if c.isalpha() else c for c in part))
    return "".join(parts)


def _split(form: str) -> Iterable[str]:
    at = 0
    while at < len(form):
        size = 2 if form[at] == "%" else 1
        yield form[at : at + size]
        at += size
