"""Verdicts on the rows of a feed, and the exact rule that casts texts that are not in plain form.

Belongs here: the rules of a feed's declaration, and the choice among rows with the same key. Does not belong here:
reading files, and storing rows.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.readers.declared_forms import forms_of
from dagster_tidemark.lakehouse.table import LINEAGE, SOURCE_ROW, Table
from dagster_tidemark.sources.feed import Feed

_LONGEST_NUMBER = 400
_EXPONENT = "[eE][+-]?[0-9]{1,3}$"
_BEGINS_WITH_DAY = "^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}($|[ T])"
_DAY = "^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$"
_OF_JAVA = "[0-9.][dDfF]$|[xX]"  # numbers as in Java code, such as 5d or 0x1p3


def _above(number: int) -> str:
    """Return a pattern of the whole numbers above a number that have as many digits."""
    digits = str(number)
    return "|".join(
        f"{digits[:n]}[{int(digit) + 1}-9][0-9]{{{len(digits) - n - 1}}}"
        for n, digit in enumerate(digits)
        if digit < "9"
    )


_LOST = {
    **dict.fromkeys(("int", "bigint"), r"^[+-]?0[0-9]|^\+"),
    **dict.fromkeys(
        ("float", "double"),
        rf"^[+-]?0[0-9]|^\+|[1-9](\.?[0-9]){{17}}|^-?({_above(2**53)}|[1-9][0-9]{{16}})(\.0*)?$",
    ),
    "date": "[T ].*[1-9]",
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "[.,][0-9]{6}0*[1-9]"),
}
"""For each type, a pattern of what a cast would lose: leading zeros, too many digits, a time of day, nanoseconds."""


def judge(read: DataFrame, feed: Feed, table: Table) -> DataFrame:
    """Return the rows of a batch with their verdicts.

    The result has one row for each row of `read`, with the feed's columns, the partition column, lineage, `_partition`,
    `_file`, `_block`, `_row`, and:

    - `source_row` if the table has this column. Then the batch must be `numbered`;
    - `_reason` and `_message`: null for a good row;
    - `_content`: a bad row in its original form; null for a good row;
    - `_record`: the record of a bad row, if `judged_rows` must create the `_content` from it;
    - `_report`: the report of a task (`parsing.part_of_file`). If it is not null, this is not a row of a file.

    Args:
        read: The frame of `FileBatch.rows`. If a value of a row is not in plain form, `_texts` has the row's texts, and
            the exact rule (`typed`) casts them.
    """
    texts = _texts(feed)
    cast = texts | _plain_texts(feed)
    exact = {c: F.coalesce(c, F.when(_is_odd(), typed(cast[c], kind))) for c, kind in _typed(feed).items()}
    rows = read.withColumns(exact) if exact else read
    # Most rows are good, so reasons are computed only for bad rows.
    lost = {c: lost_by(kind) for c, kind in feed.columns.items() if feed.exact and lost_by(kind)}
    rows = rows.withColumn(
        "_verdict", F.when(~_is_good(feed, lost) & F.col("_report").isNull(), F.coalesce(*_verdicts(feed, lost)))
    )
    is_bad = F.col("_verdict").isNotNull()
    # Rows of typed formats have no record. Their content in the quarantine is their values as text.
    shown = F.when(_is_odd(), _json(texts)).when(
        F.col("_record").isNull(), _json({c: _shown(c, kind) for c, kind in feed.columns.items()})
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


def _shown(column: str, kind: str) -> Column:
    """Return a value as text. Bytes that are no text are hexadecimal."""
    text = F.col(column).cast("string")
    return F.coalesce(F.try_validate_utf8(text), F.hex(column)) if kind == "binary" else text


def _is_odd() -> Column:
    """Return True if a row has texts in `_texts`."""
    return F.col("_texts").isNotNull()


def _texts(feed: Feed) -> dict[str, Column]:
    """Return the text of each column, from `_texts`. Null if a row has no texts."""
    return {c: F.get("_texts", F.lit(n)) for n, c in enumerate(feed.columns)}


def _plain_texts(feed: Feed) -> dict[str, Column]:
    """Return the texts that casts read for columns with a declared form; null for a text without this form."""
    forms = forms_of(feed.columns, feed.text_format)
    return {c: F.get("_texts", F.lit(n)) for n, c in enumerate(forms, len(feed.columns))}


def _json(texts: Mapping[str, Column]) -> Column:
    return F.to_json(F.struct(*(text.alias(c) for c, text in texts.items())))


def deduplicate(good: DataFrame, table: Table, transform: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return table rows, one for each key: the row with the highest (arrived_at, source_file, position in the file).

    Args:
        good: Good rows of `judge`.
        transform: Function from good rows to table rows. It may make keys of several rows equal, for example by
            converting them to lower case.
    """
    # Rows are ranked after the transform, which drops `_block` and `_row`. So `source_version` carries the position.
    place = [F.lpad(F.col(c).cast("string"), 20, "0") for c in ("_block", "_row")]
    rows = transform(good.withColumn("source_version", F.concat_ws("\n", "source_version", *place)))
    newest_first = [F.desc(c) for c in ("arrived_at", "source_file", "source_version")]
    same_key = Window.partitionBy(*table.row_key).orderBy(*newest_first)
    ranked = rows.withColumn("_place", F.row_number().over(same_key)).where("_place = 1").drop("_place")
    return ranked.withColumn("source_version", F.substring_index("source_version", "\n", 1))


def has_one_a_key(rows: pa.Table, table: Table) -> bool:
    """Return True if no two table rows have the same key."""
    try:
        return bool(rows.group_by(table.row_key).aggregate([]).num_rows == rows.num_rows)
    except pa.ArrowNotImplementedError:  # Arrow does not group by all types
        return False


def has_duplicate_keys(rows: DataFrame, table: Table) -> bool:
    """Return True if two table rows have the same key, or different keys with the same hash."""
    # Hashes are compared because they are shorter than keys. If two keys have the same hash, ranking is unnecessary but
    # harmless.
    hashes = rows.groupBy(F.xxhash64(*table.row_key).alias("key")).count()
    return not hashes.where("count > 1").limit(1).isEmpty()


def typed(text: Column, kind: str) -> Column:
    """Cast a text to a declared type. The result is null if the text is not a value of this type."""
    trimmed = F.trim(text)
    if kind == "string":
        return F.nullif(text, F.lit(""))
    if kind == "binary":  # a blank is a byte like others
        return text.try_cast(kind)
    # 1e1000000000 would need a billion digits as a decimal, and would fail the whole job.
    has_exponent = F.contains(trimmed, F.lit("e")) | F.contains(trimmed, F.lit("E"))
    is_plain = (F.octet_length(trimmed) < _LONGEST_NUMBER) & (F.octet_length(trimmed) == F.length(trimmed))
    number = F.when(is_plain & (~has_exponent | trimmed.rlike(_EXPONENT)), trimmed)
    # Spreadsheets write 3.0 for the integer 3. But 2.7 is not an integer, although Spark would cast it to 2.
    exact = number.try_cast("decimal(38,18)")
    if kind.endswith(",0)"):
        return F.when(exact.isNull() | (exact == F.floor(exact)), number.try_cast(kind))
    if kind.startswith("decimal"):
        return number.try_cast(kind)
    if kind == "bigint":
        whole = F.when(exact == F.floor(exact), exact.try_cast("bigint"))
        return F.coalesce(trimmed.try_cast("bigint"), whole)
    if kind == "timestamp":
        # ISO 8601 allows a comma before the fraction, and a time without seconds. Spark allows neither.
        point = F.replace(trimmed, F.lit(","), F.lit("."))
        with_seconds = F.concat(F.left(trimmed, F.lit(16)), F.lit(":00"), F.substr(trimmed, F.lit(17)))
        time = F.coalesce(*(form.try_cast(kind) for form in (trimmed, point, with_seconds)))
        # Spark would cast a time without a date to today, and a month to its first day.
        return F.when(trimmed.rlike(_BEGINS_WITH_DAY), time)
    if kind == "date":
        # Spark would also cast a month, a year, or a day that any text follows.
        is_day = trimmed.rlike(_DAY) | typed(text, "timestamp").isNotNull()
        return F.when(is_day, trimmed.try_cast(kind))
    if kind in ("double", "float"):
        value = F.when(~trimmed.rlike(_OF_JAVA), trimmed.try_cast(kind))
        is_too_large = (F.abs(value) == float("inf")) & trimmed.rlike("[0-9]")  # 1e400 is a finite number
        return F.when(~is_too_large, value)
    return trimmed.try_cast(kind)


def _is_filled(text: Column) -> Column:
    return F.coalesce(F.trim(text) != "", F.lit(False))


def lost_by(kind: str) -> str:
    """Return a pattern of what a cast to a type would lose of a text; empty if it loses nothing."""
    if kind.startswith("decimal"):
        places = int(kind.rstrip(")").rpartition(",")[2])
        return rf"{_LOST['bigint']}|\.[0-9]{{{places}}}0*[1-9]|[1-9.].*[eE]-"
    return _LOST.get(kind, "")


def _is_good(feed: Feed, lost: Mapping[str, str]) -> Column:
    texts = _texts(feed)
    cast = texts | _plain_texts(feed)
    of_texts = [
        *(F.col(c).isNotNull() | ~_is_filled(texts[c]) for c in _typed(feed) if c not in feed.required),
        *(~F.coalesce(F.trim(cast[c]).rlike(pattern), F.lit(False)) for c, pattern in lost.items()),
    ]
    conditions = [
        F.col("_why").isNull(),
        *(F.col(c).isNotNull() for c in feed.required),
        *([~_is_odd() | _every(of_texts)] if of_texts else []),
        *([_are_kept(*feed.rules.values())] if feed.rules else []),
    ]
    return _every(conditions)


def _are_kept(*rules: str) -> Column:
    """Return True if a row satisfies all rules. A rule with an error (a division by zero, a cast) is not satisfied."""
    # `try_add` of a date returns null if evaluating an argument fails, and costs only an addition. The condition `_why`
    # is needed because Spark computes common parts of two rules first, outside of `try_add`.
    kept = F.when(F.col("_why").isNull(), _every([F.coalesce(F.expr(rule), F.lit(False)) for rule in rules]))
    day = F.lit(date(2000, 1, 1))
    return F.coalesce(F.try_add(day, kept.cast("int")) > day, F.lit(False))


def _every(conditions: Sequence[Column]) -> Column:
    # The conditions form a balanced tree, because Spark Connect refuses expressions with a hundred levels.
    half = len(conditions) // 2
    return _every(conditions[:half]) & _every(conditions[half:]) if half else conditions[0]


def _typed(feed: Feed) -> dict[str, str]:
    """Return the columns for which a cast may fail: all columns except those of type `string`."""
    return {c: kind for c, kind in feed.columns.items() if kind != "string"}


def _verdicts(feed: Feed, lost: Mapping[str, str]) -> list[Column]:
    """Return a column for each possible fault of a row, null if the row does not have it."""

    def when(condition: Column, reason: str, message: str | Column) -> Column:
        text = F.lit(message) if isinstance(message, str) else message
        return F.when(condition, F.struct(F.lit(reason).alias("reason"), text.alias("message")))

    texts = _texts(feed)
    cast = texts | _plain_texts(feed)
    forms = forms_of(feed.columns, feed.text_format)
    written = {c: f" written as {form.written}" for c, form in forms.items()}
    return [
        when(F.col("_why").isNotNull(), "malformed", F.col("_why")),
        *(
            when(
                _is_filled(texts[c]) & F.col(c).isNull(),
                "bad_type",
                F.concat(F.lit(f"{c}: expected {kind}{written.get(c, '')}, found "), texts[c]),
            )
            for c, kind in _typed(feed).items()
        ),
        *(
            when(
                F.trim(cast[c]).rlike(pattern),
                "bad_type",
                F.concat(
                    F.lit(f"{c}: {feed.columns[c]} cannot hold "),
                    texts[c],
                    F.lit("; declare a type that can, such as string"),
                ),
            )
            for c, pattern in lost.items()
        ),
        *(when(F.col(c).isNull(), "null_value", f"{c} is missing") for c in feed.required),
        *(when(~_are_kept(rule), reason, f"it breaks the rule {rule}") for reason, rule in feed.rules.items()),
    ]
