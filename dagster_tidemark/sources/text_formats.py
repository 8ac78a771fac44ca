"""Declared forms of text files: separators, headers, and how values are written.

Belongs here: the options that a feed declares, and their checks. Does not belong here: reading of files
(`lakehouse.parsing`), and patterns of times (`time_patterns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import pairwise
from typing import Any, ClassVar, cast
from zoneinfo import ZoneInfo

from dagster_tidemark.sources.file_endings import Format
from dagster_tidemark.sources.time_patterns import pattern_fault

_TIMES = ("date", "timestamp", "timestamp_ntz")
_NUMBERS = ("int", "bigint", "float", "double")
_THOUSANDS = (".", ",", " ", "'", "_")


def is_number(kind: str) -> bool:
    """Return True if a declared type is a number."""
    return kind in _NUMBERS or kind.startswith("decimal")


def is_time(kind: str) -> bool:
    """Return True if a declared type is a date or a time."""
    return kind in _TIMES


def patterns_of(patterns: object) -> Sequence[object]:
    """Return the patterns of a column, at least one."""
    if isinstance(patterns, list | tuple) and patterns:
        return list(patterns)
    return [patterns]


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """Options that all text formats have."""

    nulls: Sequence[str] = ()
    typed_nulls: Sequence[str] = ()
    times: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    timezone: str = "UTC"

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for option in ("nulls", "typed_nulls"):
            texts = getattr(self, option)
            if isinstance(texts, str) or not all(isinstance(text, str) and text for text in texts):
                self._refuse(option, "a tuple of texts such as ('-', 'NULL'); an empty text is always a missing value")
            object.__setattr__(self, option, tuple(texts))
        if not isinstance(self.times, Mapping):
            self._refuse("times", "a mapping of columns to patterns such as {'booked_on': 'dd.MM.yy'}")
        for column, patterns in self.times.items():
            for pattern in patterns_of(patterns):
                if fault := pattern_fault(pattern):
                    raise ValueError(f"format {self.name}: times of {column!r}: {fault}")
        try:
            ZoneInfo(self.timezone)
        except Exception as error:  # ZoneInfo raises several kinds of errors, also for a wrong type
            raise ValueError(
                f"format {self.name}: timezone {self.timezone!r} is unknown; write one such as 'Europe/Berlin'"
            ) from error

    def nulls_of(self, kind: str) -> Sequence[str]:
        """Return the texts that mean a missing value in a column of a type."""
        return self.nulls if kind == "string" else (*self.nulls, *self.typed_nulls)

    def _refuse(self, option: str, expected: str) -> None:
        raise ValueError(f"format {self.name}: expected {option} as {expected}, found {getattr(self, option)!r}")

    def _require_bool(self, option: str) -> None:
        if not isinstance(getattr(self, option), bool):
            self._refuse(option, "True or False")

    def _require_number(self, option: str) -> None:
        value = getattr(self, option)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._refuse(option, "a number of lines")

    def _require_marks(self) -> None:
        """Check the marks of numbers."""
        decimal, thousands = self._marks
        if decimal not in (".", ","):
            self._refuse("decimal", "'.' or ','")
        if thousands is not None and thousands not in _THOUSANDS:
            self._refuse("thousands", f"one of {', '.join(map(repr, _THOUSANDS))} or None")
        if thousands == decimal:
            raise ValueError(f"format {self.name}: decimal and thousands are both {decimal!r}; they have to differ")

    def require_fits(self, owner: str, columns: Mapping[str, str], *, multiline: bool) -> None:
        """Check the options against the columns of a feed.

        Args:
            owner: The feed in an error.

        Raises:
            ValueError: an option contradicts the feed. The message names both.
        """
        for column in self.times:
            kind = columns.get(column)
            if kind is None:
                raise ValueError(f"{owner}: times names {column!r}, which is not in columns; add it there")
            if not is_time(kind):
                raise ValueError(
                    f"{owner}: times names {column!r}, which is a {kind}; declare it as date or timestamp, or take it "
                    "out of times"
                )
        if self.timezone != "UTC" and "timestamp" not in columns.values():
            raise ValueError(f"{owner}: timezone {self.timezone!r} has no effect: no column is a timestamp")
        if self.is_number_written and not any(map(is_number, columns.values())):
            raise ValueError(f"{owner}: decimal and thousands have no effect: no column is a number")

    @property
    def is_number_written(self) -> bool:
        """True if numbers are written in another form than `1234.56`."""
        return self._marks != (".", None)

    @property
    def _marks(self) -> tuple[str, str | None]:
        return getattr(self, "decimal", "."), getattr(self, "thousands", None)

    @property
    def options(self) -> dict[str, object]:
        """The options that differ from the defaults."""
        return {
            f.name: getattr(self, f.name) for f in fields(self) if f.init and getattr(self, f.name) != _default_of(f)
        }


@dataclass(frozen=True, kw_only=True)
class Csv(TextFormat):
    """CSV and similar text: one row per line, values between separators.

    Args:
        separator: The character between two values, such as `;`, `|` or a tab.
        header: True if the first line names the columns; False if no line does. If a later line names the columns, the
            beginning of that line; the lines above it are skipped.
        fields: With `header=False`, the names of all columns in the order of the file; by default the feed's `columns`.
        skip_lines: Number of lines to skip at the beginning of a file, blank ones included.
        quote: The character around values that contain a separator; None if quotes have no meaning.
        escape: The character that removes the meaning of the next one, such as a backslash. Without it, a quote in a
            quoted value is doubled.
        comment: Lines that begin with this character are skipped.
        trailing_separator: True if each line ends with a separator after its last value.
        decimal: The decimal mark of numbers, `.` or `,`.
        thousands: The mark between groups of three digits: `.`, `,`, a space, `'` or `_`. A space includes the
            no-break spaces, and `'` includes `’`. If `.` groups thousands, `2.647` is refused in a column with
            decimal places: it could be 2647 or 2.647.
        nulls: Texts that mean a missing value, such as `-`, `NULL` or `\\N`, compared exactly. Blanks around such a
            text count only in a column of type string.
        typed_nulls: Texts that mean a missing value only in columns of other types than string, such as `NA`, which
            may be a country in a column of texts.
        times: The form of dates and times, by column: a pattern such as `dd.MM.yy`, `yyyyMMdd` or `M/d/yyyy H:mm`, or
            `epoch seconds`, `epoch millis`, `epoch micros`, or several of them. If two patterns read a value as
            different times, the value is rejected. Columns without a pattern are ISO 8601.
        timezone: The zone of times that are written without one.

    Raises:
        ValueError: an option is invalid or contradicts another one. The message names the options.
    """

    separator: str = ","
    header: bool | str = True
    fields: Sequence[str] = ()
    skip_lines: int = 0
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None
    trailing_separator: bool = False
    decimal: str = "."
    thousands: str | None = None

    name: ClassVar[str] = Format.CSV

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("separator", "quote", "escape", "comment"):
            mark = getattr(self, option)
            if (mark is None and option != "separator") or _is_mark(mark):
                continue
            self._refuse(option, "one ASCII character" + ("" if option == "separator" else " or None"))
        marks = {name: getattr(self, name) for name in ("separator", "quote", "escape", "comment")}
        for one, other in (("separator", "quote"), ("separator", "escape"), ("separator", "comment"),
                           ("quote", "escape"), ("quote", "comment")):  # fmt: skip
            if marks[one] is not None and marks[one] == marks[other]:
                raise ValueError(f"format csv: {one} and {other} are both {marks[one]!r}; they have to differ")
        if not (isinstance(self.header, bool) or (isinstance(self.header, str) and self.header.strip())):
            self._refuse("header", "True, False, or the text that the header line begins with")
        self._require_number("skip_lines")
        if self.skip_lines and isinstance(self.header, str):
            raise ValueError(
                f"format csv: skip_lines={self.skip_lines} and header={self.header!r} both say where the table "
                "begins; declare one of them"
            )
        if isinstance(self.fields, str) or not all(isinstance(name, str) and name for name in self.fields):
            self._refuse("fields", "a tuple of column names in the order of the file")
        if self.fields and self.header is not False:
            raise ValueError("format csv: fields names the columns, and so does the header; say header=False")
        if twice := sorted({name for name in self.fields if self.fields.count(name) > 1}):
            raise ValueError(f"format csv: fields has {', '.join(map(repr, twice))} twice")
        self._require_bool("trailing_separator")
        self._require_marks()
        object.__setattr__(self, "fields", tuple(self.fields))

    def require_fits(self, owner: str, columns: Mapping[str, str], *, multiline: bool) -> None:
        """Check the options against the columns of a feed. See `TextFormat.require_fits`."""
        super().require_fits(owner, columns, multiline=multiline)
        if self.quote is None and multiline:
            raise ValueError(
                f"{owner}: multiline=True and quote=None: only quotes can hold line breaks; remove one of the two"
            )


@dataclass(frozen=True, kw_only=True)
class Json(TextFormat):
    """JSON: one object per line, a list of objects, or objects in an array inside one object.

    Args:
        rows: The path of the array with the rows, if a file is one object: `Records`, or `data.items`.
        nulls: Texts that mean a missing value, in addition to null.
        typed_nulls: Texts that mean a missing value only in columns of other types than string.
        times: The form of dates and times, by column, as in `Csv`. Columns without a form are ISO 8601.
        timezone: The zone of times that are written without one.

    Raises:
        ValueError: an option is invalid. The message names it.
    """

    rows: str | None = None

    name: ClassVar[str] = Format.JSON

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None and not (isinstance(self.rows, str) and all(self.rows.split("."))):
            self._refuse("rows", "the place of an array, such as 'Records' or 'data.items'")


@dataclass(frozen=True, kw_only=True)
class FixedWidth(TextFormat):
    """Text of fixed width: one row per line, each value at its place in the line. Blanks around values are removed.

    Args:
        columns: The places of values in a line: for each column its width, in the order of the line, or its first
            character and its width, such as `{"id": (1, 6), "name": (7, 20)}`. The first character of a line is 1.
            The width `None` means the rest of the line. The feed does not have to declare every column. Characters
            between two columns are ignored; a line with characters after the last column is rejected.
        skip_lines: Number of lines to skip at the beginning of a file, blank ones included.
        is_trimmed: True if the writer removed blanks at the end of lines, so that lines may be short. Otherwise a
            short line is rejected.
        decimal: The decimal mark of numbers, `.` or `,`.
        thousands: The mark between groups of three digits, as in `Csv`.
        nulls: Texts that mean a missing value. A blank value is always missing.
        typed_nulls: Texts that mean a missing value only in columns of other types than string.
        times: The form of dates and times, by column, as in `Csv`. Columns without a form are ISO 8601.
        timezone: The zone of times that are written without one.

    Raises:
        ValueError: an option is invalid, or two columns share a character. The message names the columns.
    """

    columns: Mapping[str, int | tuple[int, int | None]] = field(default_factory=dict)
    skip_lines: int = 0
    is_trimmed: bool = False
    decimal: str = "."
    thousands: str | None = None

    name: ClassVar[str] = Format.FIXED_WIDTH

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_number("skip_lines")
        self._require_bool("is_trimmed")
        self._require_marks()
        if not (isinstance(self.columns, Mapping) and self.columns and all(map(_is_place, self.columns.values()))):
            self._refuse("columns", "widths such as {'id': 6, 'name': 20}, or places such as {'id': (1, 6)}")
        columns = {name: place if isinstance(place, int) else tuple(place) for name, place in self.columns.items()}
        object.__setattr__(self, "columns", columns)
        if len({isinstance(place, int) for place in self.columns.values()}) > 1:
            self._refuse("columns", "widths only, or places only")
        spans = sorted((begin, end, name) for name, (begin, end) in self.spans.items())
        for (_, end, name), (begin, _, other) in pairwise(spans):
            if begin < end:
                raise ValueError(
                    f"format {self.name}: the columns {name!r} and {other!r} share character {begin + 1} of a line; "
                    "correct their places"
                )

    def require_fits(self, owner: str, columns: Mapping[str, str], *, multiline: bool) -> None:
        """Check the options against the columns of a feed. See `TextFormat.require_fits`."""
        super().require_fits(owner, columns, multiline=multiline)
        if multiline:
            raise ValueError(f"{owner}: a line of fixed width is a row; remove multiline=True")

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self.columns)

    @property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The first character of each column, from 0, and the place after its last one (`REST` if it has no end)."""
        found, at = {}, 0
        for name, place in self.columns.items():
            first, width = (at + 1, place) if isinstance(place, int) else place
            at = REST if width is None else first - 1 + width
            found[name] = first - 1, at
        return found


REST = 1 << 30
"""The end of a column that has the rest of the line."""


def _is_place(place: object) -> bool:
    numbers = [place] if isinstance(place, int) else list(place) if isinstance(place, tuple | list) else []
    if len(numbers) == 2 and numbers[1] is None:
        numbers.pop()
    elif len(numbers) != (1 if isinstance(place, int) else 2):
        return False
    return bool(numbers) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers)


AnyText = Csv | Json | FixedWidth
"""The declared form of text files."""


def _default_of(option: Field[Any]) -> object:
    return option.default if option.default is not MISSING else cast("Callable[[], object]", option.default_factory)()


def _is_mark(mark: object) -> bool:
    return isinstance(mark, str) and len(mark) == 1 and mark.isascii() and mark not in "\0\r\n"
