"""Columns that files have and nobody declared, of a feed that adds them (`NewColumns.ADD`).

Once the headers of its files are known, a load goes on with a wider feed and a wider table: what is declared, what was
added earlier and what is new. So reading, judging and committing are the same for all columns. Does not belong here:
how a table gets a column (`catalog`), and what the other policies do (`probe`).
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
"""The columns of a table, declared ones among them, beyond which none is added."""


@dataclass(frozen=True)
class Additions:
    """What became of columns that nobody declared.

    Args:
        there: Those that the table has now.
        added: Those of them that it did not have when the load began.
        refused: Those that a table cannot get, with the reason.
        dropped: Those that the transform does not let through, with what it does.
    """

    there: Sequence[str] = ()
    added: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wider:
    """What a load goes on with once its files were looked into.

    Args:
        load: The load as declared, and the columns that were added.
        inspected: The files, of which a column that is not declared is told by its name.
        not_taken: Columns of the files that are not read, with the files.
    """

    load: Load
    inspected: Inspected
    not_taken: Mapping[str, Sequence[str]]
    additions: Additions = Additions()


@catalog.again_after_a_race
def widened(
    spark: SparkSession, load: Load, inspected: Inspected, before: Collection[str], *, may_alter: bool = True
) -> Wider:
    """Let a load take the columns of its files that are not declared, if its feed adds them, and add them to its table.

    To be asked after the look: a column that holds values at the load's snapshot is in the table now.

    Args:
        before: The columns that were there beside the declared ones when the load began.
        may_alter: Whether the table gets them; if not, it is told as if it had.

    Raises:
        SchemaDiffers: the table has another column that is not declared.
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
        refused |= {c: "the transform makes a column of this name" for c in new if c.lower() in made}
    dropped = _dropped(spark, load, [*there, *(c for c in new if c not in refused)])
    new = [c for c in new if c not in refused and c not in dropped]
    if new and load.table.branch:
        raise SchemaDiffers(
            f"files of {load.feed.name} have the new columns {', '.join(new)}, which {load.table.name} gets "
            "with its next load, and no preview may add: preview again after that load"
        )
    if new and may_alter:
        catalog.add_texts(spark, load.table, new, f"{NOT_DECLARED}as the files of {load.feed.name} have it")
    has = (*there, *new)
    read = [c for c in has if c not in dropped]
    additions = Additions(
        has,
        [c for c in has if c not in before and c in in_files],
        refused | dict.fromkeys(twice, "it stands twice in a header"),
        {c: why for c, why in dropped.items() if c in in_files},
    )
    not_taken = {c: files for c, files in in_files.items() if c not in read} | twice
    return Wider(_with(load, has, read), inspected, not_taken, additions)


def addable(names: Iterable[str], taken: Iterable[str], columns: int) -> tuple[list[str], dict[str, str]]:
    """Which of these names a table can get, first come first served, and why it cannot get the others.

    Args:
        taken: Names that are somebody else's; case makes no difference.
        columns: How many columns the table has.
    """
    spoken_for = {name.lower(): name for name in taken}
    new: list[str] = []
    refused: dict[str, str] = {}
    for name in names:
        if not catalog.PLAIN_NAME.fullmatch(name):
            refused[name] = "a name is a letter and then letters, digits or _"
        elif name.lower() in spoken_for:
            refused[name] = f"there is a column {spoken_for[name.lower()]}"
        elif columns + len(new) >= MOST:
            refused[name] = f"a table gets no more than {MOST} columns"
        else:
            new.append(name)
            spoken_for[name.lower()] = name
    return new, refused


def transformed(load: Load, good: DataFrame) -> DataFrame:
    """The table rows of good rows; where the transform drops a column that was added, it is null."""
    lacking = [c for c in load.table.added if c not in load.feed.columns]
    rows = load.transform(good)
    return rows.withColumns({c: F.lit(None).cast("string") for c in lacking}) if lacking else rows


def is_behind(spark: SparkSession, load: Load) -> bool:
    """Whether another run has added a column since a load was widened: such a table takes no rows without it."""
    if not load.feed.adds_columns:
        return False
    declared = replace(load.table, columns={c: t for c, t in load.table.columns.items() if c not in load.table.added})
    return set(catalog.texts_beside(spark, declared)) != set(load.table.added)


def _with(load: Load, in_table: Collection[str], in_feed: Collection[str]) -> Load:
    feed = replace(load.feed, columns=load.feed.columns | dict.fromkeys(in_feed, "string"))
    columns = load.table.columns | dict.fromkeys(in_table, "string")
    return replace(load, feed=feed, table=replace(load.table, columns=columns, added=tuple(in_table)))


def _told_apart(inspected: Inspected, load: Load) -> tuple[Inspected, dict[str, list[str]]]:
    """The files without the names that stand twice in a header, and these names with the files."""
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
    """Which of these columns do not come out of the transform as they went in, and what it does."""
    if not columns:
        return {}
    try:
        kinds = dict(_transformed(spark, _with(load, columns, columns)).dtypes)
    except (AnalysisException, ValueError, AssertionError) as error:
        if len(columns) > 1:  # one of them must not be held against the others
            half = len(columns) // 2
            return _dropped(spark, load, columns[:half]) | _dropped(spark, load, columns[half:])
        _ = _transformed(spark, load).columns  # a transform that fails without it is no matter of this column
        return {columns[0]: f"fails with it: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"}
    return {c: "drops it" if c not in kinds else f"makes it {kinds[c]}" for c in columns if kinds.get(c) != "string"}
