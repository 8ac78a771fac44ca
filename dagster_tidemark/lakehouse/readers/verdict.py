"""Whether a file is to blame for a scan that failed: judged on its bytes, read here, and on nothing else.

An engine fails for many reasons: storage that refuses or breaks off, memory, a lost server. None of them says anything
of a file, and a file that was turned away is known for good. Does not belong here: what damages the bytes of a format
(`file_format`), and what becomes of a file at fault.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import FileFault, NotScanned, ObjectStore, SourceFile, Unusable
from dagster_tidemark.lakehouse.readers.format_registry import format_of
from dagster_tidemark.lakehouse.readers.remote_file import refusals_raised
from dagster_tidemark.lakehouse.readers.spark_place import paths_of
from dagster_tidemark.lakehouse.readers.spark_scan import scan
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import ObjectUnavailable

_ASKED = 3  # files of which one has to be given to Spark, or it is given none

_NOT_SUPPORTED = (
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
    "UNSUPPORTED_TIME_TYPE",
    "COLUMN_ALREADY_EXISTS",  # two names that differ in case
)
"""What Spark says of a file of any format that is whole and that it has no reader for."""


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
        if damage or (again is not None and _is_about_format(file, again)):
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
        return bool(spark.read.format("binaryFile").load(*paths_of(store, [file])).select("length").collect())
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


def damage_of(store: ObjectStore, file: SourceFile) -> str | None:
    """What is wrong with the bytes of a file; None where they can all be read.

    Raises:
        ObjectChanged, ObjectUnavailable, BucketUnavailable: they could not be had.
    """
    try:
        with refusals_raised(store) as asked:
            format_of(file.key).verify(asked, file)
    except Unusable as unusable:
        return str(unusable)
    return None


def _is_about_format(file: SourceFile, failure: PySparkException) -> bool:
    """Whether an engine says that it has no reader for a file whose bytes are all right."""
    said = f"{failure.getCondition()} {failure}"
    return any(words in said for words in (*_NOT_SUPPORTED, *format_of(file.key).not_supported))
