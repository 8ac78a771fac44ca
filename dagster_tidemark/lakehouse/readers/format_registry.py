"""Registry of file formats.

See "A format of your own" in docs/feeds.md. Does not belong here: the content of any format.
"""

from __future__ import annotations

from typing import Any

from dagster_tidemark.lakehouse.readers.avro import AVRO
from dagster_tidemark.lakehouse.readers.csv_text import CSV
from dagster_tidemark.lakehouse.readers.file_format import FileFormat
from dagster_tidemark.lakehouse.readers.fixed_width import FIXED_WIDTH
from dagster_tidemark.lakehouse.readers.json_text import JSON
from dagster_tidemark.lakehouse.readers.orc import ORC
from dagster_tidemark.lakehouse.readers.parquet import PARQUET
from dagster_tidemark.sources import file_endings
from dagster_tidemark.sources.feed import Feed

AnyFormat = FileFormat[Any]

_REGISTERED: dict[str, AnyFormat] = {known.name: known for known in (CSV, JSON, PARQUET, ORC, AVRO, FIXED_WIDTH)}


def register_format(added: AnyFormat) -> None:
    """Register a file format. Feeds without declared endings then also accept files with the format's endings.

    Call this in a module that is imported wherever feeds are declared, such as a module in `feeds/`.

    Raises:
        ValueError: another format has the same name, or one of the endings. The message names both formats.
    """
    if added.name in _REGISTERED:
        raise ValueError(
            f"format {added.name}: there is a format of this name already; use it, or name yours otherwise"
        )
    file_endings.claim(added.name, added.endings)
    _REGISTERED[added.name] = added


def format_named(name: str) -> AnyFormat:
    """Return the format with a name.

    Raises:
        ValueError: no format with this name is registered. The message lists the registered formats.
    """
    if name not in _REGISTERED:
        raise ValueError(f"format {name}: it is not registered; there are {', '.join(_REGISTERED)}")
    return _REGISTERED[name]


def format_of(key: str, feed: Feed | None = None) -> AnyFormat:
    """Return the format that the feed of a file declares, or else the format for the ending of the file's key."""
    declared = feed.format_name if feed else None
    return _REGISTERED[file_endings.format_of(key)] if declared is None else format_named(declared)
