"""The Avro format: the shape of a file from its header, its rows, and samples.

A part of a file has the blocks that begin in its bytes. The library fastavro decodes rows: it gets blocks without
compression, and a schema without logical types. Does not belong here: blocks (`parsing.avro_blocks`), and types
(`parsing.avro_types`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

import pyarrow as pa

from dagster_tidemark.lakehouse.parsing.avro_blocks import (
    MAGIC,
    Block,
    Header,
    blocks_of,
    damaged,
    header_of,
    number_as_bytes,
)
from dagster_tidemark.lakehouse.parsing.avro_types import AvroSchema, AvroType, column_of
from dagster_tidemark.lakehouse.parsing.rows import WHOLE, DeclaredContent, FileBytes, Part, Rows, equal_parts
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile, ReaderMissing, StoreFault
from dagster_tidemark.lakehouse.parsing.typed_rows import MOST_BYTES, MOST_ROWS, rows_of_table
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape
from dagster_tidemark.lakehouse.readers.files import LIMITS_OF_ARROW, Unusable
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_SYNC = bytes(16)


def rows_of(declared: DeclaredContent, shape: Any, source: FileBytes, part: Part = WHOLE) -> Iterator[Rows]:
    """Return the rows of a part of a file (`rows.RowsOf`), in the order of the file's bytes.

    Raises:
        Unusable: the file is not an Avro file, is damaged, or has a declared column of a type that is not read.
        ReaderMissing: this process lacks fastavro.
    """
    require_library()
    header = header_of(source)
    schema = AvroSchema.of(header.schema)
    columns = columns_of(declared, schema)
    for batch in batches_of(source, header, schema, columns, part):
        yield rows_of_table(declared, batch)


def batches_of(
    source: FileBytes, header: Header, schema: AvroSchema, columns: Mapping[str, AvroType], part: Part = WHOLE
) -> Iterator[pa.RecordBatch]:
    """Return some columns of the rows of a part of a file.

    Raises:
        Unusable: the file is damaged.
    """
    for records in _records(schema, blocks_of(source, header, part)):
        try:
            arrays = {name: column_of(of, [record[name] for record in records]) for name, of in columns.items()}
        except LIMITS_OF_ARROW:
            raise
        except pa.ArrowException as error:
            raise damaged(str(error)) from error
        # A batch without columns would have no rows.
        yield pa.RecordBatch.from_pydict(arrays or {"": pa.nulls(len(records))})


def require_library() -> None:
    """Raise ReaderMissing if this process lacks fastavro."""
    try:
        import fastavro  # noqa: F401, PLC0415 - an extra, which workers may lack
    except ImportError as error:
        raise ReaderMissing(
            "reading Avro needs the library fastavro: pip install 'dagster-tidemark[avro]' here, and fastavro where "
            f"Spark's workers run ({error})"
        ) from error


def columns_of(declared: DeclaredContent, schema: AvroSchema) -> dict[str, AvroType]:
    """Return the types of the declared columns that a file has, by their names in the file.

    Raises:
        Unusable: a type is not read. The message names the column.
    """
    names = declared.found_in(schema.columns.keys()).values()
    for name in names:
        if schema.columns[name].arrow is None:
            raise Unusable(
                "unreadable", f"column {name} is {schema.columns[name].why}, which is not read; write it as a text"
            )
    return {name: schema.columns[name] for name in names}


class _Stream:
    """File object with a header and blocks without compression, for fastavro."""

    def __init__(self, schema: AvroSchema, blocks: Iterator[Block]) -> None:
        values = {b"avro.schema": schema.decoded, b"avro.codec": b"null"}
        texts = b"".join(number_as_bytes(len(text)) + text for pair in values.items() for text in pair)
        self._held = io.BytesIO(MAGIC + number_as_bytes(len(values)) + texts + b"\0" + _SYNC)
        self._blocks = blocks
        self.size = 0

    def read(self, length: int) -> bytes:
        found = self._held.read(length)
        while len(found) < length and (block := next(self._blocks, None)) is not None:
            self.size += len(block.content)
            numbers = number_as_bytes(block.rows) + number_as_bytes(len(block.content))
            self._held = io.BytesIO(numbers + block.content + _SYNC)
            found += self._held.read(length - len(found))
        return found

    def tell(self) -> int:
        """Return any number: fastavro keeps the places of blocks, and nothing reads them."""
        return 0


def _records(schema: AvroSchema, blocks: Iterator[Block]) -> Iterator[list[dict[str, Any]]]:
    """Return decoded rows in batches."""
    import fastavro  # noqa: PLC0415 - see `require_library`

    stream = _Stream(schema, blocks)
    held: list[dict[str, Any]] = []
    size = 0
    try:
        for block in fastavro.block_reader(cast("IO[bytes]", stream)):
            for record in block:
                held.append(record)  # type: ignore[arg-type]  # rows are records
                if len(held) == MOST_ROWS or stream.size - size > MOST_BYTES:
                    yield held
                    held, size = [], stream.size
            if block.bytes_.read(1):  # type: ignore[attr-defined]  # public, but missing in the library's types
                raise damaged(f"a block has more bytes than its {block.num_records} rows")
    except (*LIMITS_OF_ARROW, Unusable, StoreFault):
        raise
    except Exception as error:  # fastavro raises errors of any type for damaged bytes
        raise damaged(f"{type(error).__name__}: {error}") from error
    if held:
        yield held


def _shape(feed: Feed, source: FileBytes) -> Shape:
    if not source.size:
        raise Unusable("empty", "the file is empty")
    require_library()
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
    for batch in batches_of(source, header, schema, columns):
        some = batch.slice(0, limit - len(rows)).to_pylist()
        rows += [{name: value for name, value in row.items() if name in columns} for row in some]
        if len(rows) >= limit:
            break
    return rows


AVRO = FileFormat(
    name=Format.AVRO,
    endings=endings_of(Format.AVRO),
    shape=_shape,
    rows_of=rows_of,
    parts=_parts,
    sample=_sample,
)
