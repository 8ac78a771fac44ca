"""Undeclared columns of files, for a feed that adds them (`NewColumns.ADD`).

After a load has read the headers of its files, it continues with a feed and a table that have more columns: declared
columns, earlier additions and new columns. So reading, judging and committing are the same for all columns. Does not
belong here: altering a table (`catalog`), and the other policies (`probe`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse import catalog
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.loading.validation import judge
from dagster_tidemark.lakehouse.readers.batch import no_rows
from dagster_tidemark.lakehouse.readers.file_format import Shape
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.lakehouse.readers.probe import Inspected
from dagster_tidemark.lakehouse.table import LINEAGE, SOURCE_ROW, SchemaDiffers
from dagster_tidemark.lakehouse.table_changes import NOT_DECLARED

MOST = 200
"""Maximum number of columns of a table, including declared columns. Further columns are refused."""


@dataclass(frozen=True)
class Additions:
    """Undeclared columns that were added or refused.

    Args:
        there: Undeclared columns that the table has now.
        added: Columns of the files that the table did not have when the load began.
        refused: Columns that cannot be added to the table, with the reason.
        dropped: Columns that the transform drops or changes, or that make it fail, each with what the transform does.
    """

    there: Sequence[str] = ()
    added: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wider:
    """Load with the added columns, and its inspected files.

    Args:
        load: The declared load with the added columns.
        inspected: The files, without the names of undeclared columns that occur twice in a header.
        not_taken: Columns that are not read, each with the files that have it.
    """

    load: Load
    inspected: Inspected
    not_taken: Mapping[str, Sequence[str]]
    additions: Additions = Additions()


@catalog.again_after_a_spark_race
def widened(
    spark: SparkSession, load: Load, inspected: Inspected, before: Collection[str], *, may_alter: bool = True
) -> Wider:
    """Add the undeclared columns of files to a load and to the load's table, if the feed adds columns.

    Call this after `load_state.look`: then the table has every column that has values at the load's snapshot.

    Args:
        before: The undeclared columns that the table had when the load began.
        may_alter: True to add the columns to the table. False to return the same result without altering the table.

    Raises:
        SchemaDiffers: an undeclared column of the table is not a text, or the table cannot be altered as declared, or
            the table is a branch and needs a new column.
    """
    in_files = inspected.new_columns(load.feed)
    if not load.feed.adds_columns:
        return Wider(load, inspected, in_files)
    there = catalog.texts_beside(spark, load.table)
    if not inspected.readable:
        return Wider(_with(load, there, there), inspected, {}, Additions(there))
    inspected, twice = _told_apart(inspected, load)
    names = [name for name in inspected.new_columns(load.feed) if name in in_files and name not in there]
    taken = [*load.feed.columns, *load.table.columns, *LINEAGE, *SOURCE_ROW, *there]
    new, refused = addable(names, taken, len(load.table.columns) + len(there))
    if new:
        made = {c.lower() for c in _transformed(spark, load).columns}
        refused |= {c: "the transform creates a column of this name" for c in new if c.lower() in made}
    dropped = _dropped(spark, load, [*there, *(c for c in new if c not in refused)])
    new = [c for c in new if c not in refused and c not in dropped]
    if new and load.table.branch:
        raise SchemaDiffers(
            f"files of {load.feed.name} have the new columns {', '.join(new)}, which a "
            f"preview cannot add: preview again after the next load of {load.table.name}"
        )
    if new and may_alter:
        catalog.add_texts(spark, load.table, new, f"{NOT_DECLARED}as the files of {load.feed.name} have it")
    has = (*there, *new)
    read = [c for c in has if c not in dropped]
    additions = Additions(
        has,
        [c for c in has if c not in before and c in in_files],
        refused | dict.fromkeys(twice, "it occurs twice in a header"),
        {c: why for c, why in dropped.items() if c in in_files},
    )
    not_taken = {c: files for c, files in in_files.items() if c not in read} | twice
    return Wider(_with(load, has, read), inspected, not_taken, additions)


def addable(names: Iterable[str], taken: Iterable[str], columns: int) -> tuple[list[str], dict[str, str]]:
    """Return the names that can be added to a table as columns, in order, and the reason for each other name.

    Args:
        taken: Names that are in use. Case is ignored.
        columns: Number of columns that the table has.
    """
    spoken_for = {name.lower(): name for name in taken}
    new: list[str] = []
    refused: dict[str, str] = {}
    for name in names:
        if not catalog.PLAIN_NAME.fullmatch(name):
            refused[name] = "expected a letter, then letters, digits or _"
        elif name.lower() in spoken_for:
            refused[name] = f"the column {spoken_for[name.lower()]} exists"
        elif columns + len(new) >= MOST:
            refused[name] = f"a table gets at most {MOST} columns"
        else:
            new.append(name)
            spoken_for[name.lower()] = name
    return new, refused


def transformed(load: Load, good: DataFrame) -> DataFrame:
    """Return good rows as table rows. An added column that the transform drops is null."""
    lacking = [c for c in load.table.added if c not in load.feed.columns]
    rows = load.transform(good)
    return rows.withColumns({c: F.lit(None).cast("string") for c in lacking}) if lacking else rows


def is_behind(spark: SparkSession, load: Load) -> bool:
    """Return True if another run has added a column since `widened`. The table refuses rows without this column."""
    if not load.feed.adds_columns:
        return False
    declared = replace(load.table, columns={c: t for c, t in load.table.columns.items() if c not in load.table.added})
    return set(catalog.texts_beside(spark, declared)) != set(load.table.added)


def _with(load: Load, in_table: Collection[str], in_feed: Collection[str]) -> Load:
    feed = replace(load.feed, columns=load.feed.columns | dict.fromkeys(in_feed, "string"))
    columns = load.table.columns | dict.fromkeys(in_table, "string")
    return replace(load, feed=feed, table=replace(load.table, columns=columns, added=tuple(in_table)))


def _told_apart(inspected: Inspected, load: Load) -> tuple[Inspected, dict[str, list[str]]]:
    """Remove names that occur twice in a header. Return the files, and the removed names with their files."""
    twice: dict[str, list[str]] = {}

    def apart(file: SourceFile, shape: Shape) -> Shape:
        count = Counter(name for name, _ in shape.columns if name not in load.feed.columns)
        for name in (name for name, times in count.items() if times > 1):
            twice.setdefault(name, []).append(file.key)
        return replace(shape, columns=tuple(("" if count[name] > 1 else name, kind) for name, kind in shape.columns))

    shapes = {file: apart(file, shape) for file, shape in inspected.shapes.items()}
    return replace(inspected, shapes=shapes), twice


def _transformed(spark: SparkSession, load: Load) -> DataFrame:
    nothing = no_rows(spark, load.feed, load.table.partition_values_sql("_partition"))
    return load.transform(judge(nothing, load.feed, load.table).where("_reason IS NULL"))


def _dropped(spark: SparkSession, load: Load, columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that the transform drops or changes, or that make it fail, with what the transform does."""
    if not columns:
        return {}
    try:
        kinds = dict(_transformed(spark, _with(load, columns, columns)).dtypes)
    except (AnalysisException, ValueError, AssertionError) as error:
        if len(columns) > 1:  # one bad column must not exclude the others
            half = len(columns) // 2
            return _dropped(spark, load, columns[:half]) | _dropped(spark, load, columns[half:])
        _ = _transformed(spark, load).columns  # raises if the transform fails without the column too
        return {columns[0]: f"fails with it: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"}
    return {
        c: "drops it" if c not in kinds else f"returns it as {kinds[c]}" for c in columns if kinds.get(c) != "string"
    }
