"""Detection of lines that continue the record of an earlier line, in a feed whose records are single lines.

If a value has a line break and the feed does not declare `multiline`, each line of the record is malformed. The first
line has an open quote. A later line may have the right number of values by chance, and would be loaded as a good row.
Does not belong here: values of lines (`csv_dialect`), and records of several lines (`csv_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.kernels import Mask, bytes_of
from dagster_tidemark.lakehouse.readers.text import NOT_CLOSED, TextRecord

REACH = 20
"""Number of records after an open quote that are searched for the closing quote. The limit prevents that one stray
quote rejects the rest of a file."""

Records: TypeAlias = pa.BinaryArray | list[TextRecord]
"""Records without blank records. An array has only valid UTF-8, with line ends. A list may have faulty records."""


@dataclass(frozen=True)
class Marked:
    """Records, with a mask for each property. A mask is None if no record has the property.

    Args:
        odd: True for a record with a quote that is not around a whole value.
        continuing: True for a record that continues the record of an earlier line.
    """

    records: Records
    odd: Mask | None = None
    continuing: Mask | None = None

    def slice(self, begin: int, end: int | None) -> Marked:
        """Return the records from `begin` to `end`, or to the last one."""
        odd, continuing = (None if mask is None else mask[begin:end] for mask in (self.odd, self.continuing))
        return Marked(self.records[begin:end], odd, continuing)


def marked(
    dialect: Dialect, batches: Iterable[Records], before: Callable[[], list[str]], after: Callable[[], list[str]]
) -> Iterator[Marked]:
    """Mark the records of a part of a file.

    Args:
        before: Returns the records before the part: at least the last `REACH`, or all if the file has fewer.
        after: Returns the first `REACH` records after the part.
    """
    rest = iter(batches)
    held: Records = []
    while len(held) < REACH and (records := next(rest, None)) is not None:
        held = _joined(dialect, held, records)
    if len(held) < REACH:
        found, _ = _marked(dialect, _joined(dialect, held, _array_of(after())))
        yield _continuing_those(dialect, before(), found).slice(0, len(held))
        return
    found, undecided = _marked(dialect, held)
    if found.odd is not None and found.odd[:REACH].any():
        found = _continuing_those(dialect, before(), found)
    while True:
        held = [] if undecided is None else found.records[undecided:]
        if undecided != 0:
            yield found.slice(0, undecided)
        if (records := next(rest, None)) is None:
            break
        found, undecided = _marked(dialect, _joined(dialect, held, records))
    if len(held):
        found, _ = _marked(dialect, _joined(dialect, held, _array_of(after())))
        yield found.slice(0, len(held))


def odd_quotes(dialect: Dialect, records: Records) -> Mask | None:
    """Return a mask of the records with a quote that is not around a whole value; None if no record has one."""
    if isinstance(records, list):
        texts = pa.array([f"{record.text}\n" for record in records], pa.string())
    else:
        _, _, data = bytes_of(records)
        if not dialect.quote or not (data == ord(dialect.quote)).any():
            return None
        # The pattern is matched against text, because `[^"]` means one character, not one byte.
        texts = records.view(pa.string())
    mask: Mask = ~pc.match_substring_regex(texts, dialect.plain).to_numpy(zero_copy_only=False)
    return mask if mask.any() else None


def _marked(dialect: Dialect, records: Records) -> tuple[Marked, int | None]:
    """Return records with their masks, and the place of the first record that only later records can decide."""
    odd = odd_quotes(dialect, records)
    if odd is None:
        return Marked(records), None
    continuing = np.zeros(len(records), np.bool_)
    for at in np.flatnonzero(odd).tolist():
        if dialect.is_terminated(_text(records, at)):
            continue
        end = _end_of(dialect, records, odd, at)
        if end is None:
            return Marked(records, odd, continuing if continuing.any() else None), at
        continuing[at + 1 : end] = True
    return Marked(records, odd, continuing if continuing.any() else None), None


def _end_of(dialect: Dialect, records: Records, odd: Mask, begin: int) -> int | None:
    """Return the end of the records that continue the open record at `begin`.

    Returns:
        `begin` + 1 if no record continues it; None if this depends on records that are not read yet.
    """
    for at in range(begin + 1, begin + 1 + REACH):
        if at >= len(records):
            return None
        text = _text(records, at)
        if (dialect.quote or "") not in text:
            continue
        if not odd[at]:
            break
        if not dialect.is_terminated(text):
            # Otherwise it begins a value of its own, and neither line says anything about those in between.
            return at if _ends_a_value(dialect, text) else begin + 1
        if dialect.is_terminated(dialect.continued(text)):
            return at + 1
    return begin + 1


def _ends_a_value(dialect: Dialect, text: str) -> bool:
    """Return True if a separator or the end of the line follows the first quote of a text that is not doubled."""
    quote = dialect.quote or ""
    rest = text.replace(quote * 2, "").partition(quote)[2].lstrip(dialect.blanks)
    return not rest or rest.startswith(dialect.separator)


def _continuing_those(dialect: Dialect, before: list[str], found: Marked) -> Marked:
    """Mark the records that continue one of the records before the part."""
    if not before:
        return found
    first = [_text(found.records, at) for at in range(min(REACH, len(found.records)))]
    together, _ = _marked(dialect, [TextRecord(text) for text in (*before, *first)])
    if together.continuing is None or not together.continuing[len(before) :].any():
        return found
    continuing = np.zeros(len(found.records), np.bool_) if found.continuing is None else found.continuing.copy()
    continuing[: len(first)] |= together.continuing[len(before) :]
    return Marked(found.records, found.odd, continuing)


def _array_of(texts: Iterable[str]) -> pa.BinaryArray:
    return pa.array([f"{text}\n".encode() for text in texts], pa.binary())


def _text(records: Records, at: int) -> str:
    text: str = records[at].text if isinstance(records, list) else records[at].as_py().decode()
    return text.removesuffix("\n")


def _joined(dialect: Dialect, one: Records, other: Records) -> Records:
    if not len(one):
        return other
    if not isinstance(one, list) and not isinstance(other, list):
        return pa.concat_arrays([one, other])
    return [*_as_list(dialect, one), *_as_list(dialect, other)]


def _as_list(dialect: Dialect, records: Records) -> list[TextRecord]:
    if isinstance(records, list):
        return records
    texts = [_text(records, at) for at in range(len(records))]
    return [TextRecord(text, None if dialect.is_terminated(text) else NOT_CLOSED) for text in texts]
