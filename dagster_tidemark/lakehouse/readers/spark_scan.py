"""Large files, read by Spark, bound by column name.

Spark binds a CSV with a declared schema by position and kills a whole job for one bad file. So files of the same
physical shape are read together, each with its own physical schema, and `verdict` names the ones at fault when a scan
has failed. Does not belong here: small files (`in_memory`), what is in a format's files (`file_format`), and which rows
are good (`validation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import FileFault, ObjectStore, SourceFile
from dagster_tidemark.lakehouse.readers.format_registry import by_format
from dagster_tidemark.sources.feed import Feed


def scan(spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]) -> DataFrame:
    """The rows of these files (at least one), with the columns `files.columns_of_rows`."""
    frames = [read_as.scan_all(spark, store, feed, files) for read_as, files in by_format(shapes)]
    return reduce(DataFrame.unionByName, frames)


def look_closer(
    spark: SparkSession, store: ObjectStore, feed: Feed, shapes: Mapping[SourceFile, Shape]
) -> tuple[dict[SourceFile, Shape], list[FileFault]]:
    """What the beginning of a large file does not say, where its format needs it, is looked for in all of it.

    Returns:
        The shapes as they are to be read, and the files that turned out to be none of their format.
    """
    closer: dict[SourceFile, Shape] = {}
    faults: list[FileFault] = []
    for read_as, files in by_format(shapes):
        if read_as.look_closer is None:
            closer |= files
        else:
            found, wrong = read_as.look_closer(spark, store, feed, files)
            closer |= found
            faults += wrong
    return {file: closer[file] for file in shapes if file in closer}, faults
