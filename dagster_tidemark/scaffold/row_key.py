"""Guesses the columns that identify a row, from a sample.

A guess needs evidence, because a table keeps only one of two rows with the same key. A column without repeated values
is not enough: five trips may happen to have five different durations.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from dagster_tidemark.scaffold.column_types import words_of

Row = Mapping[str, object]

ENOUGH_ROWS = 20
"""An id counts as the key only if it is unique in at least this many rows. For the feed's own id, two are enough."""

_IDS = {"id", "uuid", "guid"}
_NUMBERS = {"key", "code", "no", "nr", "number", "num", "ref"}
_SEQUENCES = {"line", "item", "position", "pos", "seq", "sequence", "index", "lineno", "linenumber"}
_TYPES = {"string", "bigint", "int", "decimal(38,0)"}
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)


@dataclass(frozen=True)
class Guess:
    """A key that a sample suggests, and the reason. If no key is suggested, `evidence` explains why."""

    columns: tuple[str, ...]
    evidence: str


def guessed(feed: str, types: Mapping[str, str], rows: Sequence[Row]) -> Guess:
    """Return the key that a sample suggests.

    Args:
        feed: The feed's name. It tells the feed's own id from other ids: for a feed `trips`, `trip_id`.
        types: Column name to SQL type, in the file's order.
    """
    filled = [c for c in types if types[c] in _TYPES and all(row.get(c) is not None for row in rows)]
    unique = [c for c in filled if len(rows) > 1 and not repeated((c,), types, rows)]
    own = [c for c in unique if _is_own_id(feed, c)]
    if own:
        return Guess((own[0],), f"{own[0]} is named like the id of {feed} and unique in the sample's {len(rows)} rows")
    for column, number in _numbered(filled, rows):
        return Guess(
            (column, number), f"{number} counts the rows of each {column}, in all {len(rows)} rows of the sample"
        )
    if len(rows) < ENOUGH_ROWS:
        few = "one row is" if len(rows) == 1 else f"{len(rows)} rows are"
        return Guess((), f"no column is named like the id of {feed}, and {few} too few for a guess")
    like_ids = [c for c in unique if _is_like_id(c, rows)]
    if len(like_ids) == 1:
        return Guess((like_ids[0],), f"{like_ids[0]} looks like an id and is unique in the sample's {len(rows)} rows")
    if like_ids:
        return Guess((), f"{', '.join(like_ids)} are each unique in the sample's {len(rows)} rows, perhaps by chance")
    return Guess((), f"no column that looks like an id is unique in the sample's {len(rows)} rows")


def repeated(key: Sequence[str], types: Mapping[str, str], rows: Sequence[Row]) -> int:
    """Return the number of rows that repeat the key of an earlier row."""
    return len(rows) - len({tuple(_meant(row.get(c), types[c]) for c in key) for row in rows})


def _meant(value: object, kind: str) -> object:
    """Return a value as a table compares it: 1.10 equals 1.1, and times of different zones compare as instants."""
    if value is not None and kind.startswith("decimal"):
        return Decimal(str(value))
    if value is not None and kind == "timestamp":
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return str(value)


def _is_own_id(feed: str, column: str) -> bool:
    words, name = words_of(column), "".join(words_of(feed))
    singular = {name, name.removesuffix("s"), name.removesuffix("es"), re.sub("ies$", "y", name)}
    singular |= {re.sub("s$", "", word) for word in words_of(feed)[-1:]}
    if words and words[-1] in _IDS and (len(words) == 1 or "".join(words[:-1]) in singular):
        return True
    return "".join(words) in {f"{each}{end}" for each in singular for end in (*_IDS, *_NUMBERS)}


def _is_like_id(column: str, rows: Sequence[Row]) -> bool:
    words = words_of(column)
    return bool(words) and (words[-1] in _IDS or all(_UUID.fullmatch(str(row.get(column))) for row in rows))


def _numbered(filled: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield pairs of an id column and a column that counts from 1 within each id, such as orders and their lines."""
    ids = [c for c in filled if words_of(c)[-1:] and words_of(c)[-1] in _IDS]
    numbers = [c for c in filled if _SEQUENCES & set(words_of(c))]
    for column, number in ((column, number) for column in ids for number in numbers if number != column):
        by_id: dict[str, list[str]] = {}
        for row in rows:
            by_id.setdefault(str(row[column]), []).append(str(row[number]))
        counts = [found == [str(n) for n in range(1, len(found) + 1)] for found in by_id.values()]
        if all(counts) and len(by_id) < len(rows):
            yield column, number
