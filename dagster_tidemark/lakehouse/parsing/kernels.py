"""Vectorised casts of text columns to types.

A text in plain form (`-12`, `0.50`, `2026-03-01T10:00:00Z`) means the same to Arrow and to Spark's casts. Arrow casts
such texts. The exact rule in Spark, `validation.typed`, casts all others. So a value does not depend on the values
around it. Does not belong here: faults of rows.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_ZONE = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)"
# Years from 1000 to 2999. The exact rule handles other years.
_DAY = r"[12]\d{3}-\d{2}-\d{2}"
_LOCAL = rf"{_DAY}[ T]\d{{2}}:\d{{2}}:\d{{2}}(?:\.\d{{1,6}})?"
_FEW = 64  # number of values that go to the exact rule together if Arrow cannot cast one of them
_MINUS, _POINT, _ZERO = ord("-"), ord("."), ord("0")


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type for the name of a type in Spark."""
    if found := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    return _TYPES[kind]


_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),  # only for the column `_texts`: feeds declare no lists
}


def typed(text: pa.Array, kind: str) -> tuple[pa.Array, Mask | None]:
    """Cast a column of texts to a declared type.

    Args:
        text: Strings. A missing value is null.
        kind: Name of the type in Spark.

    Returns:
        The values, and a mask of the texts that could not be cast because they are not in plain form. Their values are
        null. The mask is None if all texts are in plain form.
    """
    if kind == "string":
        lengths = pc.binary_length(text)
        return pc.if_else(pc.equal(lengths, 0), None, text) if pc.min(lengths).as_py() == 0 else text, None
    target = arrow_type(kind)
    plain = _plain(text, target)
    if plain is None:
        wrong = np.zeros(len(text), np.bool_)
        return _cast(text, target, wrong), wrong if wrong.any() else None
    missing = _is_null(text)
    wrong = ~plain & ~missing if missing is not None else ~plain
    if wrong.any():
        text = pc.if_else(pa.array(wrong), pa.scalar(None, text.type), text)
    values = _cast(text, target, wrong)
    return values, wrong if wrong.any() else None


def _plain(text: pa.Array, target: pa.DataType) -> Mask | None:
    """Return a mask of the texts in the plain form of a type; None if all texts are. It is undefined for nulls."""
    if pa.types.is_integer(target):
        return _plain_numbers(text, most_whole={8: 2, 16: 4, 32: 9, 64: 18}[target.bit_width], most_places=0)
    if pa.types.is_decimal(target):
        return _plain_numbers(text, most_whole=target.precision - target.scale, most_places=target.scale)
    if pa.types.is_floating(target):
        # A double represents 15 digits without loss.
        return _plain_numbers(text, most_whole=15, most_places=15, most=16)
    if pa.types.is_timestamp(target):
        zone = f"{_ZONE}?" if target.tz else ""
        return _matches(text, rf"^{_LOCAL}{zone}$")
    if pa.types.is_date(target):
        return _matches(text, rf"^{_DAY}$")
    if pa.types.is_boolean(target):
        return _mask(pc.is_in(text, pa.array(["true", "false"])))
    return np.zeros(len(text), np.bool_)


def _matches(text: pa.Array, pattern: str) -> Mask | None:
    found = pc.match_substring_regex(text, pattern)
    return None if found.true_count + found.null_count == len(found) else _mask(found)


def _mask(found: pa.BooleanArray) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask


def _is_null(text: pa.Array) -> Mask | None:
    if not text.null_count:
        return None
    mask: Mask = text.is_null().to_numpy(zero_copy_only=False)
    return mask


def _plain_numbers(text: pa.Array, *, most_whole: int, most_places: int, most: int | None = None) -> Mask | None:
    """Return a mask of plain numbers; None if all texts are plain numbers.

    A plain number has no leading zero, no plus sign, no exponent, and digits on both sides of the point.
    """
    begins, ends, data = bytes_of(text)
    if not len(begins):
        return None
    lengths = ends - begins
    odd = np.flatnonzero((data - _ZERO).astype(np.uint8) > 9).astype(begins.dtype)
    wrong = np.zeros(len(begins), np.bool_)
    is_negative = np.zeros(len(begins), np.bool_)
    points = ends.copy()  # where the digits before the point end
    if len(odd):
        what = data[odd]
        at_row = np.searchsorted(ends, odd, side="right")
        minus = (what == _MINUS) & (odd == begins[at_row])
        is_negative[at_row[minus]] = True
        is_point = what == _POINT
        wrong[at_row[~minus & ~is_point]] = True
        rows, at = at_row[is_point], odd[is_point]
        points[rows] = at
        twice = np.zeros(len(rows), np.bool_)
        twice[1:] = rows[1:] == rows[:-1]
        wrong[rows[twice]] = True
    whole = points - begins - is_negative
    places = ends - points - 1  # -1 if a number has no point
    # A leading zero is plain only if it is the only digit before the point.
    first = data[np.minimum(begins + is_negative, len(data) - 1)] if len(data) else np.zeros(len(begins), np.uint8)
    is_zero = (first == _ZERO) & (whole == 1)
    wrong |= (whole < 1) | ((first == _ZERO) & ~is_zero) | ((whole > most_whole) & ~is_zero)
    wrong |= (places == 0) | (places > most_places)
    if most is not None:
        wrong |= lengths > most
    missing = _is_null(text)
    if missing is not None:
        wrong &= ~missing
    return ~wrong if wrong.any() else None


def bytes_of(text: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return where each text begins and ends, and the bytes of the whole column."""
    _, offsets, content = text.buffers()
    if content is None:
        return np.zeros(len(text), np.int32), np.zeros(len(text), np.int32), np.zeros(0, np.uint8)
    at = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(content, np.uint8)[at[0] : at[-1]]
    at = at - at[0] if at[0] else at
    return at[:-1], at[1:], data


def _cast(text: pa.Array, target: pa.DataType, wrong: Mask) -> pa.Array:
    """Cast texts in plain form. An impossible value, such as the 30th of February, becomes null and `wrong` is set."""
    if pa.types.is_timestamp(target) and target.tz:
        return _times(text, target, wrong)
    return _bisected(text, target, wrong, 0)


def _times(text: pa.Array, target: pa.DataType, wrong: Mask) -> pa.Array:
    """Cast times. A time without a zone is in UTC, which is the session's zone."""
    has_zone = pc.match_substring_regex(text, rf"{_ZONE}$")
    with_zone = has_zone.true_count
    if with_zone + has_zone.null_count == len(text):
        return _bisected(text, target, wrong, 0)
    local = pa.timestamp(target.unit)
    if not with_zone:
        return _bisected(text, local, wrong, 0).cast(target)
    nothing = pa.scalar(None, text.type)
    zoned = _bisected(pc.if_else(has_zone, text, nothing), target, wrong, 0)
    bare = _bisected(pc.if_else(has_zone, nothing, text), local, wrong, 0).cast(target)
    return pc.coalesce(zoned, bare)


def _bisected(text: pa.Array, target: pa.DataType, wrong: Mask, begin: int) -> pa.Array:
    try:
        return text.cast(target)
    except pa.ArrowInvalid:
        if len(text) <= _FEW:
            wrong[begin : begin + len(text)] |= text.is_valid().to_numpy(zero_copy_only=False)
            return pa.nulls(len(text), target)
    half = len(text) // 2
    halves = (text.slice(0, half), begin), (text.slice(half), begin + half)
    return pa.concat_arrays([_bisected(part, target, wrong, at) for part, at in halves])
