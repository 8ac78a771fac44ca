"""Columns that have types of their own, as rows of texts: of Arrow for small files, of Spark for large ones.

Belongs here: what formats such as Parquet share, so that one more needs only what is its own. Does not belong here:
which text a number or a list becomes in memory (`values`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.parsing.typed_rows import is_text, shown, texts_of_column
from dagster_tidemark.lakehouse.readers import spark_records
from dagster_tidemark.lakehouse.readers.file_format import Fault, Rows, Shape
from dagster_tidemark.lakehouse.readers.files import ObjectStore, SourceFile
from dagster_tidemark.lakehouse.readers.spark_place import paths_of, place_of
from dagster_tidemark.lakehouse.readers.text import not_valid
from dagster_tidemark.lakehouse.readers.values import TO_JSON
from dagster_tidemark.sources.feed import Feed

_OF_BYTES = ("string", "large_string", "binary", "large_binary", "fixed_size_binary", "dictionary")
_NESTED = ("list", "large_list", "fixed_size_list", "struct", "map")


def rows_of_arrow(feed: Feed, table: pa.Table) -> Rows:
    """The rows of a small file as texts, from an Arrow table with all of the feed's columns that the file has."""
    columns = {
        c: texts_of_column(table.column(c), kind) if c in table.column_names else pa.nulls(table.num_rows, pa.string())
        for c, kind in feed.columns.items()
    }
    faults: list[Fault | None] = [None] * table.num_rows
    wrong = {c: column for c, column in columns.items() if not is_text(column)}
    if wrong:
        # Nobody promises that a text is one; a table that holds such bytes is read by nobody.
        every = {c: shown(column) for c, column in columns.items()}
        at_fault = [any(every[c][i][1] for c in wrong) for i in range(table.num_rows)]
        for i in (i for i, is_wrong in enumerate(at_fault) if is_wrong):
            row = {c: texts[i][0] for c, texts in every.items() if texts[i][0] is not None}
            faults[i] = Fault(json.dumps(row, separators=(",", ":"), ensure_ascii=False), not_valid("utf-8"))
        columns = {
            c: pa.array([None if w else v for (v, _), w in zip(texts, at_fault, strict=True)], pa.string())
            for c, texts in every.items()
        }
    return columns, faults


def _plain(column: Column, kind: str) -> Column:
    return column


def rows_of_spark(
    store: ObjectStore,
    feed: Feed,
    shapes: Mapping[SourceFile, Shape],
    reader: DataFrameReader,
    *,
    row_index: bool = False,
    value: Callable[[Column, str], Column] = _plain,
) -> DataFrame:
    """The rows of large files of equal shape as texts, in which values of a type have the text they have in small ones.

    Args:
        reader: Spark's reader of the format: `spark.read.format(...)`, with options.
        row_index: Whether that reader numbers the rows of a file.
        value: What a column means that Spark reads as another type than Arrow, by Arrow's name of the type.
    """
    raw = reader.load(paths_of(store, shapes))
    kinds = dict(next(iter(shapes.values())).columns)
    values = {c: _as_text(c, kinds[c], value) if c in kinds else F.lit(None).cast("string") for c in feed.columns}
    place = raw.metadataColumn("_metadata")  # not by its name: a column of the file may be called so
    block = F.lit(0).cast("bigint") if row_index else place["file_block_start"]
    row = place["row_index"] if row_index else F.monotonically_increasing_id()
    found = raw.select(
        *place_of(store, block, row, place["file_path"]),
        *(text.alias(c) for c, text in values.items()),
    )
    # Nobody promises that a text is one; a table that holds such bytes is read by nobody.
    of_bytes = [c for c in feed.columns if kinds.get(c, "").startswith((*_OF_BYTES, *_NESTED))]
    why = F.lit(None).cast("string")
    if of_bytes:
        why = F.when(spark_records.is_no_text(of_bytes), not_valid("utf-8"))
    shown = F.to_json(
        F.struct(*((spark_records.shown(F.col(c)) if c in of_bytes else F.col(c)).alias(c) for c in feed.columns))
    )
    return found.select("*", F.when(why.isNotNull(), shown).alias("_malformed"), why.alias("_why"))


def _as_text(name: str, kind: str, value: Callable[[Column, str], Column]) -> Column:
    column = value(F.col(f"`{name.replace('`', '``')}`"), kind)
    if kind.startswith(_NESTED):
        text = column.cast("string")  # JSON would hide that it is none
        return F.when(F.is_valid_utf8(text), F.to_json(column, TO_JSON)).otherwise(text)
    return column.cast("string")
