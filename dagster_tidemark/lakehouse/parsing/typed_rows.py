"""Rows of typed formats, such as Parquet: batches that fit into memory, as values of the declared types or as texts.

A column is cast if its declared type represents all values without loss. The result is the same as if
`validation.typed` had cast the texts of the values. If one value does not fit, the whole column of that batch becomes
texts, so that only `validation` reports faults of rows. Does not belong here: reading files (`readers.parquet`), and
texts of values (`values`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.kernels import Mask, arrow_type
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, Rows
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.values import FIRST_DAY, LAST_DAY, PER_SECOND, far_time, texts_of

MOST_ROWS = 8192
"""Largest number of rows in a batch."""

MOST_BYTES = 32 << 20
"""Largest number of bytes in a batch. A single row may be larger."""

NO_TEXT = "not valid UTF-8: such bytes are shown as \\xNN; declare a column of other bytes than texts as binary"

_MICROSECONDS = pa.timestamp("us")
_A_DAY = 86_400_000_000  # microseconds
_KINDS_OF_BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


def rows_of_table(declared: DeclaredContent, table: pa.Table | pa.RecordBatch) -> Rows:
    """Return the rows of a table.

    Args:
        declared: The declared columns.
        table: Columns of the file, including all declared columns that the file has.

    Returns:
        Each declared column as values of its type, or as texts. A row with invalid text is faulty and has no values.
        In a column that is declared as text, an empty text is a missing value.

    Raises:
        Unusable: values of a column's type cannot be written as texts.
    """
    found = {c: _plain(table.column(name)) for c, name in declared.found_in(table.schema.names).items()}
    columns, wrong = {}, np.zeros(table.num_rows, np.bool_)
    for c, kind in declared.columns.items():
        values = (
            _values(found[c], arrow_type(kind), declared.is_exact)
            if c in found
            else pa.nulls(table.num_rows, arrow_type(kind))
        )
        if values is None:
            values = _texts(c, found[c], kind)
            wrong |= _invalid(values)
        columns[c] = values
    records = faults = None
    if wrong.any():
        # The record of a faulty row shows all columns, including typed columns.
        faulty = pa.array(np.flatnonzero(wrong))
        texts = {c: _texts(c, column.take(faulty), declared.columns[c]) for c, column in found.items()}
        records, faults = _at(wrong, _records_of(texts)), _at(wrong, [NO_TEXT] * len(faulty))
        columns = {c: _without(wrong, column) for c, column in columns.items()}
    columns = {c: _as_declared(column, declared.columns[c]) for c, column in columns.items()}
    return Rows(columns, table.num_rows, records, faults)


def texts_of_column(column: pa.Array, kind: str) -> pa.Array:
    """Return the texts of a column for a declared type. A text may be invalid UTF-8.

    Raises:
        pa.ArrowNotImplementedError: values of this type cannot be written as texts.
    """
    column = _plain(column)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _texts_of_days(column, as_written=kind == "string")
    if kind == "string" or pa.types.is_nested(column.type) or pa.types.is_decimal(column.type):
        return texts_of(column)
    # Arrow's form of a number is good enough, because the exact rule reads any form.
    return pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


def _invalid(texts: pa.Array) -> Mask:
    """Return a mask of the texts that are not valid UTF-8."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([b is not None and _shown(b).encode() != b for b in texts.cast(pa.binary()).to_pylist()])
    return np.zeros(len(texts), np.bool_)


def _shown(text: bytes) -> str:
    """Return the bytes of a text in a readable form, even if they are invalid UTF-8."""
    return text.decode(errors="backslashreplace")


def _records_of(texts: dict[str, pa.Array]) -> list[str]:
    """Return rows as JSON objects. Invalid bytes are shown as \\xNN."""
    rows = zip(*(column.cast(pa.binary()).to_pylist() for column in texts.values()), strict=True)
    return [
        json.dumps(
            {c: _shown(text) for c, text in zip(texts, row, strict=True) if text is not None},
            separators=(",", ":"),
            ensure_ascii=False,
        )
        for row in rows
    ]


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column without dictionary encoding, extension type or chunks."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    # Arrow has few functions for the following types.
    if pa.types.is_binary_view(column.type):
        return column.cast(pa.binary())
    if pa.types.is_decimal(column.type) and column.type.bit_width < 128:
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


def _values(column: pa.Array, target: pa.DataType, is_exact: bool) -> pa.Array | None:
    """Return a column in a declared type; None if the cast would change a value, or if the types do not correspond.

    Args:
        is_exact: True if nanoseconds must not be cut off. `validation` rejects their texts.
    """
    kind = column.type
    try:
        if pa.types.is_null(kind):
            return pa.nulls(len(column), target)
        if pa.types.is_binary(target):  # any bytes, even if they are no text
            return column.cast(target) if any(is_kind(kind) for is_kind in _KINDS_OF_BYTES) else None
        if pa.types.is_boolean(kind) or pa.types.is_floating(kind):
            # The float 0.1 is 0.1 as a text, but 0.10000000149 as a double. The double 1e39 is infinite as a float.
            return column if kind == target else None
        if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
            return _from_integers(column, target)
        if pa.types.is_decimal(kind):
            return _rescaled(column, target) if pa.types.is_decimal(target) else None
        if pa.types.is_date(kind):
            days = column.cast(pa.date32())
            return _from_days(days, target) if _is_within(days.view(pa.int32()), FIRST_DAY, LAST_DAY) else None
        if pa.types.is_timestamp(kind):
            if is_exact and _nanoseconds(column).any():
                return None
            return _from_times(_floored(column), target)
    except pa.ArrowInvalid:  # a value does not fit
        return None
    return None


def _from_integers(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    is_decimal = pa.types.is_decimal(column.type)
    if pa.types.is_integer(target):
        return column.cast(target)
    if pa.types.is_floating(target):
        return None if is_decimal else column.cast(target)
    if pa.types.is_decimal(target):
        return _rescaled(column if is_decimal else column.cast(pa.decimal128(20, 0)), target)
    return None


def _rescaled(column: pa.Array, target: pa.DataType) -> pa.Array | None:
    # Arrow reports lost digits after the point, but not always an overflow before the point: it casts 2147483648 to a
    # wrong decimal(38,38).
    limit = Decimal(10) ** (target.precision - target.scale)
    bounds = pc.min_max(column)
    is_within = not bounds["min"].is_valid or -limit < bounds["min"].as_py() <= bounds["max"].as_py() < limit
    return column.cast(target) if is_within else None


def _from_days(days: pa.Array, target: pa.DataType) -> pa.Array | None:
    if pa.types.is_date(target):
        return days
    return days.cast(_MICROSECONDS).view(target) if pa.types.is_timestamp(target) else None


def _from_times(times: pa.Array, target: pa.DataType) -> pa.Array | None:
    since = times.view(pa.int64())
    if not _is_within(since, FIRST_DAY * _A_DAY, (LAST_DAY + 1) * _A_DAY - 1):
        return None
    if pa.types.is_timestamp(target):
        return times.view(target)
    if pa.types.is_date(target):
        # A cast to a date loses the time of day. `Feed.exact` must see and refuse such a value as text.
        days = times.cast(pa.date32())
        return days if days.cast(_MICROSECONDS).equals(times) else None
    return None


def _is_within(numbers: pa.Array, least: int, most: int) -> bool:
    bounds = pc.min_max(numbers)
    return not bounds["min"].is_valid or (bounds["min"].as_py() >= least and bounds["max"].as_py() <= most)


def _floored(times: pa.Array) -> pa.Array:
    """Return times in microseconds, rounded down. Rounding up could move a time into the next hour.

    Raises:
        pa.ArrowInvalid: a time is out of range.
    """
    # Integer arithmetic needs no time zone database. Workers may lack one, and files may name unknown zones.
    if times.type.unit != "ns":
        return times.view(pa.timestamp(times.type.unit)).cast(_MICROSECONDS)
    numbers = times.view(pa.int64())
    mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    whole = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000)
    return pa.array(whole, pa.int64(), mask=mask).view(_MICROSECONDS)


def _nanoseconds(times: pa.Array) -> npt.NDArray[np.int64]:
    """Return the nanoseconds of each time that remain after its microseconds: from 0 to 999."""
    if not pa.types.is_timestamp(times.type) or times.type.unit != "ns":
        return np.zeros(len(times), np.int64)
    rest: npt.NDArray[np.int64] = times.view(pa.int64()).fill_null(0).to_numpy() % 1000
    return rest


def _texts_of_days(column: pa.Array, *, as_written: bool) -> pa.Array:
    """Return the texts of dates and times. A time without a zone is in UTC."""
    per_day = 1
    if pa.types.is_date(column.type):
        column = column.cast(pa.date32())
    else:
        per_day = PER_SECOND[column.type.unit] * 86_400
    numbers = column.view(pa.int32() if per_day == 1 else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    days, in_day = numbers // per_day, numbers % per_day
    is_far = (days < FIRST_DAY) | (days > LAST_DAY)
    near = pc.if_else(pa.array(is_far), pa.scalar(None, column.type), column) if is_far.any() else column
    if per_day > 1:
        near = _floored(near).view(pa.timestamp("us", "UTC"))
    texts = texts_of(near) if as_written else pc.cast(near, pa.string())
    if (nanos := _nanoseconds(column)).any():
        rest = pa.array([f"{n:03}".rstrip("0") + ("" if as_written else "Z") for n in nanos.tolist()])
        whole = pc.replace_substring(pc.cast(near, pa.string()), "Z", "")
        texts = pc.if_else(pa.array(nanos > 0), pc.binary_join_element_wise(whole, rest, ""), texts)
    if not is_far.any():
        return texts
    # Arrow writes wrong years outside the range of FIRST_DAY to LAST_DAY.
    far = [
        far_time(day, None if per_day == 1 else rest * _A_DAY // per_day)
        for day, rest in zip(days[is_far].tolist(), in_day[is_far].tolist(), strict=True)
    ]
    return pc.replace_with_mask(texts, pa.array(is_far), pa.array(far, pa.string()))


def _as_declared(column: pa.Array, kind: str) -> pa.Array:
    """Return a column of texts as a string or binary column, if one is declared: empty texts as null."""
    if not pa.types.is_string(column.type):
        return column
    if kind == "binary":
        return column.cast(pa.binary())
    is_empty = pc.equal(pc.binary_length(column), 0)
    return pc.if_else(is_empty, None, column) if kind == "string" and is_empty.true_count else column


def _without(faulty: Mask, column: pa.Array) -> pa.Array:
    """Return a column with null in faulty rows."""
    # Arrow's functions for texts expect valid UTF-8.
    values = column.view(pa.binary()) if pa.types.is_string(column.type) else column
    return pc.if_else(pa.array(faulty), pa.scalar(None, values.type), values).cast(column.type)


def _at(rows: Mask, texts: list[str]) -> pa.Array:
    """Return a column with texts in some rows and nulls in the others."""
    return pc.replace_with_mask(pa.nulls(len(rows), pa.string()), pa.array(rows), pa.array(texts, pa.string()))


def joined(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join small consecutive pieces to batches of up to `MOST_ROWS` rows and `MOST_BYTES` bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if held and (rows + piece.num_rows > MOST_ROWS or size + piece.nbytes > MOST_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield pa.Table.from_batches(held)
