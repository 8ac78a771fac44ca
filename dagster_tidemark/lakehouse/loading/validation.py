"""Which rows of a feed are good: from texts to typed values and a verdict on each row.

Belongs here: what a feed's declaration says of its rows, and which of several rows of one key wins. Does not belong
here: how files are read, and what becomes of the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.table import LINEAGE, SOURCE_ROW, Table
from dagster_tidemark.sources.feed import Feed

_LONGEST_NUMBER = 400
_EXPONENT = "[eE][+-]?[0-9]{1,3}$"
_BEGINS_WITH_DAY = "^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}($|[ T])"
_DAY = "^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$"
_OF_JAVA = "[0-9.][dDfF]$|[xX]"  # numbers in a program: 5d, 0x1p3
_LOST = {
    **dict.fromkeys(("int", "bigint"), r"^[+-]?0[0-9]|^\+"),
    **dict.fromkeys(("float", "double"), r"^[+-]?0[0-9]|^\+|[1-9](\.?[0-9]){17}"),
    "date": "[T ].*[1-9]",
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "[.,][0-9]{6}0*[1-9]"),
}
"""What a text may have that a value of its type has not: leading zeros, too many digits, a time of day, nanoseconds."""


def judge(read: DataFrame, feed: Feed, table: Table) -> DataFrame:
    """Landing rows with a verdict.

    One row per row read: the feed's columns, the partition column, `source_row` if the table has it (the batch is
    `numbered` then), lineage, `_partition`, `_file`, `_block`, `_row`, `_reason` and `_message` (null for a good
    row), `_content` (the row as it was; null for a good row), `_record` (what stands there, of a bad row whose
    `_content` is to be made from it, see `row_contents`), and `_report` (not null: the report of a task, not a
    row, see `parsing.part_of_file`).

    Args:
        read: What `Batch.rows` found. A row whose values are not all in plain form comes with its texts, and these are
            judged here, by the one exact rule.
    """
    texts = _texts(feed)
    exact = {c: F.coalesce(c, F.when(_is_odd(), typed(texts[c], kind))) for c, kind in _typed(feed).items()}
    rows = read.withColumns(exact) if exact else read
    # What is wrong is worked out for bad rows only: most are good.
    lost = {c: lost_by(kind) for c, kind in feed.columns.items() if feed.exact and lost_by(kind)}
    rows = rows.withColumn(
        "_verdict", F.when(~_is_good(feed, lost) & F.col("_report").isNull(), F.coalesce(*_verdicts(feed, lost)))
    )
    is_bad = F.col("_verdict").isNotNull()
    # Of values with types of their own the row as it was is what they are as texts.
    shown = F.when(_is_odd(), _json(texts)).when(
        F.col("_record").isNull(), _json({c: F.col(c).cast("string") for c in feed.columns})
    )
    content = F.when(F.col("_why").isNotNull(), F.col("_record")).otherwise(shown)
    return rows.select(
        *feed.columns,
        *table.partition_columns,
        *(F.expr("_row + 1").alias(c) for c in SOURCE_ROW if c in table.columns),
        *LINEAGE,
        "_partition",
        "_file",
        "_block",
        "_row",
        F.col("_verdict.reason").alias("_reason"),
        F.col("_verdict.message").alias("_message"),
        F.when(is_bad, content).alias("_content"),
        F.when(is_bad & content.isNull(), F.col("_record")).alias("_record"),
        "_report",
    )


def _is_odd() -> Column:
    """Whether a row came with its texts."""
    return F.col("_texts").isNotNull()


def _texts(feed: Feed) -> dict[str, Column]:
    """The texts of a row that has them."""
    return {c: F.get("_texts", F.lit(n)) for n, c in enumerate(feed.columns)}


def _json(texts: Mapping[str, Column]) -> Column:
    return F.to_json(F.struct(*(text.alias(c) for c, text in texts.items())))


def deduplicate(good: DataFrame, table: Table, transform: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Table rows, of those with the same key the one of the highest (arrived_at, source_file, position in the file).

    Args:
        good: Good rows, as `judge` gives them.
        transform: From these to table rows. It may make one key of two, as lower case does.
    """
    # Ranked after it, but where a row stands does not come through it: the row's version takes that along.
    place = [F.lpad(F.col(c).cast("string"), 20, "0") for c in ("_block", "_row")]
    rows = transform(good.withColumn("source_version", F.concat_ws("\n", "source_version", *place)))
    newest_first = [F.desc(c) for c in ("arrived_at", "source_file", "source_version")]
    same_key = Window.partitionBy(*table.row_key).orderBy(*newest_first)
    ranked = rows.withColumn("_place", F.row_number().over(same_key)).where("_place = 1").drop("_place")
    return ranked.withColumn("source_version", F.substring_index("source_version", "\n", 1))


def has_one_a_key(rows: pa.Table, table: Table) -> bool:
    """Whether no two of these table rows have the same key."""
    try:
        return bool(rows.group_by(table.row_key).aggregate([]).num_rows == rows.num_rows)
    except pa.ArrowNotImplementedError:  # a key of a type that Arrow does not group by
        return False


def has_duplicate_keys(rows: DataFrame, table: Table) -> bool:
    """Whether any two table rows have the same key."""
    # By a hash of the key, which is shorter than the key: two keys that share one are only ranked in vain.
    hashes = rows.groupBy(F.xxhash64(*table.row_key).alias("key")).count()
    return not hashes.where("count > 1").limit(1).isEmpty()


def typed(text: Column, kind: str) -> Column:
    """A text as a value of a declared type; null where it is none."""
    trimmed = F.trim(text)
    if kind == "string":
        return F.nullif(text, F.lit(""))
    # Of 1e1000000000 a decimal would be a number of so many digits: an error of the whole job, not of the row.
    has_exponent = F.contains(trimmed, F.lit("e")) | F.contains(trimmed, F.lit("E"))
    is_plain = (F.octet_length(trimmed) < _LONGEST_NUMBER) & (F.octet_length(trimmed) == F.length(trimmed))
    number = F.when(is_plain & (~has_exponent | trimmed.rlike(_EXPONENT)), trimmed)
    # 3.0 is three, as a spreadsheet writes it; 2.7 is no count, where a cast alone would make another number of it.
    exact = number.try_cast("decimal(38,18)")
    if kind.endswith(",0)"):
        return F.when(exact.isNull() | (exact == F.floor(exact)), number.try_cast(kind))
    if kind.startswith("decimal"):
        return number.try_cast(kind)
    if kind == "bigint":
        whole = F.when(exact == F.floor(exact), exact.try_cast("bigint"))
        return F.coalesce(trimmed.try_cast("bigint"), whole)
    if kind == "timestamp":
        # ISO 8601 allows a comma before the fraction, and no seconds; Spark neither.
        point = F.replace(trimmed, F.lit(","), F.lit("."))
        with_seconds = F.concat(F.left(trimmed, F.lit(16)), F.lit(":00"), F.substr(trimmed, F.lit(17)))
        time = F.coalesce(*(form.try_cast(kind) for form in (trimmed, point, with_seconds)))
        # A time without a date would be taken for today's, a month for its first day. Of what is a time at all most is
        # seen to begin with a day by three characters; the pattern is for the others.
        begins_with_day = (
            (F.substring(trimmed, 5, 1) == "-")
            & (F.substring(trimmed, 8, 1) == "-")
            & F.substring(trimmed, 11, 1).isin("T", " ", "")
        )
        return F.when(begins_with_day | trimmed.rlike(_BEGINS_WITH_DAY), time)
    if kind == "date":
        # A cast alone takes what is behind the day, whatever it is, and months and years by themselves.
        is_day = trimmed.rlike(_DAY) | typed(text, "timestamp").isNotNull()
        return F.when(is_day, trimmed.try_cast(kind))
    if kind in ("double", "float"):
        value = F.when(~trimmed.rlike(_OF_JAVA), trimmed.try_cast(kind))
        is_too_large = (F.abs(value) == float("inf")) & trimmed.rlike("[0-9]")  # 1e400 is a number, and not infinite
        return F.when(~is_too_large, value)
    return trimmed.try_cast(kind)


def _is_filled(text: Column) -> Column:
    return F.coalesce(F.trim(text) != "", F.lit(False))


def lost_by(kind: str) -> str:
    """Return a pattern of what a text may have that a value of a type has not; empty if there is no such thing."""
    if kind.startswith("decimal"):
        places = int(kind.rstrip(")").rpartition(",")[2])
        return rf"{_LOST['bigint']}|\.[0-9]{{{places}}}0*[1-9]|[1-9.].*[eE]-"
    return _LOST.get(kind, "")


def _is_good(feed: Feed, lost: Mapping[str, str]) -> Column:
    texts = _texts(feed)
    of_texts = [
        *(F.col(c).isNotNull() | ~_is_filled(texts[c]) for c in _typed(feed) if c not in feed.required),
        *(~F.coalesce(F.trim(texts[c]).rlike(pattern), F.lit(False)) for c, pattern in lost.items()),
    ]
    conditions = [
        F.col("_why").isNull(),
        *(F.col(c).isNotNull() for c in feed.required),
        *([~_is_odd() | _every(of_texts)] if of_texts else []),
        *([_are_kept(*feed.rules.values())] if feed.rules else []),
    ]
    return _every(conditions)


def _are_kept(*rules: str) -> Column:
    """Whether a row keeps all rules; one of which it cannot be worked out (a division by zero, a cast) is not kept."""
    # Of Spark's functions that give null for an error `try_add` of a date is one that does so for all that it is made
    # from, at the price of an addition. Behind a condition, since Spark works out what two rules have in common before
    # either, where nothing catches it.
    kept = F.when(F.col("_why").isNull(), _every([F.coalesce(F.expr(rule), F.lit(False)) for rule in rules]))
    day = F.lit(date(2000, 1, 1))
    return F.coalesce(F.try_add(day, kept.cast("int")) > day, F.lit(False))


def _every(conditions: Sequence[Column]) -> Column:
    # As a balanced tree: an expression that is nested a hundred deep is none to Spark Connect.
    half = len(conditions) // 2
    return _every(conditions[:half]) & _every(conditions[half:]) if half else conditions[0]


def _typed(feed: Feed) -> dict[str, str]:
    """The columns of which a text may be no value; of `string` every text is one."""
    return {c: kind for c, kind in feed.columns.items() if kind != "string"}


def _verdicts(feed: Feed, lost: Mapping[str, str]) -> list[Column]:
    """For each thing that can be wrong with a row, a column that is null unless it is."""

    def when(condition: Column, reason: str, message: str | Column) -> Column:
        said = F.lit(message) if isinstance(message, str) else message
        return F.when(condition, F.struct(F.lit(reason).alias("reason"), said.alias("message")))

    texts = _texts(feed)
    return [
        when(F.col("_why").isNotNull(), "malformed", F.col("_why")),
        *(
            when(_is_filled(texts[c]) & F.col(c).isNull(), "bad_type", F.concat(F.lit(f"{c} is no {kind}: "), texts[c]))
            for c, kind in _typed(feed).items()
        ),
        *(
            when(
                F.trim(texts[c]).rlike(pattern),
                "bad_type",
                F.concat(
                    F.lit(f"{c}: {feed.columns[c]} keeps a part only of "),
                    texts[c],
                    F.lit("; declare a type that keeps it, such as string"),
                ),
            )
            for c, pattern in lost.items()
        ),
        *(when(F.col(c).isNull(), "null_value", f"{c} is missing") for c in feed.required),
        *(when(~_are_kept(rule), reason, f"a good row has {rule}") for reason, rule in feed.rules.items()),
    ]
