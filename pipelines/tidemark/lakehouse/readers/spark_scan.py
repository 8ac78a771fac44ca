"""Large files, read by Spark: every format the landing zone allows, bound by column name.

Spark binds a CSV with a declared schema by position and kills a whole job for one bad file. So files of the same
physical shape are read together, each with its own physical schema, and `unreadable` names the ones at fault
when a scan has failed. Does not belong here: small files (`in_memory`), and which rows are good (`validation`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipelines.tidemark.lakehouse.readers import spark_records
from pipelines.tidemark.lakehouse.readers.files import PLACE, FileFault, NotScanned, ObjectStore, SourceFile
from pipelines.tidemark.lakehouse.readers.probe import NO_OBJECT, Shape, is_careful
from pipelines.tidemark.lakehouse.readers.text import HALF_A_CHARACTER, NO_ROW, not_valid
from pipelines.tidemark.lakehouse.readers.values import TO_JSON
from pipelines.tidemark.lakehouse.readers.verdict import damage_of, is_about_format
from pipelines.tidemark.lakehouse.tables import as_ddl
from pipelines.tidemark.sources.feed import Feed
from pipelines.tidemark.sources.formats import Format
from pipelines.tidemark.sources.listing import ObjectUnavailable

_ASKED = 3  # files of which one has to be given to Spark, or it is given none
_CORRUPT = "_corrupt_record"
_TOLERANT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_STRICT = {"allowSingleQuotes": "false"}
_OF_BYTES = ("string", "large_string", "binary", "large_binary", "fixed_size_binary", "dictionary")
_NESTED = ("list", "large_list", "fixed_size_list", "struct", "map")
_NUMBERS = (
    r'("(?:[^"\\]|\\.)*+")|([:\[,][ \t\n\r]*+)'
    r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)(?=[ \t\n\r]*+[,}\]])"
)
_NUMBER = "\ufdd0"
"""What a number in quotes begins with: a character that Unicode has set aside for such use."""
_SOMETHING_BEHIND = r"[}\]][ \t\r]*+[^ \t\r}\]]"
"""What a line has with more than one object in it, and others too."""
_SURROGATE = r"\\u[dD][89a-fA-F]"
_ESCAPES = (
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89a-fA-F])|\\[^u])"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def scan(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    """The rows of these files (at least one), with the columns `files.columns_of_rows`."""
    groups: dict[Shape, list[SourceFile]] = defaultdict(list)
    for file, shape in shapes.items():
        # CSV files of one width are one scan, whatever their columns are called and in whatever order they stand.
        groups[_group(shape)].append(file)
    frames = []
    for group, files in groups.items():
        if group.format is Format.CSV:
            frames.append(_scan_csv(spark, store, feed, {file: shapes[file] for file in files}))
        elif group.format is Format.JSON:
            frames.append(_scan_json(spark, store, feed, group, files))
        else:
            frames.append(_scan_parquet(spark, store, feed, group, files))
    return reduce(DataFrame.unionByName, frames)


def unreadable(
    spark: SparkSession,
    store: ObjectStore,
    feed: Feed,
    shapes: Mapping[SourceFile, Shape],
    failure: PySparkException,
    *,
    beside: Collection[SourceFile] = (),
) -> list[FileFault]:
    """Which of these files are to blame for a scan that failed, each tried by itself.

    Args:
        beside: Other files that lie there.

    Raises:
        NotScanned: Spark fails on some of them, and nobody knows that the files are to blame.
        PySparkException: the failure itself, when none of them is: it was not about a file.
        BucketUnavailable: the bytes of a file could not be had.
    """
    faults = list[FileFault]()
    not_scanned, not_reached = dict[SourceFile, str](), dict[SourceFile, str]()
    for file, shape in shapes.items():
        if not _is_there(spark):  # each file would be asked of for as long as the client has patience
            raise failure
        if _fails(spark, store, feed, file, shape) is None:
            continue
        try:
            damage = damage_of(store, file)
        except ObjectUnavailable as refusal:
            not_scanned[file] = refusal.reason
            continue
        # Of a file that is whole only what Spark says twice of its format, with the bytes read in between.
        again = None if damage else _fails(spark, store, feed, file, shape)
        said = "" if again is None else (str(again).strip().splitlines() or [type(again).__name__])[0]
        if damage or (again is not None and is_about_format(again)):
            faults.append(FileFault(file, "unreadable", damage or said))
        elif again is not None:
            reached = _is_reached(spark, store, file)
            (not_scanned if reached else not_reached)[file] = f"Spark fails to read it: {said}"
    if faults:
        return faults
    # Where Spark is given nothing at all, it is not about these files.
    others = [*(f for f in shapes if f not in not_reached), *beside]
    if not_reached and any(_is_reached(spark, store, file) for file in others[:_ASKED]):
        not_scanned |= not_reached
    raise NotScanned(not_scanned) if not_scanned else failure


def _is_there(spark: SparkSession) -> bool:
    """Whether Spark answers at all."""
    try:
        return bool(spark.conf.get("spark.sql.session.timeZone"))
    except PySparkException:
        return False


def _is_reached(spark: SparkSession, store: ObjectStore, file: SourceFile) -> bool:
    """Whether Spark is given a file at all."""
    try:
        return bool(spark.read.format("binaryFile").load(*_paths(store, [file])).select("length").collect())
    except PySparkException:
        return False


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


def look_closer(
    spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]
) -> tuple[dict[SourceFile, Shape], list[FileFault]]:
    """JSON files that Spark's own reader would be silent about are led through line by line (`Shape.by_line`).

    It is exact and fast, but of a line with more than one object it takes the first, and half of a character it makes
    another one. So all of each file is looked through before, at the price of its bytes leaving the bucket twice.

    Returns:
        The shapes as they are to be read, and the files of which no line is an object.
    """
    of_json = {f: s for f, s in shapes.items() if s.format is Format.JSON}
    careful = {f for f, s in of_json.items() if is_careful(s, feed)}
    careful |= _those(partial(_odd, spark, store, feed), {f: s for f, s in of_json.items() if f not in careful})
    unknown = {f: s for f, s in of_json.items() if not s.has_object}
    having = _those(partial(_with_objects, spark, store, feed), unknown)
    closer = {f: replace(s, by_line=True) if f in careful else s for f, s in shapes.items()}
    without = [f for f in unknown if f not in having]
    faults = [FileFault(file, "unreadable", NO_OBJECT) for file in without]
    return {f: s for f, s in closer.items() if f not in without}, faults


def _those(
    ask: Callable[[Mapping[SourceFile, Shape]], DataFrame], shapes: Mapping[SourceFile, Shape]
) -> set[SourceFile]:
    """The files that an answer is about."""
    if not shapes:
        return set()
    try:
        keys = {row.source_file for row in ask(shapes).select("source_file").distinct().collect()}
    except PySparkException:
        return set(shapes)  # one that cannot be read is named by whoever reads it
    return {file for file in shapes if file.key in keys}


def _odd(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    text = F.col("value")
    has_more = text.rlike(_SOMETHING_BEHIND) & _objects_of(text, feed).isNull()
    lines = spark.read.text(_paths(store, shapes)).select(*_place(store, *_text_position()), text)
    return lines.where(text.rlike(_SURROGATE) | has_more)


def _with_objects(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    return scan(spark, store, feed, shapes).where("_malformed IS NULL")


def _group(shape: Shape) -> Shape:
    if shape.format is Format.CSV:
        return replace(shape, columns=(("", ""),) * len(shape.columns))
    return replace(shape, columns=()) if shape.format is Format.JSON else shape


def _scan_csv(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    names = {file: [name for name, _ in shape.columns] for file, shape in shapes.items()}
    charset = next(iter(shapes.values())).charset
    width = len(next(iter(names.values())))
    paths, place = _paths(store, shapes), partial(_place, store)
    if feed.multiline or charset.startswith("utf-16"):
        lines = spark_records.csv_records(spark, paths, charset, place, multiline=feed.multiline)
    else:
        lines = spark_records.csv_lines(spark, paths, charset, place)
    schema = ", ".join([*(f"c{i} STRING" for i in range(width)), f"{_CORRUPT} STRING"])
    options = {"escape": '"', "lineSep": "\n", **_TOLERANT}
    raw = lines.select(*PLACE, "_record", "_fault", F.from_csv("_record", schema, options).alias("_values"))
    faults = _faults(F.coalesce("_fault", F.when(F.col(f"_values.{_CORRUPT}").isNotNull(), NO_ROW)))
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


def _faults(why: Column) -> list[Column]:
    return [F.when(why.isNotNull(), F.col("_record")).alias("_malformed"), why.alias("_why")]


def _scan_json(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: Shape, files: Sequence[SourceFile]
) -> DataFrame:
    if shape.by_line:
        return _scan_json_by_line(spark, store, feed, shape, files)
    schema = as_ddl(dict.fromkeys([*feed.columns, _CORRUPT], "string"))
    # Not `from_json`: it passes numbers through a double, and money loses digits.
    raw = spark.read.schema(schema).options(**_STRICT, **_TOLERANT).json(_paths(store, files))
    # Bytes that are no text come as they are: in a table nobody could read them.
    is_wrong = _is_no_text(feed.columns)
    why = F.when(F.col(_CORRUPT).isNotNull(), NO_ROW).when(is_wrong, not_valid("utf-8"))
    as_shown = F.to_json(F.struct(*(spark_records.shown(F.col(c)).alias(c) for c in feed.columns)))
    row = F.when(F.col(_CORRUPT).isNotNull(), spark_records.shown(F.col(_CORRUPT))).when(is_wrong, as_shown)
    values = (F.when(~is_wrong, F.col(c)).alias(c) for c in feed.columns)
    return raw.select(*_place(store, *_text_position()), *values, row.alias("_malformed"), why.alias("_why"))


def _scan_json_by_line(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: Shape, files: Sequence[SourceFile]
) -> DataFrame:
    paths, place = _paths(store, files), partial(_place, store)
    if feed.multiline:
        lines = spark_records.json_documents(spark, paths, shape.charset, place, is_list=shape.is_list)
    else:
        lines = spark_records.json_lines(spark, paths, shape.charset, place)
    lines = lines.withColumn("_objects", _objects_of(F.col("_record"), feed))
    halved = F.when(
        _without_halves(F.col("_record")) != F.col("_record"), _objects_of(_without_halves(F.col("_record")), feed)
    )
    lines = lines.withColumn("_whole", halved)
    # Of no object, and of a list that holds anything else, one row that is none; of an empty list no row.
    none = F.array(F.lit(None).cast(_struct_of(feed)))
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
        *(_without_marks(F.col("_object")[c], F.col("_record")).alias(c) for c in feed.columns),
        *_faults(why),
    )


def _struct_of(feed: Feed) -> str:
    return "struct<" + ", ".join(f"`{c}`: string" for c in feed.columns) + ">"


def _objects_of(text: Column, feed: Feed) -> Column:
    """The objects in a text, by themselves or in a list; null where it is something else, or more than that."""
    # In quotes a number stays as it was written. U+0001 and U+0002 stand in no JSON.
    marked = F.regexp_replace(text, _NUMBERS, "$1$2\u0001$3\u0002")
    quoted = F.replace(marked, F.lit("\u0001\u0002"), F.lit(""))
    quoted = F.replace(F.replace(quoted, F.lit("\u0001"), F.lit(f'"{_NUMBER}')), F.lit("\u0002"), F.lit('"'))
    exact = F.when(_is_marked(text), text).otherwise(quoted)
    # In brackets, so that what stands behind the first object is seen; and before a null, which is not reached where a
    # bracket too many ends the list.
    wrapped = F.concat(F.lit("["), exact, F.lit(",null]"))
    objects = F.from_json(wrapped, f"array<{_struct_of(feed)}>", _STRICT)
    lists = F.from_json(wrapped, f"array<array<{_struct_of(feed)}>>", _STRICT)
    is_list = F.ltrim(text).startswith("[")
    found = F.when(is_list, F.when(_is_one(lists), lists[0])).otherwise(
        F.when(_is_one(objects), F.slice(objects, 1, 1))
    )
    return found


def _is_marked(text: Column) -> Column:
    return text.rlike(r"[\x01\x02\uFDD0]|\\u[fF][dD][dD]0")


def _without_marks(value: Column, text: Column) -> Column:
    """A value of the objects in a text, with the numbers in it as they were."""
    nested = F.regexp_replace(value, f'"{_NUMBER}([^"]*)"', "$1")
    bare = F.when(value.startswith(_NUMBER), F.substr(value, F.lit(2))).otherwise(nested)
    return F.when(_is_marked(text), value).otherwise(bare)


def _is_one(parsed: Column) -> Column:
    return (F.size(parsed) == 2) & F.get(parsed, 1).isNull()


def _without_halves(text: Column) -> Column:
    """A JSON text without the escapes that are half of a character."""
    return F.regexp_replace(text, _ESCAPES, "$1")


def _scan_parquet(
    spark: SparkSession, store: ObjectStore, feed: Feed, shape: Shape, files: Sequence[SourceFile]
) -> DataFrame:
    kinds = dict(shape.columns)
    values = {c: _as_text(c, kinds[c]) if c in kinds else F.lit(None).cast("string") for c in feed.columns}
    raw = spark.read.parquet(*_paths(store, files))
    place = raw.metadataColumn("_metadata")  # not by its name: a column of the file may be called so
    found = raw.select(
        *_place(store, F.lit(0).cast("bigint"), place["row_index"], place["file_path"]),
        *(value.alias(c) for c, value in values.items()),
    )
    # Of Parquet nobody promises that a text is one; a table that holds such bytes is read by nobody.
    of_bytes = [c for c in feed.columns if kinds.get(c, "").startswith((*_OF_BYTES, *_NESTED))]
    why = F.lit(None).cast("string")
    if of_bytes:
        is_wrong = _is_no_text(of_bytes)
        why = F.when(is_wrong, not_valid("utf-8"))
    row = F.to_json(
        F.struct(*((spark_records.shown(F.col(c)) if c in of_bytes else F.col(c)).alias(c) for c in feed.columns))
    )
    return found.select("*", F.when(why.isNotNull(), row).alias("_malformed"), why.alias("_why"))


def _is_no_text(columns: Iterable[str]) -> Column:
    """Whether any of these columns holds bytes that are no text."""
    # Not one `or` in the other: an expression that is nested a hundred deep is none to Spark Connect.
    return F.coalesce(*(F.when(~F.is_valid_utf8(c), F.lit(True)) for c in columns), F.lit(False))


def _text_position() -> tuple[Column, Column]:
    # Taken directly on the scan: only there do the two say where in the file a row stands.
    return F.col("_metadata.file_block_start"), F.monotonically_increasing_id()


def _place(store: ObjectStore, block: Column, row: Column, path: Column | None = None) -> list[Column]:
    path = F.col("_metadata.file_path") if path is None else path
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
    if kind.startswith(_NESTED):
        text = column.cast("string")  # JSON would hide that it is none
        return F.when(F.is_valid_utf8(text), F.to_json(column, TO_JSON)).otherwise(text)
    return column.cast("string")


def _paths(store: ObjectStore, files: Iterable[SourceFile]) -> list[str]:
    def escaped(key: str) -> str:
        return "".join(f"\\{c}" if c in "\\{}[]*?" else c for c in key)

    return [f"s3a://{store.name}/{escaped(file.key)}" for file in files]
