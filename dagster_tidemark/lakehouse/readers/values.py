"""Conversion of typed values in files, such as numbers, times and lists, to texts.

The texts are the same as if Spark had cast the values to strings, for every format. Does not belong here: declared
types (`kernels`, `validation`).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from json.decoder import JSONDecoder
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BLANKS = " \t\r\n"
# First day of year 1 and last day of year 9999, since 1970. The exact rule handles other years.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
_A_DAY = 86_400  # seconds
_FOUR_CENTURIES = 146_097  # days after which the calendar repeats
PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
"""Number of units in a second, by Arrow's name of the unit."""
_PLACES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "microseconds"}
_WHOLE_FROM, _WHOLE_BELOW = 1e-3, 1e7  # Java writes numbers in this range without an exponent


def decoder_of_texts() -> JSONDecoder:
    """Return a new decoder that keeps numbers as they are written.

    A global decoder would be sent to workers with the code, but decoders cannot be pickled.
    """
    return JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


def nested_as_written(text: str) -> list[dict[str, str]]:
    """Return the nested members, as they are written, of the JSON object or of each object in the JSON list `text`."""
    at = after_blanks(text, 0)
    if text[at] == "{":
        return [dict(_members(text, at))]
    return [dict(_members(text, begin)) for begin in elements_from(text, at)]


def elements_of(text: str) -> list[str]:
    """Return the elements of a JSON list, as they are written."""
    decoder = decoder_of_texts()
    return [text[begin : decoder.raw_decode(text, begin)[1]] for begin in elements_from(text, after_blanks(text, 0))]


def _members(text: str, at: int) -> Iterator[tuple[str, str]]:
    decoder = decoder_of_texts()
    while text[at] != "}" and text[at := after_blanks(text, at + 1)] != "}":
        name, at = decoder.raw_decode(text, at)
        begin = after_blanks(text, after_blanks(text, at) + 1)
        value, end = decoder.raw_decode(text, begin)
        if isinstance(value, dict | list):
            yield name, text[begin:end]
        at = after_blanks(text, end)


def elements_from(text: str, at: int) -> Iterator[int]:
    """Return the place of each element of the JSON list that begins at `at`."""
    decoder = decoder_of_texts()
    while text[at] != "]" and text[at := after_blanks(text, at + 1)] != "]":
        yield at
        at = after_blanks(text, decoder.raw_decode(text, at)[1])


def after_blanks(text: str, at: int) -> int:
    """Return the place of the first non-blank character at `at` or later."""
    while text[at] in _BLANKS:
        at += 1
    return at


def texts_of(column: pa.Array) -> pa.Array:
    """Return the texts of a column, as Spark's casts write them."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(pc.cast(column, pa.string()), r"(\.0*|(\.[0-9]*[1-9])0*)?Z$", r"\2")
    if pa.types.is_nested(kind):
        in_parts = _holds_nanoseconds(kind)
        return pa.array([_json_of(value, in_parts=in_parts) for value in column], pa.binary()).view(pa.string())
    # Invalid texts are kept here, because `typed_rows` reports them.
    return pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))


def _decimals(column: pa.Array) -> pa.Array:
    """Return decimals as Java writes them. Arrow writes small ones with an exponent."""
    texts = pc.cast(column, pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if not has_exponent.true_count:
        return texts
    rows = pc.indices_nonzero(has_exponent)
    plain = pa.array([format(value, "f") for value in column.take(rows).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, has_exponent, plain)


def _floats(column: pa.Array) -> pa.Array:
    """Return floats as Java writes them. Arrow computes the same digits, so only a few values need the Python loop."""
    if pa.types.is_float16(column.type):
        return pa.array([None if v is None else _number(v, column.type) for v in column.to_pylist()], pa.string())
    texts, size = pc.cast(column, pa.string()), pc.abs(column)
    texts = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", ""))
    is_plain = pc.or_(pc.and_(pc.greater_equal(size, _WHOLE_FROM), pc.less(size, _WHOLE_BELOW)), pc.equal(size, 0.0))
    other = pc.fill_null(pc.invert(is_plain), False)
    if not other.true_count:
        return texts
    written = [_number(value, column.type) for value in column.filter(other).to_pylist()]
    return pc.replace_with_mask(texts, other, pa.array(written, pa.string()))


def _number(value: float | Decimal, kind: pa.DataType) -> str:
    """Return a number as Java writes it."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    single = np.float32(value) if pa.types.is_float32(kind) else value
    exact = Decimal(str(single))
    if value == 0 or _WHOLE_FROM <= abs(value) < _WHOLE_BELOW:
        digits = format(exact, "f")
        return digits if "." in digits else f"{digits}.0"
    shortest = exact.normalize()
    first, *rest = map(str, shortest.as_tuple().digits)
    return f"{'-' if value < 0 else ''}{first}.{''.join(rest) or '0'}E{shortest.adjusted()}"


def _json_of(value: pa.Scalar, *, in_parts: bool) -> bytes | None:
    if not value.is_valid:
        return None
    try:
        if in_parts:
            return _json_of_parts(value).encode()
        return _json(value.as_py(), value.type).encode()
    except UnicodeDecodeError as error:
        return bytes(error.object)  # invalid text, which `typed_rows` reports
    except (OverflowError, ValueError, KeyError):  # Python has no years above 9999, and knows not every zone of a file
        return _json_of_parts(value).encode()


def _holds_nanoseconds(kind: pa.DataType) -> bool:
    """Return True if values of a type may have nanoseconds, which Python's times lack."""
    if pa.types.is_map(kind):
        return _holds_nanoseconds(kind.key_type) or _holds_nanoseconds(kind.item_type)
    if pa.types.is_struct(kind):
        return any(_holds_nanoseconds(of.type) for of in kind)
    if pa.types.is_nested(kind):
        return _holds_nanoseconds(kind.value_type)
    return bool(getattr(kind, "unit", None) == "ns")


def _json_of_parts(value: pa.Scalar) -> str:
    """Return a value as Spark writes it in JSON, from its parts, because Python cannot represent the whole value."""
    kind = value.type
    if not value.is_valid:
        return "null"
    if pa.types.is_map(kind):
        pairs = ((_name_of(pair["key"].as_py()), pair["value"]) for pair in value.values)
        return "{" + ",".join(f"{name}:{_json_of_parts(v)}" for name, v in pairs) + "}"
    if pa.types.is_struct(kind):
        names = (f.name for f in kind)
        return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{_json_of_parts(value[n])}" for n in names) + "}"
    if pa.types.is_nested(kind):
        return "[" + ",".join(map(_json_of_parts, value.values)) + "]"
    if pa.types.is_date(kind):
        days = value.value if pa.types.is_date32(kind) else value.value // (1000 * _A_DAY)
        return f'"{far_time(days, None)}"'
    if pa.types.is_timestamp(kind):
        days, rest = divmod(value.value, PER_SECOND[kind.unit] * _A_DAY)
        micros = rest * PER_SECOND["us"] // PER_SECOND[kind.unit]
        nanos = value.value % 1000 if kind.unit == "ns" else 0
        return f'"{far_time(days, micros, all_places=True)}{f"{nanos:03}" if nanos else ""}"'
    if pa.types.is_time(kind):
        return f'"{pc.cast(value, pa.string())}"'
    if pa.types.is_duration(kind):
        return str(value.value)
    return _json(value.as_py(), kind)


def _name_of(key: object) -> str:
    """Return the key of a map as the name of a member."""
    text = key.decode() if isinstance(key, bytes) else str(key).lower() if isinstance(key, bool) else str(key)
    return json.dumps(text, ensure_ascii=False)


def _json(value: Any, kind: pa.DataType) -> str:
    """Return a value as Spark writes it in JSON."""
    if value is None:
        return "null"
    if pa.types.is_map(kind):
        members = (f"{_name_of(k)}:{_json(v, kind.item_type)}" for k, v in value)
        return "{" + ",".join(members) + "}"
    if pa.types.is_struct(kind):
        fields = (f"{json.dumps(f.name, ensure_ascii=False)}:{_json(value[f.name], f.type)}" for f in kind)
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json(v, kind.value_type) for v in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{_number(value, kind)}"'
    if isinstance(value, float | Decimal):
        return _number(value, kind)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime):
        time_utc = value.astimezone(UTC) if value.tzinfo else value
        return f'"{time_utc.replace(tzinfo=None).isoformat(" ", "microseconds")}"'
    if isinstance(value, time):
        return f'"{value.isoformat(_PLACES[kind.unit])}"'
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1) * PER_SECOND[kind.unit] // PER_SECOND["us"])
    return f'"{value}"' if isinstance(value, date) else json.dumps(value, ensure_ascii=False)


def far_time(days: int, micros: int | None, *, all_places: bool = False) -> str:
    """Return a date or time of any year, as Spark writes it.

    Args:
        days: Days since 1970.
        micros: Microseconds in the day; None for a date.
        all_places: True to write a fraction with six digits, as in JSON.
    """
    cycles, rest = divmod(days - FIRST_DAY, _FOUR_CENTURIES)
    day = date.fromordinal(rest + 1)
    year = day.year + 400 * cycles
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    text = f"{sign}{abs(year):04}-{day.month:02}-{day.day:02}"
    if micros is None:
        return text
    seconds, micros = divmod(micros, 1_000_000)
    fraction = f".{micros:06}" if all_places else f".{micros:06}".rstrip("0") if micros else ""
    return f"{text} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
