"""Reading the files of a feed: every format the landing zone allows, bound by column name.

Spark binds a CSV with a declared schema by position and kills a whole job for one bad file. So each file is
looked into first (header or footer), files of the same physical shape are read together, and what cannot be
read is named instead. Does not belong here: which rows are good (`lakehouse.judge`).
"""

from __future__ import annotations

import csv
import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from pipelines.sources.feed import Feed, Partition

_HEADER_BYTES = 64 * 1024
_CORRUPT = "_corrupt_record"
_PLACE = ("source_file", "block", "row")


class ObjectStore(Protocol):
    """Where the files lie."""

    name: str

    def read(self, key: str, first: int | None = None) -> bytes: ...


@dataclass(frozen=True)
class SourceFile:
    """One version of one file, as a listing told of it."""

    key: str
    version: str
    arrived_at: datetime
    partition: Partition


@dataclass(frozen=True)
class Shape:
    """The physical form of a file: files of equal shape are read together."""

    format: str
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FileFault:
    """Why a whole file cannot be taken."""

    file: SourceFile
    reason: str
    message: str


def inspect(
    store: ObjectStore, feed: Feed, files: Sequence[SourceFile]
) -> tuple[dict[SourceFile, Shape], list[FileFault]]:
    """Look into each file's header or footer: its shape, or why it cannot be taken."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        looked = pool.map(lambda file: _shape(store, feed, file), files)
        results = list(zip(files, looked, strict=True))
    shapes = {file: result for file, result in results if isinstance(result, Shape)}
    return shapes, [result for _, result in results if isinstance(result, FileFault)]


def read_files(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    """The rows of these files, each value as the text it was written as.

    One row per row found: the feed's columns (null where the file has none of that name), `source_file`,
    `block` and `row` (where in the file; only increasing in text), and `malformed` (the line, where it is no row).
    """
    groups: dict[Shape, list[SourceFile]] = defaultdict(list)
    for file, shape in shapes.items():
        # CSV files of one width are one scan, whatever their columns are called and in whatever order they stand.
        groups[Shape("csv", (("", ""),) * len(shape.columns)) if shape.format == "csv" else shape].append(file)
    frames = []
    for group, files in groups.items():
        if group.format == "csv":
            frames.append(_read_csv(spark, store, feed, {file: shapes[file] for file in files}))
        elif group.format == "json":
            frames.append(_read_json(spark, store, feed, files))
        else:
            frames.append(_read_parquet(spark, store, feed, group, files))
    return reduce(DataFrame.unionByName, frames) if frames else _no_rows(spark, feed)


def _shape(store: ObjectStore, feed: Feed, file: SourceFile) -> Shape | FileFault:
    try:
        shape = _parquet_shape(store, file) if file.key.endswith(".parquet") else _text_shape(store, file)
    except (ValueError, zlib.error, pa.ArrowException, csv.Error) as error:
        return FileFault(file, "unreadable", f"{type(error).__name__}: {error}")
    if shape.format == "json":
        return shape
    names = [name for name, _ in shape.columns]
    missing = [c for c in feed.required if c not in names]
    if missing:
        return FileFault(file, "missing_column", f"no column {', '.join(missing)}; found {', '.join(names)}")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        return FileFault(file, "duplicate_column", f"column {', '.join(twice)} stands there twice")
    return shape


def _text_shape(store: ObjectStore, file: SourceFile) -> Shape:
    head = store.read(file.key, first=_HEADER_BYTES)
    if file.key.endswith(".gz"):
        head = zlib.decompressobj(wbits=31).decompress(head, _HEADER_BYTES)
    if not head.strip():
        raise ValueError("the file is empty")
    if file.key.endswith((".json", ".jsonl")):
        return Shape("json")
    header = next(
        csv.reader(io.StringIO(head.decode("utf-8-sig", errors="strict" if len(head) < _HEADER_BYTES else "ignore")))
    )
    return Shape("csv", tuple((name.strip(), "string") for name in header))


def _parquet_shape(store: ObjectStore, file: SourceFile) -> Shape:
    schema = pq.read_schema(io.BytesIO(store.read(file.key)))
    # Sorted: columns are found by name, so files that differ in their order alone are read together.
    return Shape("parquet", tuple(sorted((field.name, str(field.type)) for field in schema)))


def _read_csv(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    names = {file: [name for name, _ in shape.columns] for file, shape in shapes.items()}
    width = len(next(iter(names.values())))
    schema = ", ".join([*(f"c{i} STRING" for i in range(width)), f"{_CORRUPT} STRING"])
    raw = _text_reader(spark, schema).option("header", True).option("escape", '"').csv(_paths(store, shapes))
    # Where in each file each column stands.
    positions = spark.createDataFrame(
        [(f.key, *(names[f].index(c) if c in names[f] else None for c in feed.columns)) for f in shapes],
        ", ".join(["source_file string", *(f"at_{c} int" for c in feed.columns)]),
    )
    found = raw.select(
        *_place(store, *_text_position()),
        F.array(*(f"c{i}" for i in range(width))).alias("values"),
        F.col(_CORRUPT).alias("malformed"),
    ).join(F.broadcast(positions), on="source_file", how="inner")
    return found.select(*_PLACE, *(F.get("values", f"at_{c}").alias(c) for c in feed.columns), "malformed")


def _read_json(spark: SparkSession, store: ObjectStore, feed: Feed, files: Sequence[SourceFile]) -> DataFrame:
    schema = ", ".join(f"{c} STRING" for c in [*feed.columns, _CORRUPT])
    raw = _text_reader(spark, schema).json(_paths(store, files))
    return raw.select(*_place(store, *_text_position()), *feed.columns, F.col(_CORRUPT).alias("malformed"))


def _read_parquet(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: Shape, files: Sequence[SourceFile]
) -> DataFrame:
    kinds = dict(shape.columns)
    values = {c: _as_text(c, kinds[c]) if c in kinds else F.lit(None).cast("string") for c in feed.columns}
    return spark.read.parquet(*_paths(store, files)).select(
        *_place(store, F.lit(0).cast("bigint"), F.col("_metadata.row_index")),
        *(value.alias(c) for c, value in values.items()),
        F.lit(None).cast("string").alias("malformed"),
    )


def _no_rows(spark: SparkSession, feed: Feed) -> DataFrame:
    columns = [f"{c} string" for c in [*feed.columns, "malformed"]]
    return spark.createDataFrame([], ", ".join(["source_file string", "block bigint", "row bigint", *columns]))


def _text_reader(spark: SparkSession, schema: str) -> DataFrameReader:
    return spark.read.schema(schema).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)


def _text_position() -> tuple[Column, Column]:
    # Taken directly on the scan: only there do the two say where in the file a row stands.
    return F.col("_metadata.file_block_start"), F.monotonically_increasing_id()


def _place(store: ObjectStore, block: Column, row: Column) -> list[Column]:
    path = F.col("_metadata.file_path")
    # Spark percent-encodes the path; a "+" in it is a plus, which url_decode alone would turn into a space.
    encoded = F.substring(path, len(f"s3a://{store.name}/") + 1, 1 << 30)
    key = F.url_decode(F.replace(encoded, F.lit("+"), F.lit("%2B")))
    return [column.alias(name) for name, column in zip(_PLACE, (key, block, row), strict=True)]


def _as_text(name: str, kind: str) -> Column:
    column = F.col(f"`{name.replace('`', '``')}`")
    if kind.startswith("timestamp[ns"):
        # Spark has no nanoseconds and reads them as a long, of more digits than a double holds.
        column = F.timestamp_micros(F.floor(column.cast("decimal(20,0)") / 1000).cast("bigint"))
    return column.cast("string")


def _paths(store: ObjectStore, files: Iterable[SourceFile]) -> list[str]:
    def escaped(key: str) -> str:
        return "".join(f"\\{c}" if c in "\\{}[]*?" else c for c in key)

    return [f"s3a://{store.name}/{escaped(file.key)}" for file in files]
