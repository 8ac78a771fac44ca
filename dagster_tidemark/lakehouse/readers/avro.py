"""The Avro format: finds the shape of a file from the header, and reads samples. `parsing.avro_rows` reads the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagster_tidemark.lakehouse.parsing import avro_rows
from dagster_tidemark.lakehouse.parsing.avro_blocks import header_of
from dagster_tidemark.lakehouse.parsing.avro_types import AvroSchema
from dagster_tidemark.lakehouse.parsing.rows import FileBytes, Part, equal_parts
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of


def _shape(feed: Feed, source: FileBytes) -> Shape:
    if not source.size:
        raise Unusable("empty", "the file is empty")
    avro_rows.require_library()
    found = AvroSchema.of(header_of(source).schema).columns
    return Shape(Format.AVRO, tuple(sorted((name, str(of.arrow)) for name, of in found.items())))


def _parts(shape: Shape, key: str, size: int, about: int) -> Sequence[Part]:
    # Parts do not have to match blocks: a task finds the first block by the marker that precedes it.
    return equal_parts(size, about)


def _sample(body: bytes, limit: int) -> list[dict[str, Any]]:
    source = MemoryFile("", body)
    header = header_of(source)
    schema = AvroSchema.of(header.schema)
    columns = {name: of for name, of in schema.columns.items() if of.arrow is not None}
    rows: list[dict[str, Any]] = []
    for batch in avro_rows.batches_of(source, header, schema, columns):
        some = batch.slice(0, limit - len(rows)).to_pylist()
        rows += [{name: value for name, value in row.items() if name in columns} for row in some]
        if len(rows) >= limit:
            break
    return rows


AVRO = FileFormat(
    name=Format.AVRO,
    endings=endings_of(Format.AVRO),
    shape=_shape,
    rows_of=avro_rows.rows_of,
    parts=_parts,
    sample=_sample,
)
