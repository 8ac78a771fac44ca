"""Large files, read by Spark: every format the landing zone allows, bound by column name.

Spark binds a CSV with a declared schema by position and kills a whole job for one bad file. So files of the same
physical shape are read together, each with its own physical schema, and `unreadable` names the ones at fault
when a scan has failed. Does not belong here: small files (`fetched`), and which rows are good (`judge`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.lakehouse.files import PLACE, FileFault, ObjectStore, SourceFile
from pipelines.lakehouse.inspection import Shape
from pipelines.lakehouse.verdict import damage_of, is_about_format
from pipelines.sources.feed import Feed

_CORRUPT = "_corrupt_record"
_TOLERANT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def scan(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    """The rows of these files (at least one), with the columns `files.columns_of_rows`."""
    groups: dict[Shape, list[SourceFile]] = defaultdict(list)
    for file, shape in shapes.items():
        # CSV files of one width are one scan, whatever their columns are called and in whatever order they stand.
        groups[_group(shape)].append(file)
    frames = []
    for group, files in groups.items():
        if group.format == "csv":
            frames.append(_scan_csv(spark, store, feed, {file: shapes[file] for file in files}))
        elif group.format == "json":
            frames.append(_scan_json(spark, store, feed, files))
        else:
            frames.append(_scan_parquet(spark, store, feed, group, files))
    return reduce(DataFrame.unionByName, frames)


def unreadable(
    spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape], failure: PySparkException
) -> list[FileFault]:
    """Which of these files are to blame for a scan that failed, each tried by itself.

    Raises:
        PySparkException: the failure itself, when none of them is: it was not about a file.
        BucketUnavailable: the bytes of a file could not be had.
    """
    faults = []
    for file, shape in shapes.items():
        if _fails(spark, store, feed, file, shape) is None:
            continue
        damage = damage_of(store, file)
        # Of a file that is whole only what Spark says twice of its format, with the bytes read in between.
        again = None if damage else _fails(spark, store, feed, file, shape)
        if again is not None and is_about_format(again):
            damage = (str(again).strip().splitlines() or [type(again).__name__])[0]
        if damage:
            faults.append(FileFault(file, "unreadable", damage))
    if not faults:
        raise failure
    return faults


def _fails(
    spark: SparkSession, store: ObjectStore, feed: Feed, file: SourceFile, shape: Shape
) -> PySparkException | None:
    try:
        # Every value is looked at: a Parquet file may be damaged in one column.
        rows = scan(spark, store, feed, {file: shape})
        rows.select(F.sum(F.xxhash64(*rows.columns).cast("decimal(38,0)"))).collect()
    except PySparkException as error:
        return error
    return None


def _group(shape: Shape) -> Shape:
    if shape.format == "csv":
        return Shape("csv", (("", ""),) * len(shape.columns))
    return Shape("json") if shape.format == "json" else shape


def _scan_csv(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    names = {file: [name for name, _ in shape.columns] for file, shape in shapes.items()}
    width = len(next(iter(names.values())))
    schema = ", ".join([*(f"c{i} STRING" for i in range(width)), f"{_CORRUPT} STRING"])
    reader = spark.read.schema(schema).options(header=True, escape='"', **_TOLERANT)
    raw = reader.csv(_paths(store, shapes))
    if len({tuple(n) for n in names.values()}) == 1:
        order = next(iter(names.values()))
        values = [F.col(f"c{order.index(c)}") if c in order else F.lit(None).cast("string") for c in feed.columns]
        return raw.select(
            *_place(store, *_text_position()),
            *(value.alias(c) for value, c in zip(values, feed.columns, strict=True)),
            F.col(_CORRUPT).alias("_malformed"),
        )
    # Where in each file each column stands.
    positions = spark.createDataFrame(
        [(f.key, *(names[f].index(c) if c in names[f] else None for c in feed.columns)) for f in shapes],
        ", ".join(["source_file string", *(f"at_{c} int" for c in feed.columns)]),
    )
    found = raw.select(
        *_place(store, *_text_position()),
        F.array(*(f"c{i}" for i in range(width))).alias("values"),
        F.col(_CORRUPT).alias("_malformed"),
    ).join(F.broadcast(positions), on="source_file", how="inner")
    return found.select(*PLACE, *(F.get("values", f"at_{c}").alias(c) for c in feed.columns), "_malformed")


def _scan_json(spark: SparkSession, store: ObjectStore, feed: Feed, files: Sequence[SourceFile]) -> DataFrame:
    schema = ", ".join(f"{c} STRING" for c in [*feed.columns, _CORRUPT])
    # Not `from_json`: it passes numbers through a double, and money loses digits.
    raw = spark.read.schema(schema).options(allowSingleQuotes=False, **_TOLERANT).json(_paths(store, files))
    return raw.select(*_place(store, *_text_position()), *feed.columns, F.col(_CORRUPT).alias("_malformed"))


def _scan_parquet(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: Shape, files: Sequence[SourceFile]
) -> DataFrame:
    kinds = dict(shape.columns)
    values = {c: _as_text(c, kinds[c]) if c in kinds else F.lit(None).cast("string") for c in feed.columns}
    return spark.read.parquet(*_paths(store, files)).select(
        *_place(store, F.lit(0).cast("bigint"), F.col("_metadata.row_index")),
        *(value.alias(c) for c, value in values.items()),
        F.lit(None).cast("string").alias("_malformed"),
    )


def _text_position() -> tuple[Column, Column]:
    # Taken directly on the scan: only there do the two say where in the file a row stands.
    return F.col("_metadata.file_block_start"), F.monotonically_increasing_id()


def _place(store: ObjectStore, block: Column, row: Column) -> list[Column]:
    path = F.col("_metadata.file_path")
    # Spark percent-encodes the path; a "+" in it is a plus, which url_decode alone would turn into a space.
    encoded = F.substring(path, len(f"s3a://{store.name}/") + 1, 1 << 30)
    decoded = F.url_decode(F.replace(encoded, F.lit("+"), F.lit("%2B")))
    key = F.when(F.contains(encoded, F.lit("%")), decoded).otherwise(encoded)
    return [column.alias(name) for name, column in zip(PLACE, (key, block, row), strict=True)]


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
