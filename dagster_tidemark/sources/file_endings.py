"""Which formats files have, told by the endings of their names.

Belongs here: names and endings, which is all that a feed and a listing need to know of a format. Does not belong here:
what is in a file. A format is one module, registered with `lakehouse.readers.format_registry`, which claims its endings
here.
"""

from collections.abc import Sequence
from enum import StrEnum


class Format(StrEnum):
    """The formats that come with Tidemark, by name."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


GZIP = ".gz"
"""The ending of a compressed text."""

_NAMES: dict[str, str] = {
    ".csv": Format.CSV,
    f".csv{GZIP}": Format.CSV,
    ".jsonl": Format.JSON,
    f".jsonl{GZIP}": Format.JSON,
    ".json": Format.JSON,
    f".json{GZIP}": Format.JSON,
    ".parquet": Format.PARQUET,
}
"""The format that an ending says."""


def every_ending() -> tuple[str, ...]:
    """Every ending that is known by now."""
    return tuple(_NAMES)


def endings_of(name: str) -> tuple[str, ...]:
    """The endings of a format."""
    return tuple(ending for ending, named in _NAMES.items() if named == name)


def claim(name: str, endings: Sequence[str]) -> None:
    """Let these endings say this format.

    Raises:
        ValueError: they cannot; the message names the format and the ending, and nothing was claimed.
    """
    if not endings or isinstance(endings, str):
        raise ValueError(f"format {name}: endings are a tuple such as ('.{name}',), not {endings!r}")
    for at, ending in enumerate(endings):
        if len(ending) < 2 or not ending.startswith(".") or "/" in ending:
            raise ValueError(f"format {name}: an ending begins with '.', unlike {ending!r}")
        if ending in endings[:at]:
            raise ValueError(f"format {name}: the ending {ending} stands there twice")
        if ending in _NAMES:
            raise ValueError(f"format {name}: the ending {ending} is taken by format {_NAMES[ending]}")
    _NAMES.update(dict.fromkeys(endings, name))


def ending_of(key: str) -> str | None:
    """The longest known ending that a key's name has."""
    return max((ending for ending in _NAMES if key.endswith(ending)), key=len, default=None)


def format_of(key: str) -> str:
    """The format that a key's name says; of a name with another ending that of plain text, CSV."""
    ending = ending_of(key)
    return Format.CSV if ending is None else _NAMES[ending]
