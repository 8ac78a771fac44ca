"""Patterns of dates and times, such as `dd.MM.yy`: what they mean, as regular expressions.

The letters are those of Spark and Java. Each is read strictly: `dd` is two digits, `d` is one or two. Does not belong
here: reading of values (`lakehouse.parsing.value_forms`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

EPOCHS = {"epoch seconds": 0, "epoch millis": 3, "epoch micros": 6, "epoch nanos": 9}
"""Forms of times as numbers since 1970, and the decimal places of a second in their units."""

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_SHORT = "(?i:" + "|".join(MONTHS) + ")"
_LONG = "(?i:" + "|".join(_LONG_MONTHS) + ")"
_ZONE = r"Z|[+-](?:0[0-9]|1[0-7]):?[0-5][0-9]|[+-](?:0[0-9]|1[0-7])"

_LETTERS = {
    "yyyy": ("year", "[0-9]{4}"),
    "uuuu": ("year", "[0-9]{4}"),
    "yy": ("short_year", "[0-9]{2}"),
    "uu": ("short_year", "[0-9]{2}"),
    "M": ("month", "1[0-2]|0?[1-9]"),
    "MM": ("month", "1[0-2]|0[1-9]"),
    "MMM": ("month_name", _SHORT),
    "MMMM": ("month_name", _LONG),
    "d": ("day", "3[01]|[12][0-9]|0?[1-9]"),
    "dd": ("day", "3[01]|[12][0-9]|0[1-9]"),
    "H": ("hour", "2[0-3]|1[0-9]|0?[0-9]"),
    "HH": ("hour", "2[0-3]|[01][0-9]"),
    "h": ("half_day_hour", "1[0-2]|0?[1-9]"),
    "hh": ("half_day_hour", "1[0-2]|0[1-9]"),
    "a": ("half", "(?i:AM|PM)"),
    "m": ("minute", "[1-5][0-9]|0?[0-9]"),
    "mm": ("minute", "[0-5][0-9]"),
    "s": ("second", "[1-5][0-9]|0?[0-9]"),
    "ss": ("second", "[0-5][0-9]"),
    **{"S" * n: ("fraction", f"[0-9]{{{n}}}") for n in range(2, 10)},
    "S": ("fraction", "[0-9]{1,9}"),
    **dict.fromkeys(("X", "XX", "XXX", "x", "xx", "xxx", "Z", "ZZ", "ZZZ"), ("zone", _ZONE)),
    **dict.fromkeys(("E", "EE", "EEE"), ("", "(?i:Mon|Tue|Wed|Thu|Fri|Sat|Sun)")),
    "EEEE": ("", "(?i:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"),
}  # fmt: skip
"""Letters of a pattern: the name of the part, and its regular expression. The day of the week has no name, because
only its form is checked."""

_OF_ANY_LENGTH = ("M", "d", "H", "h", "m", "s", "S")
_WORDS = ("", "month_name", "half", "zone")
_USUAL = "'dd.MM.yy', 'yyyyMMdd' or 'M/d/yyyy H:mm'"


@dataclass(frozen=True)
class TimePattern:
    """A pattern as a regular expression, with a named group for each part of the pattern."""

    regex: str
    parts: tuple[str, ...]


def pattern_fault(pattern: object) -> str:
    """Return the reason why a form of dates and times cannot be declared; empty if it can."""
    if not isinstance(pattern, str):
        return f"a pattern is a text such as {_USUAL}, not {pattern!r}"
    if pattern in EPOCHS:
        return ""
    if pattern.startswith("epoch"):
        return f"{pattern!r} is unknown; write one of {', '.join(map(repr, EPOCHS))}"
    try:
        pattern_of(pattern)
    except ValueError as error:
        return str(error)
    return ""


def pattern_of(pattern: str) -> TimePattern:
    """Return a pattern as a regular expression.

    Raises:
        ValueError: the pattern is invalid, or does not determine a day. The message gives the reason.
    """
    regex, parts, depth = "", list[str](), 0
    before = ""
    for token in _tokens(pattern):
        if token in ("[", "]"):
            depth += 1 if token == "[" else -1
            if depth < 0:
                break
            regex += "(?:" if token == "[" else ")?"
        elif token.startswith("'"):
            regex += re.escape(token[1:-1].replace("''", "'") if len(token) > 2 else "'")
        elif not token[0].isalpha() or not token.isascii():
            regex += re.escape(token)
        elif token not in _LETTERS:
            raise ValueError(
                f"{token!r} in {pattern!r} is unknown; write a pattern such as {_USUAL}, with text in single quotes"
            )
        else:
            name, expression = _LETTERS[token]
            if before in _OF_ANY_LENGTH and name not in _WORDS:
                raise ValueError(
                    f"{pattern!r}: digits of {token} follow {before}, whose length varies; double a letter"
                )
            if name in parts:
                raise ValueError(f"{pattern!r} has the {name.replace('_', ' ')} twice")
            if name:
                parts.append(name)
            regex += f"(?P<{name}>{expression})" if name else f"(?:{expression})"
        before = token
    if depth:
        raise ValueError(f"{pattern!r} has a bracket without the other one; brackets hold an optional part")
    _require_day(pattern, parts)
    return TimePattern(f"^{regex}$", tuple(parts))


def _tokens(pattern: str) -> list[str]:
    return [found[0] for found in re.finditer(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", pattern, re.S)]


def _require_day(pattern: str, parts: list[str]) -> None:
    wanted = {"year": ("year", "short_year"), "month": ("month", "month_name"), "day": ("day",)}
    for name, forms in wanted.items():
        found = [form for form in forms if form in parts]
        if not found:
            raise ValueError(f"{pattern!r} has no {name}; write a pattern such as {_USUAL}")
        if len(found) > 1:
            raise ValueError(f"{pattern!r} has the {name} twice")
    if ("half_day_hour" in parts) is not ("half" in parts):
        raise ValueError(f"{pattern!r}: h and a belong together: an hour from 1 to 12, and AM or PM")
    if "hour" in parts and "half_day_hour" in parts:
        raise ValueError(f"{pattern!r} has the hour twice")
    order = ["hour" if part == "half_day_hour" else part for part in parts]
    for finer, coarser in (("minute", "hour"), ("second", "minute"), ("fraction", "second")):
        if finer in order and coarser not in order:
            raise ValueError(f"{pattern!r} has a {finer} and no {coarser}")
