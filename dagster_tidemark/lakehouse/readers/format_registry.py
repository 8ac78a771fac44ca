"""The formats that files may have: the one place where they are registered.

Whoever reads a file asks here for its format. To add one, see "A format of your own" in docs/feeds.md. Does not belong
here: anything about a format but that it is there.
"""

from __future__ import annotations

from typing import Any

from dagster_tidemark.lakehouse.readers.csv_text import CSV
from dagster_tidemark.lakehouse.readers.file_format import FileFormat
from dagster_tidemark.lakehouse.readers.json_text import JSON
from dagster_tidemark.lakehouse.readers.parquet import PARQUET
from dagster_tidemark.sources import file_endings

AnyFormat = FileFormat[Any]

_REGISTERED: dict[str, AnyFormat] = {known.name: known for known in (CSV, JSON, PARQUET)}


def register_format(added: AnyFormat) -> None:
    """Have files of a format read: from now on its endings are data to every feed that does not declare its own.

    Call it in a module that is imported wherever feeds are declared, such as one in `feeds/`.

    Raises:
        ValueError: its name or one of its endings is taken; the message names both formats.
    """
    if added.name in _REGISTERED:
        raise ValueError(f"format {added.name}: there is a format of this name already")
    file_endings.claim(added.name, added.endings)
    _REGISTERED[added.name] = added


def format_named(name: str) -> AnyFormat:
    """A registered format.

    Raises:
        ValueError: there is none of this name; the message names those there are.
    """
    if name not in _REGISTERED:
        raise ValueError(f"format {name}: it is not registered; there are {', '.join(_REGISTERED)}")
    return _REGISTERED[name]


def format_of(key: str) -> AnyFormat:
    """The format that a key's name says."""
    return _REGISTERED[file_endings.format_of(key)]
