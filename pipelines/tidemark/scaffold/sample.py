"""What a sample file says of a feed: its columns, their types, and which of them name a row.

A proposal that a person reads and mends: types are as wide as what is seen suggests, a key is the narrowest that is
unique in the sample. Does not belong here: how files are read (`lakehouse.readers`).
"""

import gzip
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.lakehouse.readers.formats import format_of
from pipelines.tidemark.lakehouse.readers.text import is_over_lines
from pipelines.tidemark.sources.formats import GZIP, ending_of, every_ending

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_EXACT = re.compile(r"[+-]?\d{1,14}\.\d{1,8}")
_NUMBER = re.compile(r"[+-]?\d*\.?\d+([eE][+-]?\d+)?")
_TRUTH = {"true", "false"}
_ROWS = 100_000
_KEY_COLUMNS = 3


class NoSample(Terminal):
    """A sample file that says nothing of a feed. The message says why."""


@dataclass(frozen=True)
class Sample:
    """What a sample file says.

    Args:
        suffix: The ending of the file's name, of those that feeds take.
        columns: Column name to the SQL type proposed, in the file's order.
        key: Columns that tell its rows apart; empty where no few columns do.
        rows: How many rows were looked at.
    """

    suffix: str
    columns: Mapping[str, str]
    key: tuple[str, ...]
    rows: int


def read_sample(path: Path) -> Sample:
    """Look at a sample file of any registered format: CSV with a header, JSON (lines, or one list), Parquet, others.

    Raises:
        NoSample: it is empty, of another format, or no such file.
    """
    suffix = ending_of(path.name)
    read = suffix and format_of(path.name).sample
    if not suffix or not read:
        raise NoSample(f"{path.name}: a sample ends in {', '.join(e for e in every_ending() if format_of(e).sample)}")
    try:
        body = path.read_bytes()
        body = gzip.decompress(body) if suffix.endswith(GZIP) else body
        if suffix.removesuffix(GZIP) == ".jsonl" and is_over_lines("", body, "utf-8"):
            raise ValueError("a line of a .jsonl file is a row; this one goes over several lines: call it .json")
        rows = read(body, _ROWS)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        raise NoSample(f"{path}: {error}") from error
    if not rows:
        raise NoSample(f"{path}: it holds no row")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _type_of([row.get(name) for row in rows]) for name in names}
    return Sample(suffix, columns, _key(rows, names), len(rows))


def _type_of(values: Sequence[object]) -> str:
    """The narrowest SQL type that holds every value, be it typed or text."""
    texts = [_text(value) for value in values if value is not None]
    if not texts:
        return "string"
    for kind, fits in (("boolean", _TRUTH.__contains__), ("bigint", _WHOLE.fullmatch), ("date", _DAY.fullmatch)):
        if all(map(fits, texts)):
            return kind
    if all(_TIME.fullmatch(text) or _DAY.fullmatch(text) for text in texts):
        return "timestamp"
    if all(_WHOLE.fullmatch(text) or _EXACT.fullmatch(text) for text in texts):
        places = max(len(text.partition(".")[2]) for text in texts)
        return f"decimal(18,{max(places, 4)})"
    return "double" if all(map(_NUMBER.fullmatch, texts)) else "string"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f") if value == value and abs(value) < 1e14 else "nan"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> tuple[str, ...]:
    """The fewest columns that tell the rows apart, ids before others."""
    likely = sorted(names, key=lambda name: (not re.search(r"(^|_)(id|key|code|number|no)$", name.lower()),))
    for count in range(1, min(_KEY_COLUMNS, len(names)) + 1):
        for chosen in itertools.combinations(likely[:8], count):
            values = [tuple(repr(row.get(name)) for name in chosen) for row in rows]
            if len(set(values)) == len(values) and not any(row.get(name) is None for row in rows for name in chosen):
                return tuple(sorted(chosen, key=names.index))
    return ()
