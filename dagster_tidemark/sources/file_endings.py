"""Formats of files by the endings of their names.

Belongs here: names and endings, which is all that feeds and listings need to know about a format. Does not belong here:
the content of files. A format is one module, registered with `lakehouse.readers.format_registry`, which claims its
endings here.
"""

from collections.abc import Sequence
from enum import StrEnum


class Format(StrEnum):
    """The formats that come with Tidemark, by name."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"
    FIXED_WIDTH = "fixed_width"


GZIP = ".gz"
"""The ending of a compressed text file."""

_NAMES: dict[str, str] = {
    ".csv": Format.CSV,
    f".csv{GZIP}": Format.CSV,
    ".jsonl": Format.JSON,
    f".jsonl{GZIP}": Format.JSON,
    ".json": Format.JSON,
    f".json{GZIP}": Format.JSON,
    ".parquet": Format.PARQUET,
    ".orc": Format.ORC,
    ".avro": Format.AVRO,
    ".fwf": Format.FIXED_WIDTH,
    f".fwf{GZIP}": Format.FIXED_WIDTH,
}
"""The format of each ending."""


def every_ending() -> tuple[str, ...]:
    """Return all endings that are registered so far."""
    return tuple(_NAMES)


def endings_of(name: str) -> tuple[str, ...]:
    """Return the endings of a format."""
    return tuple(ending for ending, named in _NAMES.items() if named == name)


def claim(name: str, endings: Sequence[str]) -> None:
    """Register endings for a format.

    Raises:
        ValueError: an ending is invalid or taken. The message names the format and the ending. Nothing was registered.
    """
    if not endings or isinstance(endings, str):
        raise ValueError(f"format {name}: expected a tuple of endings such as ('.{name}',), found {endings!r}")
    for at, ending in enumerate(endings):
        if len(ending) < 2 or not ending.startswith(".") or "/" in ending:
            raise ValueError(f"format {name}: expected an ending such as '.{name}', found {ending!r}")
        if ending in endings[:at]:
            raise ValueError(f"format {name}: the ending {ending} is listed twice")
        if taken := _NAMES.get(ending.lower()):
            raise ValueError(
                f"format {name}: the ending {ending} already belongs to format {taken}; name another ending here, and "
                f"let the feed say format={name!r}"
            )
    _NAMES.update(dict.fromkeys((ending.lower() for ending in endings), name))


def every_format() -> tuple[str, ...]:
    """Return the names of the formats that are registered so far."""
    return tuple(dict.fromkeys(_NAMES.values()))


def is_registered(name: str) -> bool:
    """Return True if a format of this name is registered."""
    return name in _NAMES.values()


def is_compressed(key: str) -> bool:
    """Return True if a key has the ending of a compressed file."""
    return key.lower().endswith(GZIP)


def ending_of(key: str) -> str | None:
    """Return the longest registered ending of a key, compared without case; None if the key has none."""
    return max((ending for ending in _NAMES if key.lower().endswith(ending)), key=len, default=None)


def format_of(key: str) -> str:
    """Return the format that the ending of a key names; CSV for an unknown ending."""
    ending = ending_of(key)
    return Format.CSV if ending is None else _NAMES[ending]
