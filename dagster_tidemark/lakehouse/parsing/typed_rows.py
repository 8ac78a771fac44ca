"""Columns of typed formats, such as Parquet: values of the declared types, or texts.

A value stays a value if the declared type holds it without loss. It then means what its text means to
`validation.typed`. If one value of a column does not fit, the whole column of that batch becomes texts: errors of rows
are found, and worded, in one place. Does not belong here: how a format's files are read (`parquet_rows`), and which
text a number or a list becomes (`values`).
"""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.kernels import Mask, arrow_type
from dagster_tidemark.lakehouse.parsing.rows import Declared, Rows
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.text import not_valid
from dagster_tidemark.lakehouse.readers.values import is_nested, texts_of

_MICROSECONDS = pa.timestamp("us")
# The years 1 to 9999, which a date of ten characters can say. Further ones are for the exact rule.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_A_DAY = 86_400_000_000  # microseconds
_FOUR_CENTURIES = 146_097  # days, after which the calendar repeats itself
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def rows_of_table(declared: Declared, table: pa.Table | pa.RecordBatch) -> Rows:
    """Rows of a format with types.

    Args:
        declared: The declared columns.
        table: The file's columns, at least those of the declared ones that it has.

    Returns:
        Each declared column, as values of its type or as texts. A row with bytes that are no text has a fault, and no
        values. An empty text of a column of texts is a missing value.

    Raises:
        Unusable: a type has no texts.
    """
    found = {c: _plain(table.column(c)) for c in declared.columns if c in table.schema.names}
    columns, wrong = {}, np.zeros(table.num_rows, np.bool_)
    for c, kind in declared.columns.items():
        if c not in found:
            columns[c] = pa.nulls(table.num_rows, arrow_type(kind))
            continue
        values = _values(found[c], arrow_type(kind))
        if values is None:
            values = _texts(c, found[c], kind)
            if not _is_text(values):
                wrong |= _is_no_text(values)
            elif kind == "string":
                values = _without_empty(values)
            elif kind == "binary":
                values = pc.ascii_trim(values, characters=" ").cast(pa.binary())  # as the exact rule does
        columns[c] = values
    if not wrong.any():
        return Rows(columns, table.num_rows)
    # The record of a row has the texts of all its columns, typed ones too.
    faulty = pa.array(np.flatnonzero(wrong))
    texts = {c: _texts(c, column.take(faulty), declared.columns[c]) for c, column in found.items()}
    right = pa.array(~wrong)
    columns = {c: _only(right, column, declared.columns[c]) for c, column in columns.items()}
    return Rows(
        columns,
        table.num_rows,
        records=_spread(faulty, _records_of(texts), table.num_rows),
        faults=_spread(faulty, [not_valid("utf-8")] * len(faulty), table.num_rows),
    )


def texts_of_column(column: pa.Array, kind: str) -> pa.Array:
    """The texts of a column for a declared type; bytes that are no text may be among them.

    Raises:
        pa.ArrowNotImplementedError: values of this type have no texts.
    """
    column = _plain(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _texts_of_days(column, as_written=kind == "string")
    if kind == "string" or is_nested(column.type) or pa.types.is_decimal(column.type):
        return texts_of(column)
    # Which text a number has makes no difference here.
    return pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


def _is_text(column: pa.Array) -> bool:
    """True if each text of a column is valid UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _shown(column: pa.Array) -> list[tuple[str | None, bool]]:
    """The texts of a column so that a person can read them, and whether they are none."""
    found: list[tuple[str | None, bool]] = []
    for value in column.cast(pa.binary()).to_pylist():
        text = None if value is None else value.decode(errors="backslashreplace")
        found.append((text, text is not None and text.encode() != value))
    return found


def _records_of(texts: dict[str, pa.Array]) -> list[str]:
    """Rows as JSON objects. Bytes that are not valid UTF-8 are shown as \\xNN."""
    rows = zip(*([text for text, _ in _shown(column)] for column in texts.values()), strict=True)
    return [
        json.dumps(
            {c: text for c, text in zip(texts, row, strict=True) if text is not None},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        for row in rows
    ]


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column without dictionary encoding, extension type or chunks."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:  # Arrow computes little with these
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column


def _texts(name: str, column: pa.Array, kind: str) -> pa.Array:
    try:
        return texts_of_column(column, kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise Unusable(
            "unreadable",
            f"column {name} has the type {column.type}, which is not read; write it as a text or a number: {error}",
        ) from error


def _values(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    """The values of a column in a declared type. None if one value would change, or the types do not correspond."""
    kind = column.type
    try:
        if pa.types.is_null(kind):
            return pa.nulls(len(column), target)
        if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
            # 0.1 of four bytes is 0.1 as a text, but not of eight; and infinity is what 1e39 is of four.
            return column if kind == target else None
        if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
            return _of_whole(column, target)
        if pa.types.is_decimal(kind):
            return _rescaled(column, target) if pa.types.is_decimal(target) else None
        if pa.types.is_date(kind):
            days = column.cast(pa.date32())
            return _of_days(days, target) if _is_within(days.view(pa.int32()), _FIRST_DAY, _LAST_DAY) else None
        if pa.types.is_timestamp(kind):
            return _of_times(_floored(column), target)
    except pa.ArrowInvalid:  # a value does not fit
        return None
    return None


def _of_whole(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    is_decimal = pa.types.is_decimal(column.type)
    if pa.types.is_integer(target):
        return column.cast(target)
    if pa.types.is_floating(target):
        return None if is_decimal else column.cast(target)
    if pa.types.is_decimal(target):
        return _rescaled(column if is_decimal else column.cast(pa.decimal128(20, 0)), target)
    return None


def _rescaled(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    # Arrow finds digits that are lost behind the point, but not always an overflow before it: 2147483648 becomes some
    # number of decimal(38,38).
    limit = Decimal(10) ** (target.precision - target.scale)
    bounds = pc.min_max(column)
    is_within = not bounds["min"].is_valid or -limit < bounds["min"].as_py() <= bounds["max"].as_py() < limit
    return column.cast(target) if is_within else None


def _of_days(days: pa.Array, target: pa.DataType) -> pa.Array | None:
    if pa.types.is_date(target):
        return days
    return days.cast(_MICROSECONDS).view(target) if pa.types.is_timestamp(target) else None


def _of_times(times: pa.Array, target: pa.DataType) -> pa.Array | None:
    since = times.view(pa.int64())
    if not _is_within(since, _FIRST_DAY * _A_DAY, (_LAST_DAY + 1) * _A_DAY - 1):
        return None
    if pa.types.is_timestamp(target):
        return times.view(target)
    if pa.types.is_date(target):
        # A date loses the time of day, and `Feed.exact` refuses that.
        days = times.cast(pa.date32())
        return days if days.cast(_MICROSECONDS).equals(times) else None
    return None


def _is_within(numbers: pa.Array, least: int, most: int) -> bool:
    bounds = pc.min_max(numbers)
    return not bounds["min"].is_valid or (bounds["min"].as_py() >= least and bounds["max"].as_py() <= most)


def _floored(times: pa.Array) -> pa.Array:
    """Times in microseconds. Cut, never rounded: an hour does not end early.

    Raises:
        pa.ArrowInvalid: one is too far away.
    """
    # Integer arithmetic needs no time zone database. Workers may lack it, and files may name unknown zones.
    if times.type.unit != "ns":
        return times.view(pa.timestamp(times.type.unit)).cast(_MICROSECONDS)
    numbers = times.view(pa.int64())
    mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    whole = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000)
    return pa.array(whole, pa.int64(), mask=mask).view(_MICROSECONDS)


def _texts_of_days(column: pa.Array, *, as_written: bool) -> pa.Array:
    """Texts of dates and times. Without a zone a time is in UTC."""
    per_day = 1
    if pa.types.is_date(column.type):
        column = column.cast(pa.date32())
    else:
        per_day = _PER_SECOND[column.type.unit] * 86_400
    numbers = column.view(pa.int32() if per_day == 1 else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    days, in_day = numbers // per_day, numbers % per_day
    is_far = (days < _FIRST_DAY) | (days > _LAST_DAY)
    near = pc.if_else(pa.array(is_far), pa.scalar(None, column.type), column) if is_far.any() else column
    if per_day > 1:
        near = _floored(near).view(pa.timestamp("us", "UTC"))
    texts = texts_of(near) if as_written else pc.cast(near, pa.string())
    if not is_far.any():
        return texts
    # Arrow keeps a year in two bytes and writes wrong ones for later years.
    far = [
        _far(day, None if per_day == 1 else rest * _A_DAY // per_day)
        for day, rest in zip(days[is_far].tolist(), in_day[is_far].tolist(), strict=True)
    ]
    return pc.replace_with_mask(texts, pa.array(is_far), pa.array(far, pa.string()))


def _far(days: int, micros: int | None) -> str:
    """A date or time outside the years 1 to 9999, as Spark writes it."""
    cycles, rest = divmod(days - _FIRST_DAY, _FOUR_CENTURIES)
    day = date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    text = f"{sign}{abs(year):04}-{day.month:02}-{day.day:02}"
    if micros is None:
        return text
    seconds, micros = divmod(micros, 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{text} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _without_empty(texts: pa.Array) -> pa.Array:
    is_empty = pc.equal(pc.binary_length(texts), 0)
    return pc.if_else(is_empty, pa.scalar(None, texts.type), texts) if is_empty.true_count else texts


def _is_no_text(texts: pa.Array) -> Mask:
    return np.array([is_none for _, is_none in _shown(texts)], np.bool_)


def _only(right: pa.Array, column: pa.Array, kind: str) -> pa.Array:
    """A column without the values of rows that have a fault."""
    if pa.types.is_string(column.type):
        # Arrow's functions for texts expect valid UTF-8.
        column = pc.if_else(right, column.view(pa.binary()), pa.scalar(None, pa.binary())).cast(pa.string())
        if kind == "string":
            return _without_empty(column)
        return pc.ascii_trim(column, characters=" ").cast(pa.binary()) if kind == "binary" else column
    return pc.if_else(right, column, pa.scalar(None, column.type))


def _spread(rows: pa.Array, values: list[str], count: int) -> pa.Array:
    """A column with values in some rows and nulls in the others."""
    found: list[str | None] = [None] * count
    for row, value in zip(rows.to_pylist(), values, strict=True):
        found[row] = value
    return pa.array(found, pa.string())
