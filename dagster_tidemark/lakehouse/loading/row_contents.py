"""Contents of rejected rows without texts. The exact rule creates them from the records of the rows.

If all values of a row are in plain form, the row is sent to Spark as values, not as texts. Few such rows are rejected,
so their texts are read from the records afterwards. Does not belong here: the choice of the rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent
from dagster_tidemark.lakehouse.readers.batch import FileBatch
from dagster_tidemark.lakehouse.readers.format_registry import format_named
from dagster_tidemark.lakehouse.shipping import shipped

_CONTENT, _RECORD, _FILE = "_content", "_record", "source_file"
_ESCAPES = re.compile(r"(\\\\)|\\u([0-9a-f]{4})")


@dataclass(frozen=True)
class Contents:
    """Rule that creates contents from records.

    Args:
        forms: For each file with such rows, its shape and the function that splits a record into texts.
    """

    declared: DeclaredContent
    forms: Mapping[str, tuple[Any, Callable[[DeclaredContent, Any, str], Sequence[str | None]]]]

    def fill(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows, each with its `_content`."""
        for batch in batches:
            at = batch.schema.get_field_index(_CONTENT)
            yield batch.set_column(at, batch.schema.field(at), self.of(pa.Table.from_batches([batch])))

    def of(self, rows: pa.Table) -> pa.Array:
        """Return the contents of rows. Missing contents are created from the records."""
        named = (rows.column(name).to_pylist() for name in (_CONTENT, _RECORD, _FILE))
        found = [
            self._content(file, record) if content is None and record is not None else content
            for content, record, file in zip(*named, strict=True)
        ]
        return pa.array(found, rows.schema.field(_CONTENT).type)

    def _content(self, file: str, record: str) -> str:
        shape, texts_of = self.forms[file]
        texts = zip(self.declared.columns.items(), texts_of(self.declared, shape, record), strict=True)
        nulls_of = self.declared.nulls_of
        return as_json({c: text for (c, kind), text in texts if text is not None and text not in nulls_of(kind)})


def as_json(texts: Mapping[str, str]) -> str:
    """Return texts as Spark's `to_json` writes them."""
    written = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPES.sub(lambda found: found[0] if found[1] else f"\\u{found[2].upper()}", written)


def filled(rejected: DataFrame, reading: FileBatch, files: Iterable[str]) -> DataFrame:
    """Return rejected rows, each with its `_content`.

    Args:
        files: Keys of the files of these rows.
    """
    contents = contents_of(reading, files)
    if not contents.forms:
        return rejected
    used = {texts_of for _, texts_of in contents.forms.values()}
    return rejected.mapInArrow(shipped(contents.fill, *used), rejected.schema)


def contents_of(reading: FileBatch, files: Iterable[str]) -> Contents:
    """Return the rule that creates contents from the records of some files."""
    shapes = reading.shapes
    forms = {}
    for file in files:
        shape = shapes.get(file)
        if shape is not None and (texts_of := format_named(shape.format).texts_of) is not None:
            forms[file] = (shape, texts_of)
    return Contents(reading.declared, forms)
