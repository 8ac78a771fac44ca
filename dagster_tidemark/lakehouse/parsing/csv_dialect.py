"""The exact rule for CSV: one line at a time, with its values, quotes and comments, and the lines above the header.

Belongs here: everything that depends on the separators and other marks of a feed. Does not belong here: reading many
lines at once (`csv_rows`), and records of several lines (`records`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dagster_tidemark.lakehouse.readers.text import BLANKS, TextRecord
from dagster_tidemark.sources.text_formats import Csv

NAMES_OF_LOG = "#Fields:"
"""The beginning of the lines that name the columns in the W3C extended logs of web servers."""

BEGINS_OF_NAMES = (NAMES_OF_LOG, "#fields\t")
"""The same, and that of the logs of Zeek."""


def names_in_log(line: str) -> list[str] | None:
    """Return the names in a line `#Fields:`; None for other lines."""
    begin = next((begin for begin in BEGINS_OF_NAMES if line.startswith(begin)), None)
    return line.removeprefix(begin).split() if begin else None


class Dialect:
    """The separator, quote and other marks of a CSV file, and how to read a line with these marks.

    Args:
        declared: The declared CSV format; None means commas and double quotes.

    Attributes:
        plain: RE2 pattern that matches a record without quotes, or with quotes only around whole values.
        blanks: Characters that a blank line may have.
    """

    def __init__(self, declared: Csv | None = None) -> None:
        declared = declared or Csv()
        self.separator, self.quote, self.escape = declared.separator, declared.quote, declared.escape
        self.comment, self.nulls = declared.comment, frozenset(declared.nulls)
        self.trailing_separator = declared.trailing_separator
        self.fields = None if declared.header is not False else declared.fields
        self.skip_lines = declared.skip_lines
        self.header_begins = declared.header if isinstance(declared.header, str) else None
        self.blanks = "".join(c for c in BLANKS if c not in (self.separator, self.quote, self.escape))
        s, q = re.escape(self.separator), re.escape(self.quote or "")
        plain = rf"(?:{q}(?:[^{q}]|{q}{q})*{q}|[^{q}{s}\n]*)" if q else rf"[^{s}\n]*"
        self.plain = rf"^{plain}(?:{s}{plain})*\r?\n?$"
        # The quantifiers are possessive, so that a long line is searched only once.
        if not q:
            self._terminated = None
        elif self.escape is None:
            of_field = rf"(?:{q}[^{q}]*+(?:{q}{q}[^{q}]*+)*+{q}[^{s}]*+|(?!{q})[^{s}]*+)"
            self._terminated = re.compile(rf"^{of_field}(?:{s}{of_field})*+$")
        else:
            e = re.escape(self.escape)
            inner = rf"(?:[^{q}{e}]++|{q}{q}|{e}.)*+"
            outer = rf"(?:[^{s}{e}]++|{e}.?)*+"
            of_field = rf"(?:{q}{inner}{q}{outer}|(?!{q}){outer})"
            self._terminated = re.compile(rf"^{of_field}(?:{s}{of_field})*+$", re.S)

    @property
    def has_header(self) -> bool:
        """True if a line names the columns."""
        return self.fields is None

    @property
    def has_lines_ahead(self) -> bool:
        """True if there are lines above the header, which must be skipped."""
        return bool(self.skip_lines) or self.header_begins is not None

    @property
    def may_be_log(self) -> bool:
        """True if lines `#Fields:` name the columns of a file: no header does, and the feed skips such lines."""
        return self.fields is not None and (self.comment == NAMES_OF_LOG[0] or self.skip_lines > 0)

    def names_ahead(self, lines: Sequence[TextRecord]) -> list[str] | None:
        """Return the names in the first line `#Fields:` above the rows of a log; None if there is none."""
        begin = next((n for n, line in enumerate(lines) if n >= self.skip_lines and self._is_row(line.text)), None)
        named = (names_in_log(line.text) for line in lines[:begin])
        return next((names for names in named if names), None)

    def _is_row(self, line: str) -> bool:
        return bool(line.strip(self.blanks)) and not line.startswith(NAMES_OF_LOG[0])

    def is_terminated(self, line: str) -> bool:
        """Return True if the quotes of a line are closed."""
        return self._terminated is None or self._terminated.match(line) is not None

    def is_record(self, line: str) -> bool:
        """Return True if a line is neither blank nor a comment."""
        return bool(line.strip(self.blanks)) and not (self.comment and line.startswith(self.comment))

    def continued(self, line: str) -> str:
        """Return a line that begins inside quotes as a line that begins with a quote, which is read in the same way."""
        return f"{self.quote}{line}"

    def fields_of(self, line: str) -> list[str]:
        """Return the values of a line as Spark's parser does, also for misplaced quotes."""
        if (self.quote is None or self.quote not in line) and (self.escape is None or self.escape not in line):
            return line.split(self.separator)
        fields, at = [], 0
        while at <= len(line):
            is_quoted = self.quote is not None and line.startswith(self.quote, at)
            value, at = self._quoted_field(line, at) if is_quoted else self._plain_field(line, at)
            fields.append(value)
            at += 1
        return fields

    def row_of(self, line: str, width: int) -> list[str] | int:
        """Return the values of a line if it has `width` values; otherwise return the number of its values."""
        fields = self.fields_of(line)
        if self.trailing_separator:
            if len(fields) < 2 or fields[-1]:
                return len(fields)
            fields.pop()
        return fields if len(fields) == width else len(fields)

    def names_of(self, header: str) -> list[str]:
        """Return the names of the columns in a header line."""
        names = [name.strip() for name in self.fields_of(header)]
        return names[:-1] if self.trailing_separator and len(names) > 1 and not names[-1] else names

    def begin_of_table(self, lines: Sequence[TextRecord], skipped: int = 0) -> int | None:
        """Return the number of lines above the header; None if the header is not among these lines.

        Args:
            skipped: Number of lines that come before `lines`. All of them are above the header.
        """
        if self.header_begins is None:
            rest = self.skip_lines - skipped
            return rest if rest < len(lines) else None
        return next((n for n, line in enumerate(lines) if self._is_header(line.text)), None)

    def _is_header(self, line: str) -> bool:
        return line.removeprefix(self.quote or "").startswith(self.header_begins or "")

    def _plain_field(self, line: str, begin: int) -> tuple[str, int]:
        if self.escape is None:
            end = line.find(self.separator, begin)
            end = len(line) if end < 0 else end
            return line[begin:end], end
        end = begin
        while end < len(line) and line[end] != self.separator:
            end += 2 if line[end] == self.escape else 1
        end = min(end, len(line))
        return self._unescaped(line[begin:end]), end

    def _unescaped(self, raw: str) -> str:
        """Return a value without escapes. A text that means a missing value, such as `\\N`, stays unchanged."""
        if self.escape is None or self.escape not in raw or raw in self.nulls:
            return raw
        return re.sub(re.escape(self.escape) + "(.)", r"\1", raw, flags=re.S)

    def _quoted_field(self, line: str, begin: int) -> tuple[str, int]:
        """Return the value that begins with the quote at `begin`, and the place of the next separator."""
        quote = self.quote or ""
        value, at = "", begin + 1
        while (end := self._next_quote(line, at)) >= 0:
            value += self._unescaped(line[at:end])
            if not line.startswith(quote * 2, end):
                after = next(
                    (i for i in range(end + 1, len(line)) if line[i] > " " or line[i] == self.separator), len(line)
                )
                if after == len(line) or line[after] == self.separator:
                    return value, after
                # A separator must follow a closing quote. Otherwise the value counts as unquoted.
                rest, after = self._plain_field(line, end)
                return f"{quote}{value}{rest}", after
            value, at = value + quote, end + 2
        return (value + self._unescaped(line[at:]) or quote), len(line)

    def _next_quote(self, line: str, at: int) -> int:
        if self.escape is None:
            return line.find(self.quote or "", at)
        while at < len(line) and line[at] != self.quote:
            at += 2 if line[at] == self.escape else 1
        return at if at < len(line) else -1
