"""JSON: lines, lists, or documents over lines. A key may come in any line, and is missing row by row.

Spark's own reader is exact and fast, and silent about some lines; a file that has such lines is led through it line by
line (`JsonShape.by_line`). What a line or a value means is the same in memory; tests/tidemark/lakehouse/
test_two_readers.py holds the two against each other. Does not belong here: Spark's expressions (`spark_json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.parsing.json_rows import as_text, half_characters, objects_in
from dagster_tidemark.lakehouse.readers import spark_records
from dagster_tidemark.lakehouse.readers.file_format import Fault, FileFormat, Rows, Shape, Written
from dagster_tidemark.lakehouse.readers.files import FileFault, ObjectStore, SourceFile, Unusable, foreign
from dagster_tidemark.lakehouse.readers.spark_json import (
    STRICT,
    is_odd,
    objects_of,
    struct_of,
    without_halves,
    without_marks,
)
from dagster_tidemark.lakehouse.readers.spark_place import paths_of, place_of, position
from dagster_tidemark.lakehouse.readers.text import (
    HALF_A_CHARACTER,
    NO_END,
    NO_ROW,
    Record,
    charset_of,
    is_list,
    is_over_lines,
    not_valid,
    records_of,
    text_of,
)
from dagster_tidemark.lakehouse.readers.text_files import NOT_SUPPORTED, Head, looked_into, verify, weight_of
from dagster_tidemark.lakehouse.readers.values import nested_anew, nested_as_written
from dagster_tidemark.lakehouse.table import as_ddl
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.file_endings import Format, endings_of

_NO_OBJECT = "no line of it is a JSON object"


@dataclass(frozen=True)
class JsonShape(Shape):
    """The form of a JSON file; its columns as far as it was looked into.

    Args:
        over_lines: Whether a row may have several lines.
        is_list: Whether the text is one list over lines.
        by_line: Whether Spark has to be led through it line by line: its own reader would be silent about something.
        has_object: Whether an object was seen.
    """

    over_lines: bool = False
    is_list: bool = False
    by_line: bool = False
    has_object: bool = True


def _is_careful(shape: JsonShape) -> bool:
    """Whether a file is led through Spark line by line, be it large or not."""
    return shape.charset != "utf-8" or shape.by_line or shape.over_lines


def _shape(store: ObjectStore, feed: Feed, file: SourceFile, body: bytes | None) -> JsonShape:
    return looked_into(store, feed, file, body, _shape_of, json=True)


def _shape_of(head: Head) -> JsonShape:
    in_list = head.multiline and is_list(head.records[0].text)
    records: Sequence[Record] = head.records
    shape = _form_of(records, head.charset, head.is_cut)
    if not shape.has_object and head.whole is not None:
        records = records_of(head.whole, encoding=head.charset, multiline=head.multiline, json=True)
        shape = _form_of(records, head.charset, False)
    if not shape.has_object and head.is_whole:
        raise Unusable("unreadable", head.not_text if head.begins_with_no_text else _NO_OBJECT)
    is_complete = head.is_whole and (head.whole is None or records is not head.records)
    return replace(shape, over_lines=head.multiline, is_list=in_list, is_complete=is_complete)


def _form_of(records: Sequence[Record], charset: str, is_cut: bool) -> JsonShape:
    names: dict[str, None] = {}
    has_object = odd = False
    for text, fault in records[:-1] if is_cut and len(records) > 1 else records:
        odd |= fault is not None or "\\ud" in text.lower()  # which may be half of a character
        try:
            found = json.loads(text, parse_int=str)  # a number of 5,000 digits would be an error
        except (ValueError, RecursionError) as error:
            odd |= str(error).startswith("Extra data")
            continue
        for record in found if isinstance(found, list) else [found]:
            if isinstance(record, dict):
                has_object = True
                names |= dict.fromkeys(record)
    columns = tuple((name, "string") for name in names)
    return JsonShape(Format.JSON, columns, charset, by_line=odd or not has_object, has_object=has_object)


def _rows(feed: Feed, key: str, shape: JsonShape, body: bytes) -> Rows:
    records = records_of(text_of(key, body), encoding=feed.encoding, multiline=shape.over_lines, json=True)
    columns: dict[str, list[str | None]] = {c: [] for c in feed.columns}
    faults: list[Fault | None] = []
    others: dict[str, None] | None = {}  # names in the objects; None as soon as an object has a declared column
    for text, fault in records:
        for n, row in enumerate([None] if fault else objects_in(text)):
            values = {c: as_text(row.get(c)) for c in columns} if row is not None else {}
            if others is not None and row:
                others = None if any(c in row for c in columns) else others | dict.fromkeys(row)
            why = fault or NO_ROW if row is None else half_characters(values)
            if row and not why and (nested := [c for c in columns if isinstance(row.get(c), dict | list)]):
                said = (nested_anew if _is_careful(shape) else nested_as_written)(text)[n]
                values |= {c: said[c] for c in nested}
            for c, column in columns.items():
                column.append(None if why else values[c])
            faults.append(Fault(text, why) if why else None)
    if others is not None and None in faults:
        raise foreign(feed, others)
    return {c: pa.array(found, pa.string()) for c, found in columns.items()}, faults


def _look_closer(
    spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, JsonShape]
) -> tuple[dict[SourceFile, JsonShape], list[FileFault]]:
    """Files that Spark's own reader would be silent about are led through line by line.

    Of a line with more than one object it takes the first, and half of a character it makes another one. So all of each
    file is looked through before, at the price of its bytes leaving the bucket twice.
    """
    careful = {f for f, s in shapes.items() if _is_careful(s)}
    careful |= _those(partial(_odd, spark, store, feed), {f: s for f, s in shapes.items() if f not in careful})
    unknown = {f: s for f, s in shapes.items() if not s.has_object}
    having = _those(partial(_with_objects, spark, store, feed), unknown)
    closer = {f: replace(s, by_line=True) if f in careful else s for f, s in shapes.items()}
    without = [f for f in unknown if f not in having]
    faults = [FileFault(file, "unreadable", _NO_OBJECT) for file in without]
    closer = {f: s for f, s in closer.items() if f not in without}
    # A declared column may come after the part that was looked at.
    unlike = {f: s for f, s in closer.items() if not any(name in feed.columns for name, _ in s.columns)}
    alike = _those(partial(_with_values, spark, store, feed), unlike)
    for file in (file for file in unlike if file not in alike):
        refusal = foreign(feed, [name for name, _ in closer.pop(file).columns])
        faults.append(FileFault(file, refusal.reason, str(refusal)))
    return closer, faults


def _those(
    ask: Callable[[Mapping[SourceFile, JsonShape]], DataFrame], shapes: Mapping[SourceFile, JsonShape]
) -> set[SourceFile]:
    """Return the files that have rows in an answer."""
    if not shapes:
        return set()
    try:
        keys = {row.source_file for row in ask(shapes).select("source_file").distinct().collect()}
    except PySparkException:
        return set(shapes)  # the load names a file that cannot be read
    return {file for file in shapes if file.key in keys}


def _odd(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, JsonShape]) -> DataFrame:
    text = F.col("value")
    lines = spark.read.text(paths_of(store, shapes)).select(*place_of(store, *position()), text)
    return lines.where(is_odd(text, feed))


def _with_objects(
    spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, JsonShape]
) -> DataFrame:
    return JSON.scan_all(spark, store, feed, shapes).where("_malformed IS NULL")


def _with_values(
    spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, JsonShape]
) -> DataFrame:
    rows = JSON.scan_all(spark, store, feed, shapes)
    return rows.where(F.coalesce(*(F.col(c) for c in feed.columns)).isNotNull())


def _group(shape: JsonShape) -> JsonShape:
    return replace(shape, columns=(), is_complete=True)


def _scan(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, JsonShape]) -> DataFrame:
    shape = _group(next(iter(shapes.values())))
    if shape.by_line:
        return _scan_by_line(spark, store, feed, shape, paths_of(store, shapes))
    corrupt = spark_records.CORRUPT
    schema = as_ddl(dict.fromkeys([*feed.columns, corrupt], "string"))
    # Not `from_json`: it passes numbers through a double, and money loses digits.
    raw = spark.read.schema(schema).options(**STRICT, **spark_records.TOLERANT).json(paths_of(store, shapes))
    # Bytes that are no text come as they are: in a table nobody could read them.
    is_wrong = spark_records.is_no_text(feed.columns)
    why = F.when(F.col(corrupt).isNotNull(), NO_ROW).when(is_wrong, not_valid("utf-8"))
    as_shown = F.to_json(F.struct(*(spark_records.shown(F.col(c)).alias(c) for c in feed.columns)))
    row = F.when(F.col(corrupt).isNotNull(), spark_records.shown(F.col(corrupt))).when(is_wrong, as_shown)
    values = (F.when(~is_wrong, F.col(c)).alias(c) for c in feed.columns)
    return raw.select(*place_of(store, *position()), *values, row.alias("_malformed"), why.alias("_why"))


def _scan_by_line(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: JsonShape, paths: Sequence[str]
) -> DataFrame:
    place = partial(place_of, store)
    if shape.over_lines:
        lines = spark_records.json_documents(spark, paths, shape.charset, place, is_list=shape.is_list)
    else:
        lines = spark_records.json_lines(spark, paths, shape.charset, place)
    lines = lines.withColumn("_objects", objects_of(F.col("_record"), feed))
    halved = F.when(
        without_halves(F.col("_record")) != F.col("_record"), objects_of(without_halves(F.col("_record")), feed)
    )
    lines = lines.withColumn("_whole", halved)
    # Of no object, and of a list that holds anything else, one row that is none; of an empty list no row.
    none = F.array(F.lit(None).cast(struct_of(feed)))
    is_none = F.col("_fault").isNotNull() | F.col("_objects").isNull() | F.exists("_objects", lambda o: o.isNull())
    lines = lines.withColumn("_objects", F.when(is_none, none).otherwise(F.col("_objects")))
    rows = lines.select("*", F.posexplode_outer("_objects").alias("_at", "_object")).where("_at IS NOT NULL")
    has_half = ~F.get("_whole", F.col("_at")).eqNullSafe(F.col("_object")) & F.col("_whole").isNotNull()
    why = F.coalesce("_fault", F.when(F.col("_object").isNull(), NO_ROW), F.when(has_half, HALF_A_CHARACTER))
    # A line may be several rows, and each has a place of its own.
    in_file = Window.partitionBy("source_file").orderBy("_block", "_row", "_part", "_at")
    return rows.select(
        "source_file",
        F.lit(0).cast("bigint").alias("_block"),
        (F.row_number().over(in_file) - 1).cast("bigint").alias("_row"),
        *(without_marks(F.col("_object")[c], F.col("_record")).alias(c) for c in feed.columns),
        *spark_records.faults(why),
    )


def _sample(body: bytes, limit: int, *, encoding: str = "utf-8", multiline: bool = False) -> list[dict[str, object]]:
    over_lines = multiline or is_over_lines("", body, charset_of(encoding, body))
    records = records_of(body, encoding=encoding, multiline=over_lines, json=True)
    if records and records[-1].fault == NO_END:
        raise ValueError(NO_END)
    found: list[dict[str, object]] = []
    for text, fault in records:
        found += [row for row in ([] if fault else objects_in(text, Written)) if row is not None]
        if len(found) >= limit:
            break
    if not found:
        raise ValueError(_NO_OBJECT)
    return found[:limit]


JSON = FileFormat(
    name=Format.JSON,
    endings=endings_of(Format.JSON),
    is_text=True,
    has_header=False,
    shape=_shape,
    weight=partial(weight_of, json=True),
    rows=_rows,
    group=_group,
    look_closer=_look_closer,
    scan=_scan,
    verify=verify,
    not_supported=NOT_SUPPORTED,
    sample=_sample,
)
