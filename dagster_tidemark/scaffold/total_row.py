"""Finds a total below the rows of a sample, such as the line `Total;;1.229,56` of a bank.

A total that is taken for a row is counted twice by every sum, and its word makes a column of days or numbers a column
of texts. Does not belong here: reading of samples (`sample`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TOTAL = re.compile(
    r"(grand |sub-?)?totals?|sum|summe|gesamt(summe|betrag)?|insgesamt|somme|totale|suma|saldo|balance", re.IGNORECASE
)
"""Words for a total in English, German, French, Italian and Spanish."""


@dataclass(frozen=True)
class TotalRow:
    """The last row of a sample, if it is a total of the others.

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
