"""CSV with a header: columns are found by name, a line that has another number of values is none.

What a line or a value means is as Spark's own reader sees it, also in memory, so that a file's size makes no
difference; tests/tidemark/lakehouse/test_two_readers.py holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers import spark_records
from dagster_tidemark.lakehouse.readers.file_format import Fault, FileFormat, Rows, Shape, Written
from dagster_tidemark.lakehouse.readers.files import PLACE, ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.spark_place import paths_of, place_of
from dagster_tidemark.lakehouse.readers.text import NO_ROW, fields_of, records_of, text_of
from dagster_tidemark.lakehouse.readers.text_files import NOT_SUPPORTED, Head, looked_into, verify, weight_of
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> Shape:
    return looked_into(store, feed, file, body, _shape_of, json=False)


def _shape_of(head: Head) -> Shape:
    header = head.records[0].text
    is_complete = not head.is_cut or len(head.records) > 1
    if is_complete and head.begins_with_no_text:
        raise Unusable("unreadable", head.not_text)
    if "\0" in header:
        raise Unusable("unreadable", "the first line is binary, not text")
    if not is_complete:
        raise Unusable("unreadable", f"the first line is longer than {head.size} bytes")
    return Shape(Format.CSV, tuple((name.strip(), "string") for name in fields_of(header)), head.charset)


def _rows(feed: Feed, key: str, shape: Shape, body: bytes) -> Rows:
    records = records_of(text_of(key, body), encoding=feed.encoding, multiline=feed.multiline, json=False)
    at = {name: position for position, (name, _) in enumerate(shape.columns)}
    width = len(shape.columns)
    nothing = [""] * width
    values: list[list[str]] = []
    faults: list[Fault | None] = []
    for text, fault in records[1:]:
        fields = nothing if fault else fields_of(text)
        is_row = not fault and len(fields) == width
        values.append(fields if is_row else nothing)
        faults.append(None if is_row else Fault(text, fault or NO_ROW))
    columns: dict[str, list[str | None]] = {}
    for c in feed.columns:
        position = at.get(c)
        columns[c] = [None] * len(values) if position is None else [row[position] or None for row in values]
    return {c: pa.array(found, pa.string()) for c, found in columns.items()}, faults


def _group(shape: Shape) -> Shape:
    """CSV files of one width are one scan, whatever their columns are called and in whatever order they stand."""
    return replace(shape, columns=(("", ""),) * len(shape.columns))


def _scan(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    names = {file: [name for name, _ in shape.columns] for file, shape in shapes.items()}
    charset = next(iter(shapes.values())).charset
    width = len(next(iter(names.values())))
    paths, place = paths_of(store, shapes), partial(place_of, store)
    if feed.multiline or charset.startswith("utf-16"):
        lines = spark_records.csv_records(spark, paths, charset, place, multiline=feed.multiline)
    else:
        lines = spark_records.csv_lines(spark, paths, charset, place)
    corrupt = spark_records.CORRUPT
    schema = ", ".join([*(f"c{i} STRING" for i in range(width)), f"{corrupt} STRING"])
    options = {"escape": '"', "lineSep": "\n", **spark_records.TOLERANT}
    raw = lines.select(*PLACE, "_record", "_fault", F.from_csv("_record", schema, options).alias("_values"))
    why = F.coalesce("_fault", F.when(F.col(f"_values.{corrupt}").isNotNull(), NO_ROW))
    faults = spark_records.faults(why)
    if len({tuple(n) for n in names.values()}) == 1:
        order = next(iter(names.values()))
        values = [
            F.col(f"_values.c{order.index(c)}") if c in order else F.lit(None).cast("string") for c in feed.columns
        ]
        return raw.select(*PLACE, *(v.alias(c) for v, c in zip(values, feed.columns, strict=True)), *faults)
    # Where in each file each column stands.
    positions = spark.createDataFrame(
        [(f.key, *(names[f].index(c) if c in names[f] else None for c in feed.columns)) for f in shapes],
        ", ".join(["source_file string", *(f"at_{n} int" for n, _ in enumerate(feed.columns))]),
    )
    found = raw.select(*PLACE, F.array(*(f"_values.c{i}" for i in range(width))).alias("values"), *faults)
    found = found.join(F.broadcast(positions), on="source_file", how="inner")
    values = [F.get("values", f"at_{n}").alias(c) for n, c in enumerate(feed.columns)]
    return found.select(*PLACE, *values, "_malformed", "_why")


def _sample(body: bytes, limit: int, *, encoding: str = "utf-8", multiline: bool = False) -> list[dict[str, object]]:
    records = records_of(body, encoding=encoding, multiline=multiline, json=False)[: limit + 1]
    header, *rows = ([] if fault else fields_of(text) for text, fault in records) if records else [[]]
    names = [name.strip() for name in header]
    return [
        dict(zip(names, (Written(v) if v else None for v in row), strict=True))
        for row in rows
        if len(row) == len(names)
    ]


CSV = FileFormat(
    name=Format.CSV,
    endings=endings_of(Format.CSV),
    is_text=True,
    shape=_shape,
    weight=partial(weight_of, json=False),
    rows=_rows,
    group=_group,
    scan=_scan,
    verify=verify,
    not_supported=(*NOT_SUPPORTED, "MALFORMED_CSV_RECORD"),  # more columns than it takes
    sample=_sample,
)
