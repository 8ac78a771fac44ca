"""Infers the SQL type of a sample's column: the narrowest type that keeps every value as it is written.

Does not belong here: finding the columns of a sample (`scaffold.sample`) and the row key (`scaffold.row_key`).
"""

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

from dagster_tidemark.lakehouse.readers.file_format import UntypedText

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Texts with a leading zero or a plus sign are codes, such as postal codes and phone numbers, not numbers.
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)
_LONG = re.compile(r"0|-?[1-9]\d{0,37}", re.ASCII)
_POINT = re.compile(r"-?(0|[1-9]\d*)\.\d+", re.ASCII)
_EXPONENT = re.compile(r"-?((0|[1-9]\d*)(\.\d+)?|\.\d+)[eE][+-]?\d{1,3}|-?\.\d+", re.ASCII)
_TRUTH = {"true", "false"}
_MOST_DIGITS = 38
_USUAL_DIGITS, _USUAL_PLACES, _MOST_PLACES = 18, 4, 8
_FARTHEST_ZONE = timedelta(hours=18)
_OF_ARROW = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "bigint"),
    "uint64": f"decimal({_MOST_DIGITS},0)",
    **dict.fromkeys(("halffloat", "float", "double"), "double"),
    **dict.fromkeys(("date32[day]", "date64[ms]"), "date"),
    "bool": "boolean",
}
_DECIMAL = re.compile(r"decimal\d+\((\d+), (-?\d+)\)", re.ASCII)
_TIMES = ("timestamp", "INT96")

_ARE_CODES = {
    "barcode",
    "ean",
    "fax",
    "fips",
    "gtin",
    "iban",
    "imei",
    "isbn",
    "mobile",
    "msisdn",
    "phone",
    "plz",
    "postal",
    "postcode",
    "sku",
    "tel",
    "upc",
    "zip",
}
_NUMBERED = {"code", "no", "nr", "number", "num", "ref"}
_CODE = 4  # minimum number of digits of a code
_ARE_IDS = {"id", "ids", "uuid", "guid", "key", "code", "no", "nr", "number", "num", "ref", "version"}


def words_of(name: str) -> list[str]:
    """Return the words of a column's name in lower case: `tripId`, `trip_id` and `Trip ID` give `trip` and `id`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.findall(r"[a-z0-9]+", spaced.lower())


def is_code(name: str) -> bool:
    """Return True if a column's name says that its values are ids, codes or versions, neither amounts nor times."""
    words = words_of(name)
    return _is_named_code(words) or (words[-1:] != [] and words[-1] in _ARE_IDS)


def _is_named_code(words: Sequence[str]) -> bool:
    named = [word for word in words if word not in _ARE_IDS]
    return bool(named) and not _ARE_CODES.isdisjoint((named[-1], named[-1].removesuffix("code")))


def type_of(name: str, values: Sequence[object], kind: str = "") -> str:
    """Return the type of a column.

    Args:
        values: Values of the column: `UntypedText` if the file format has no types, else Python values. None if empty.
        kind: Arrow's name of the column's type in the file; empty if the file format has no types.
    """
    if any(getattr(value, "nanosecond", 0) for value in values):
        return "string"  # a timestamp has microseconds
    if own := _own_type(kind):
        return own
    held = [value for value in values if value is not None]
    if not held:
        return "string"
    if all(isinstance(value, str) for value in held):
        texts = [str(value) for value in held]
        found = _type_of_texts(name, texts) if all(isinstance(v, UntypedText) for v in held) else None
        return found or _time_type(texts) or "string"
    return _type_of_python(held)


def _own_type(kind: str) -> str | None:
    """Return the SQL type that holds all values of an Arrow type; None if the choice depends on the values.

    The type must also fit later files, which may have larger numbers, or numbers in a column that is empty here.
    """
    if kind.startswith(_TIMES):
        return "timestamp"
    if found := _DECIMAL.fullmatch(kind):
        digits, places = int(found[1]), max(0, int(found[2]))
        return _decimal(digits - places, places)
    return _OF_ARROW.get(kind)


def _type_of_texts(name: str, texts: Sequence[str]) -> str | None:
    """Return the type of texts from a format without types; None if they are neither truth values nor numbers."""
    words = words_of(name)
    if _TRUTH.issuperset(texts):
        return "boolean"
    if _is_named_code(words):
        return None
    # If all numbers have the same length, as account numbers do, later ones may begin with a zero.
    if words and words[-1] in _NUMBERED and len(texts) > 1 and {*map(len, texts)} == {max(_CODE, len(texts[0]))}:
        return None
    if all(map(_WHOLE.fullmatch, texts)):
        return "bigint"
    if all(map(_LONG.fullmatch, texts)):
        return f"decimal({_MOST_DIGITS},0)"
    is_number = all(_LONG.fullmatch(text) or _POINT.fullmatch(text) or _EXPONENT.fullmatch(text) for text in texts)
    if not is_number or (words and words[-1] in _ARE_IDS):  # ids may be versions: 1.10 differs from 1.1
        return None
    has_exponent = any(map(_EXPONENT.fullmatch, texts))
    if has_exponent and not any(mark in text for text in texts for mark in ".+-"):
        return None  # codes such as 1e5 and 2E7
    exact = None if has_exponent else _decimal_of([Decimal(text) for text in texts])
    if exact and (_places(texts) <= _MOST_PLACES or not _is_double(texts)):
        return exact
    return "double" if _is_double(texts) else None


def _places(texts: Sequence[str]) -> int:
    return max(len(text.partition(".")[2]) for text in texts)


def _is_double(texts: Sequence[str]) -> bool:
    """Return True if a double holds each number exactly."""
    return all(math.isfinite(float(text)) and Decimal(repr(float(text))) == Decimal(text) for text in texts)


def _decimal_of(numbers: Sequence[Decimal]) -> str | None:
    """Return the decimal type that holds all numbers; None if no decimal does."""
    if not all(number.is_finite() for number in numbers):
        return None
    places = max(max(0, -int(number.as_tuple().exponent)) for number in numbers)
    whole = max(max(0, number.adjusted() + 1) for number in numbers)
    return _decimal(whole, places)


def _decimal(whole: int, places: int) -> str | None:
    """Return the decimal type for a number of digits before and after the point; None if no decimal has that many."""
    if whole + places > _MOST_DIGITS:
        return None
    wide = max(places, _USUAL_PLACES)
    if whole + wide > _MOST_DIGITS:
        wide = places
    return f"decimal({_USUAL_DIGITS if whole + wide <= _USUAL_DIGITS else _MOST_DIGITS},{wide})"


def _time_type(texts: Sequence[str]) -> str | None:
    if all(_DAY.fullmatch(text) and _is_valid(text) for text in texts):
        return "date"
    if all((_TIME.fullmatch(text) or _DAY.fullmatch(text)) and _is_valid(text) for text in texts):
        return "timestamp"
    return None


def _is_valid(text: str) -> bool:
    """Return True if a text in the form of a time is a valid time. 30 February is not valid."""
    try:
        offset = datetime.fromisoformat(text).utcoffset()
    except ValueError:
        return False
    return offset is None or abs(offset) <= _FARTHEST_ZONE


def _type_of_python(values: Sequence[object]) -> str:
    if all(isinstance(value, bool) for value in values):
        return "boolean"
    if any(isinstance(value, bool) for value in values):
        return "string"
    if all(isinstance(value, int) for value in values):
        texts = [str(value) for value in values]
        if all(map(_WHOLE.fullmatch, texts)):
            return "bigint"
        return f"decimal({_MOST_DIGITS},0)" if all(map(_LONG.fullmatch, texts)) else "string"
    if all(isinstance(value, int | Decimal) for value in values):
        return _decimal_of([Decimal(str(value)) for value in values]) or "string"
    if all(isinstance(value, int | float) for value in values):
        return "double"
    if all(isinstance(value, datetime) for value in values):
        return "timestamp"
    if all(isinstance(value, date) and not isinstance(value, datetime) for value in values):
        return "date"
    return "string"
