"""The ORC format: finds the shape of a file from the footer, and reads samples. `parsing.orc_rows` reads the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagster_tidemark.lakehouse.parsing import orc_rows
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, FileBytes, Part, equal_parts
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_LARGEST_FOOTER = 64 << 20
_LARGEST_STRIPE = 64 << 20
"""Largest average size of the stripes of a file that is read in parts, because a part has a stripe in memory."""


@dataclass(frozen=True)
class OrcShape(Shape):
    """Physical form of an ORC file.

    Args:
        stripes: Number of stripes.
    """

    stripes: int = 1


def _shape(feed: Feed, source: FileBytes) -> OrcShape:
    if not source.size:
        raise Unusable("empty", "the file is empty")
    with orc_rows.orc_faults():
        file = orc_rows.opened(source, _LARGEST_FOOTER)
        columns = Shape.of_arrow(Format.ORC, file.schema).columns
        return OrcShape(Format.ORC, columns, stripes=file.nstripes)


def _parts(shape: OrcShape, key: str, size: int, about: int) -> Sequence[Part]:
    if shape.stripes < 2 or size // shape.stripes > _LARGEST_STRIPE:
        return (WHOLE,)
    return equal_parts(size, max(about, size // shape.stripes))


def _sample(body: bytes, limit: int) -> list[dict[str, Any]]:
    with orc_rows.orc_faults():
        rows: list[dict[str, Any]] = orc_rows.opened(MemoryFile("", body)).read().slice(0, limit).to_pylist()
        return rows


ORC = FileFormat(
    name=Format.ORC,
    endings=endings_of(Format.ORC),
    shape=_shape,
    rows_of=orc_rows.rows_of,
    parts=_parts,
    sample=_sample,
)
