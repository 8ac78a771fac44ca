"""Notes on a sample for the user: rows that a load would reject, a total below the rows, and uncertain findings.

Does not belong here: reading of samples (`sample`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format

_SHOWN = 5  # maximum number of rows or names listed in a message
_VALUE = re.compile(r"[+-]?[\d.,]*\d[\d.,]*|\d{4}-\d\d-\d\d.*")


class RejectedRow(NamedTuple):
    """A rejected row's content, and the reason for the rejection."""

    content: str
    why: str


def rejections(wrong: Sequence[tuple[int, RejectedRow]], of: int) -> list[str]:
    """Return a line for each reason why rows would be rejected, with the numbers of the first affected rows."""
    said = []
    for why in dict.fromkeys(fault.why for _, fault in wrong):
        at = [n for n, fault in wrong if fault.why == why]
        rows = ", ".join(map(str, at[:_SHOWN])) + (f" and {len(at) - _SHOWN} more" if len(at) > _SHOWN else "")
        first = next(fault.content for _, fault in wrong if fault.why == why)
        said.append(f"{len(at)} of {of} rows left out (row {rows}): {why}: {first[:60]!r}")
    return said


def notes_on(names: Sequence[str], rows: Sequence[Mapping[str, object]], text: bytes, feed: Feed) -> list[str]:
    """Return what looks wrong in a sample that can be loaded."""
    notes = []
    if odd := [name for name in names if _VALUE.fullmatch(name) or name.startswith("# ")]:
        notes.append(f"the first line is taken for names, and {', '.join(map(repr, odd[:_SHOWN]))} look like others")
    if again := [n for n, row in enumerate(rows, 1) if _is_header(row, names)]:
        notes.append(f"row {', '.join(map(str, again[:_SHOWN]))} repeats the names of the columns")
    if blank := [n for n, row in enumerate(rows, 1) if row and not any(v is not None for v in row.values())]:
        notes.append(f"row {', '.join(map(str, blank[:_SHOWN]))} has no value, and is loaded as a row")
    if marked := [n for n, row in enumerate(rows, 1) if str(next(iter(row.values()), "")).startswith("\ufeff")]:
        notes.append(f"row {', '.join(map(str, marked[:_SHOWN]))} begins with a byte order mark: were files joined?")
    if cut := [name for name in names if any(getattr(row.get(name), "nanosecond", 0) for row in rows)]:
        notes.append(
            f"times of {', '.join(map(repr, cut[:_SHOWN]))} have nanoseconds, which no timestamp holds: kept as text"
        )
    if feed.encoding not in ("utf-8", "ascii") and not text.isascii() and _is_utf_8(text):
        notes.append(f"its text is valid UTF-8 and is read as {feed.encoding}: is --encoding right?")
    return notes


def notes_on_json(format: str, rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a note if the rows of a JSON sample may be inside of its only object."""
    if format != Format.JSON or len(rows) != 1:
        return []
    arrays = {name: value for name, value in rows[0].items() if isinstance(value, list) and len(value) > 1}
    of_objects = [name for name, value in arrays.items() if all(isinstance(each, dict) for each in value)]
    if of_objects:
        places = " or ".join(f"--rows {name}" for name in of_objects[:_SHOWN])
        return [f"it is one row with arrays of objects; if these are the rows, give {places}"]
    if len(arrays) == len(rows[0]) > 1 and len({len(value) for value in arrays.values()}) == 1:
        return ["it is one row of arrays; if they are columns, write the file with one object for each row"]
    return []


def _is_header(row: Mapping[str, object], names: Sequence[str]) -> bool:
    """Return True if a row repeats the names of its columns. A byte order mark ahead of it changes nothing."""
    return all(str(row.get(name)).removeprefix("\ufeff") == name for name in names)


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


_TOTAL = re.compile(
    r"(grand |sub-?)?totals?|sum|summe|gesamt(summe|betrag)?|insgesamt|somme|totale|suma|saldo|balance", re.IGNORECASE
)
"""Words for a total in English, German, French, Italian and Spanish."""


@dataclass(frozen=True)
class TotalRow:
    """The last row of a sample, if it is a total of the others, such as the line `Total;;1.229,56` of a bank.

    Every sum would count it twice, and its word would make a column of days or numbers a column of texts.

    Args:
        column: The column that holds the word for it.
        is_rejected: True if a load rejects the row, because the word is no value of the column's type.
    """

    column: str
    shown: str
    is_rejected: bool


def column_of_total(rows: Sequence[Mapping[str, object]]) -> str | None:
    """Return the column whose value in the last row is a word for a total, or None.

    The word is the first value of the row, no other row has it there, and another value follows.
    """
    if len(rows) < 2:
        return None
    filled = [(name, str(value)) for name, value in rows[-1].items() if value is not None]
    if len(filled) < 2:
        return None
    name, word = filled[0]
    if not _TOTAL.fullmatch(word.strip(" :")):
        return None
    return None if any(row.get(name) == word for row in rows[:-1]) else name


def note_on_total(total: TotalRow | None) -> list[str]:
    """Return a note if a total is loaded as a row."""
    if total is None or total.is_rejected:
        return []
    return [f"the last row looks like a total of the others, and is loaded as a row: {total.shown[:60]!r}"]
