"""Reading the files of a feed: every format the landing zone allows, bound by column name.

Spark binds a CSV with a declared schema by position and kills a whole job for one bad file. So each file is
looked into first (header or footer), files of the same physical shape are read together, and what cannot be
read is named instead. Does not belong here: which rows are good (`lakehouse.load`).
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
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.sources.feed import Feed, Partition

_HEADER_BYTES = 64 * 1024
_CORRUPT = "_corrupt_record"


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


def inspect(store: ObjectStore, feed: Feed, files: Sequence[SourceFile]) -> tuple[dict[SourceFile, Shape], list[FileFault]]:
    """Look into each file's header or footer: its shape, or why it cannot be taken."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        looked = pool.map(lambda file: _shape(store, feed, file), files)
        results = list(zip(files, looked, strict=True))
    shapes = {file: result for file, result in results if isinstance(result, Shape)}
    return shapes, [result for _, result in results if isinstance(result, FileFault)]


def read_files(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame | None:
    """The rows of these files; None where there is no file.

    One row per row found: the feed's columns in their declared types (null where the value does not fit),
    `source_file`, `block` and `row` (where in the file), `faults` (columns whose value did not fit) and
    `content` (the row as JSON, where it has faults or is malformed).
    """
    groups: dict[Shape, list[SourceFile]] = defaultdict(list)
    for file, shape in shapes.items():
        groups[shape].append(file)
    frames = [_read_group(spark, store, feed, shape, files) for shape, files in groups.items()]
    return reduce(DataFrame.unionByName, frames) if frames else None


def _shape(store: ObjectStore, feed: Feed, file: SourceFile) -> Shape | FileFault:
    try:
        shape = _parquet_shape(store, file) if file.key.endswith(".parquet") else _text_shape(store, file)
    except (ValueError, zlib.error, pa.ArrowException, csv.Error) as error:
        return FileFault(file, "unreadable", f"{type(error).__name__}: {error}")
    if shape.format == "json":
        return shape
    names = [name for name, _ in shape.columns]
    missing = [c for c in feed.required if c not in names and c != _derived(feed)]
    if missing:
        return FileFault(file, "missing_column", f"no column {', '.join(missing)}; found {', '.join(names)}")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        return FileFault(file, "duplicate_column", f"column {', '.join(twice)} stands there twice")
    return shape


def _derived(feed: Feed) -> str:
    return str(feed.grain)


def _text_shape(store: ObjectStore, file: SourceFile) -> Shape:
    head = store.read(file.key, first=_HEADER_BYTES)
    if file.key.endswith(".gz"):
        head = zlib.decompressobj(wbits=31).decompress(head, _HEADER_BYTES)
    if not head.strip():
        raise ValueError("the file is empty")
    if file.key.endswith((".json", ".jsonl")):
        return Shape("json")
    header = next(csv.reader(io.StringIO(head.decode("utf-8-sig", errors="strict" if len(head) < _HEADER_BYTES else "ignore"))))
    return Shape("csv", tuple((name.strip(), "string") for name in header))


def _parquet_shape(store: ObjectStore, file: SourceFile) -> Shape:
    schema = pq.read_schema(io.BytesIO(store.read(file.key)))
    return Shape("parquet", tuple((field.name, str(field.type)) for field in schema))


def _read_group(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: Shape, files: Iterable[SourceFile]
) -> DataFrame:
    paths = [_path(store.name, file.key) for file in files]
    if shape.format == "parquet":
        raw = spark.read.parquet(*paths)
        position = [F.lit(0).cast("bigint").alias("block"), F.col("_metadata.row_index").alias("row")]
    else:
        names = [n for n, _ in shape.columns] or list(feed.columns)
        schema = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in [*names, _CORRUPT])
        reader = spark.read.schema(schema).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
        if shape.format == "csv":
            raw = reader.option("header", True).option("escape", '"').csv(paths)
        else:
            raw = reader.json(paths)
        # Both taken directly on the scan: only there do they say where in the file a row stands.
        position = [
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("row"),
        ]
    path = F.col("_metadata.file_path")
    found = raw.select(*position, path.alias("path"), F.struct(*map(_quoted, raw.columns)).alias("raw"))
    kinds = dict(shape.columns)
    typed = {c: _typed(c, kinds.get(c, "string"), kind) if c in raw.columns else _null(kind) for c, kind in feed.columns.items()}
    faults = [F.when(_raw(c).isNotNull() & typed[c].isNull() & (F.trim(_raw(c).cast("string")) != ""), F.lit(c)) for c in feed.columns if c in raw.columns]
    if shape.format != "parquet":
        faults.append(F.when(_raw(_CORRUPT).isNotNull(), F.lit("malformed")))
    return found.select(
        *(column.alias(c) for c, column in typed.items()),
        _key(store.name, F.col("path")).alias("source_file"),
        "block",
        "row",
        F.array_compact(F.array(*faults)).alias("faults"),
        F.to_json("raw").alias("content"),
    )


def _quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _raw(name: str) -> Column:
    return F.col("raw").getField(name)


def _null(kind: str) -> Column:
    return F.lit(None).cast(kind)


def _typed(name: str, found: str, kind: str) -> Column:
    raw = _raw(name)
    if found.startswith("timestamp[ns"):
        return F.timestamp_micros(F.floor(raw / 1000)).cast(kind)
    if found in ("double", "float") and kind == "bigint":
        # A cast alone would cut 2.7 to 2.
        return F.when(raw == F.floor(raw), raw.try_cast(kind))
    return F.trim(raw).try_cast(kind) if found == "string" else raw.try_cast(kind)


def _path(bucket: str, key: str) -> str:
    for special in "\\{}[]*?":
        key = key.replace(special, f"\\{special}")
    return f"s3a://{bucket}/{key}"


def _key(bucket: str, path: Column) -> Column:
    # Spark percent-encodes the path; a "+" in it is a plus, which url_decode alone would turn into a space.
    encoded = F.substring(path, len(f"s3a://{bucket}/") + 1, 1 << 30)
    return F.url_decode(F.replace(encoded, F.lit("+"), F.lit("%2B")))
