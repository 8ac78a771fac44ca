"""Conversion of texts in a declared form, such as `1.234,56` or `08.12.25`, to texts that casts read: `1234.56`,
`2025-12-08`.

A row is rejected if a text does not have the declared form. Such a text is never cast unchanged, because the cast might
read it as a different number. Spark's workers run this module. Does not belong here: casts (`kernels`, `validation`),
and the choice of forms for columns (`readers.declared_forms`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.readers.text import BLANKS
from dagster_tidemark.lakehouse.readers.values import FIRST_DAY, LAST_DAY
from dagster_tidemark.sources.time_patterns import MONTHS
from dagster_tidemark.sources.zone_table import ZoneTable

_Ints = npt.NDArray[np.int64]

_A_SECOND, _A_DAY = 1_000_000, 86_400
_MOST_DIGITS = 18  # any number with this many digits fits into 64 bits
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_DAYS_IN = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


class ValueForm(Protocol):
    """Form of the values of a column."""

    @property
    def written(self) -> str:
        """An example or pattern, for messages."""
        ...

    def plain(self, texts: pa.Array) -> pa.Array:
        """Return the texts that casts read; null for a text without this form."""
        ...


def group_mark(thousands: str) -> str:
    """Return a regular expression of the marks between groups of digits: also those of typesetters."""
    return {" ": "[ \u00a0\u202f]", "'": "['\u2019]"}.get(thousands, f"[{thousands}]")


def without_nulls(texts: pa.Array, kind: str, nulls: Sequence[str]) -> pa.Array:
    """Replace each text that means a missing value with null.

    Blanks around a text have a meaning only in a column of texts. Otherwise `  -999` would become the number -999.
    """
    if not nulls:
        return texts
    compared = texts if kind == "string" else pc.ascii_trim(texts, characters=BLANKS)
    is_missing = pc.is_in(compared, pa.array(nulls, pa.string()))
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), texts) if is_missing.true_count else texts


@dataclass(frozen=True)
class NumberForm:
    """Form of numbers with a declared decimal mark, and an optional mark between groups of three digits.

    Args:
        has_places: True if the declared type has decimal places.
    """

    decimal: str
    thousands: str | None
    has_places: bool

    @property
    def written(self) -> str:
        """An example, for messages."""
        return f"1{self.thousands or ''}234{self.decimal}56"

    def plain(self, texts: pa.Array) -> pa.Array:
        """Return the texts that casts read; null for a text without this form."""
        texts = pc.utf8_trim(texts, characters=BLANKS)
        mark = re.escape(self.decimal)
        group = "" if self.thousands is None else group_mark(self.thousands)
        places = f"(?:{mark}[0-9]+)?"
        # No number in groups begins with a zero: `0,500` is 0.5 with a decimal comma, not 500.
        groups = f"[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+{places}|" if group else ""
        number = rf"(?:[0-9]+(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]{{1,3}})?"
        words = "|NaN|[+-]?Infinity" if self.has_places else ""
        fits = pc.match_substring_regex(texts, f"^(?:[+-]?(?:{groups}{number}){words})$")
        if self.thousands == "." and self.has_places:
            fits = pc.and_not(fits, pc.match_substring_regex(texts, r"^[+-]?[0-9]{1,3}\.[0-9]{3}$"))
        if fits.false_count:
            texts = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
        if group:
            texts = pc.replace_substring_regex(texts, group, "")
        return pc.replace_substring(texts, ",", ".") if self.decimal == "," else texts


@dataclass(frozen=True)
class EpochForm:
    """Form of times that are written as a number of time units since 1970.

    Args:
        places: The unit as decimal places of a second: 0 for seconds, 3 for milliseconds.
        as_day: True if the column is declared as a date.
    """

    pattern: str
    places: int
    as_day: bool

    @property
    def written(self) -> str:
        """The form, for messages."""
        return self.pattern

    def plain(self, texts: pa.Array) -> pa.Array:
        """Return the texts that casts read; null for a text without this form."""
        parts = _extracted(texts, r"^(?P<sign>[+-]?)(?P<whole>[0-9]{1,24})(?:\.(?P<rest>[0-9]*))?$")
        is_valid = parts["whole"].is_valid().to_numpy(zero_copy_only=False)
        digits = pc.binary_join_element_wise(parts["whole"], pc.fill_null(parts["rest"], ""), "0" * 6, "")
        # Separate the digits up to microseconds from the digits after them.
        micros, rest = _split(digits, pc.add(pc.binary_length(parts["whole"]), 6 - self.places))
        is_valid &= _lengths(micros) <= _MOST_DIGITS
        sign = np.where(pc.equal(pc.fill_null(parts["sign"], ""), "-").to_numpy(zero_copy_only=False), -1, 1)
        return _texts_of(sign * _ints(micros), is_valid, rest, as_day=self.as_day, in_utc=True)


@dataclass(frozen=True)
class PatternForm:
    """Form of dates and times that follow a pattern.

    Args:
        kind: The declared type.
        zone: The time zone of texts without a zone; None means UTC.
    """

    pattern: str
    regex: str
    parts: tuple[str, ...]
    kind: str
    zone: ZoneTable | None

    @property
    def written(self) -> str:
        """The pattern, for messages."""
        return self.pattern

    def plain(self, texts: pa.Array) -> pa.Array:
        """Return the texts that casts read; null for a text without this form."""
        found = _extracted(texts, self.regex)
        days, is_valid = _days(found)
        seconds = _ints(found.get("minute")) * 60 + _ints(found.get("second"))
        if "half" in found:
            hour = _ints(found["half_day_hour"]) % 12
            is_afternoon = pc.equal(pc.utf8_lower(pc.fill_null(found["half"], "")), "pm")
            seconds += 3600 * (hour + 12 * is_afternoon.to_numpy(zero_copy_only=False))
        else:
            seconds += 3600 * _ints(found.get("hour"))
        local = days * _A_DAY + seconds
        micros, rest = np.zeros(len(texts), np.int64), None
        if "fraction" in found:
            padded = pc.binary_join_element_wise(found["fraction"], "000000", "")
            micros, rest = _ints(pc.utf8_slice_codeunits(padded, 0, 6)), pc.utf8_slice_codeunits(padded, 6)
        if self.kind != "timestamp":  # the day or local time as it is written; its zone is ignored
            as_day = self.kind == "date"
            return _texts_of(local * _A_SECOND + micros, is_valid, rest, as_day=as_day, in_utc=False)
        instants, exists = (local, is_valid) if self.zone is None else _instants(local, self.zone)
        if "zone" in found:  # a text with its own zone does not depend on the gaps of `self.zone`
            has_zone = pc.not_equal(pc.fill_null(found["zone"], ""), "").to_numpy(zero_copy_only=False)
            instants = np.where(has_zone, local - _offsets(found["zone"]), instants)
            exists = exists | has_zone
        return _texts_of(instants * _A_SECOND + micros, is_valid & exists, rest, as_day=False, in_utc=True)


@dataclass(frozen=True)
class AnyForm:
    """Several forms of one column. A text that has different meanings in two forms counts as a text without a form."""

    forms: Sequence[ValueForm]

    @property
    def written(self) -> str:
        """The forms, for messages."""
        return " or ".join(form.written for form in self.forms)

    def plain(self, texts: pa.Array) -> pa.Array:
        """Return the texts that casts read; null for a text without this form."""
        every = [form.plain(texts) for form in self.forms]
        found = pc.coalesce(*every)
        for one in every:
            differs = pc.fill_null(pc.not_equal(found, one), False)
            found = pc.if_else(differs, pa.scalar(None, pa.string()), found)
        return found


def _extracted(texts: pa.Array, regex: str) -> dict[str, pa.Array]:
    """Return the named groups of an expression: null if a text does not match, empty if an optional group is absent."""
    found = pc.extract_regex(pc.utf8_trim(texts, characters=BLANKS), regex)
    return {f.name: pc.struct_field(found, f.name) for f in found.type}


def _ints(texts: pa.Array | None) -> _Ints:
    """Return texts of digits as numbers; 0 for a null, an empty text, or too many digits."""
    if texts is None:
        return np.zeros(1, np.int64)
    digits = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    digits = pc.if_else(pc.less_equal(pc.binary_length(digits), _MOST_DIGITS), digits, None)
    numbers: _Ints = pc.fill_null(digits.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return numbers


def _lengths(texts: pa.Array) -> _Ints:
    numbers: _Ints = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _split(digits: pa.Array, kept: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split each text after its first `kept` digits. The loop is short, because most texts have the same length."""
    first, rest = pa.nulls(len(digits), pa.string()), pa.nulls(len(digits), pa.string())
    for length in pc.unique(kept).to_pylist():
        if length is not None:
            chosen, at = pc.equal(kept, length), max(0, length)
            first = pc.if_else(chosen, pc.utf8_slice_codeunits(digits, 0, at), first)
            # A number below a microsecond has no digits in the first part, and leading zeros in the second.
            zeros = pc.binary_join_element_wise("0" * (at - length), pc.utf8_slice_codeunits(digits, at), "")
            rest = pc.if_else(chosen, zeros, rest)
    return first, rest


def _days(found: Mapping[str, pa.Array]) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Return the days since 1970, and a mask of the dates that exist."""
    is_valid: npt.NDArray[np.bool_] = found["day"].is_valid().to_numpy(zero_copy_only=False)
    year = _ints(found["year"]) if "year" in found else 2000 + _ints(found["short_year"])
    if "month" in found:
        month = _ints(found["month"])
    else:
        names = pc.utf8_slice_codeunits(pc.utf8_lower(found["month_name"]), 0, 3)
        month = (
            pc.fill_null(pc.index_in(names, pa.array(MONTHS)), 0).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        )
    day = _ints(found["day"])
    month = np.where(month == 0, 1, month)
    is_leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    longest = _DAYS_IN[month - 1] + (is_leap & (month == 2))
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    days = days + _DAYS_BEFORE[month - 1] + (is_leap & (month > 2)) + day - 1 + FIRST_DAY
    return days, is_valid & (day >= 1) & (day <= longest) & (year >= 1)


def _instants(local: _Ints, zone: ZoneTable) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Return local times in UTC, and a mask of times that exist. If a local time occurs twice, the first is used."""
    begins, offsets = np.array(zone.begins), np.array(zone.offsets)
    # ends[n - 1] is the end of the previous offset in local time. From then on, at the latest, the n-th offset applies.
    ends = begins[1:] + offsets[:-1]
    at = np.searchsorted(ends, local, side="right")
    instants = local - offsets[at]
    exists = (instants >= begins[at]) | (at == 0)
    return instants, exists


def _offsets(zone: pa.Array) -> _Ints:
    """Return offsets that are written as `Z`, `+02`, `+0200` or `+02:00` in seconds."""
    marks = pc.fill_null(zone, "")
    digits = pc.replace_substring_regex(marks, "[^0-9]", "")
    hours, minutes = _ints(pc.utf8_slice_codeunits(digits, 0, 2)), _ints(pc.utf8_slice_codeunits(digits, 2, 4))
    sign = np.where(pc.starts_with(marks, "-").to_numpy(zero_copy_only=False), -1, 1)
    offsets: _Ints = sign * (hours * 3600 + minutes * 60)
    return offsets


def _texts_of(
    micros: _Ints, is_valid: npt.NDArray[np.bool_], rest: pa.Array | None, *, as_day: bool, in_utc: bool
) -> pa.Array:
    """Return days or times as ISO 8601, null where they are invalid or outside the years 1 to 9999.

    Args:
        rest: Digits after the microseconds. A cast drops them, and `Feed.exact` refuses them.
    """
    least, most = FIRST_DAY * _A_DAY * _A_SECOND, (LAST_DAY + 1) * _A_DAY * _A_SECOND
    is_valid = is_valid & (micros >= least) & (micros < most)
    times = pa.array(np.where(is_valid, micros, 0), pa.int64(), mask=~is_valid).view(pa.timestamp("us"))
    texts = times.cast(pa.string())
    if rest is not None and (more := pc.match_substring_regex(rest, "[1-9]")).true_count:
        rest = pc.replace_substring_regex(rest, "0+$", "")
        texts = pc.if_else(more, pc.binary_join_element_wise(texts, rest, ""), texts)
    if as_day:
        days = times.cast(pa.date32(), safe=False)
        is_midnight = pc.match_substring_regex(texts, r"00:00:00\.0+$")
        return pc.if_else(is_midnight, days.cast(pa.string()), texts)
    return pc.binary_join_element_wise(texts, "Z", "") if in_utc else texts
