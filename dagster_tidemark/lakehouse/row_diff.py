"""Differences between two versions of a table's partitions, by row key. Each version is read once.

Rows with the same key are sorted by all columns and paired, so duplicates do not multiply. Belongs here: the
comparison. Does not belong here: the choice of versions (`preview`), and the output (`cli.plan_preview`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from heapq import nsmallest
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.branches import rows_of
from dagster_tidemark.lakehouse.table import LINEAGE, Table, quoted

EXAMPLES = 3
_GROUPS = 64
"""Number of groups of keys. Each group returns two examples, so it takes many groups to find three examples."""
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_WHOLE, "float", "double")
_NO_ORDER = ("map", "variant")
_ONE_SIDED = "rows"


@dataclass(frozen=True)
class Example:
    """Example of a changed row: its key, and the value of one column before and after. All values are texts or None."""

    key: Mapping[str, str | None]
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Total:
    """Sum of a numeric column over all compared rows, before and after."""

    before: Decimal | float | None
    after: Decimal | float | None


@dataclass(frozen=True)
class RowDiff:
    """Differences between two versions of some partitions.

    Args:
        columns: Number of changed rows, for each column that changed.
        examples: Some changed rows, for each column that changed. The key "" has rows that are in only one version.
        totals: Sums of all numeric columns that are not in the key.
    """

    rows_before: int
    rows_after: int
    added: int
    removed: int
    changed: int
    columns: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    totals: Mapping[str, Total] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        """True if any row differs."""
        return bool(self.added or self.removed or self.changed)


def row_diff(
    spark: SparkSession, table: Table, partitions: Collection[str] | None, before: int | None, after: int | None
) -> RowDiff:
    """Compare the rows of partitions as of two snapshots. `partitions` None means the whole table."""
    one, other = (rows_of(spark, table, partitions, at) for at in (before, after))
    return _together(*_shape(table), compared(table, one, other).collect())


def _shape(table: Table) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the key columns, the other columns with short names, and those other columns that are numeric."""
    key = list(dict.fromkeys([*table.partition_columns, *table.row_key]))
    values = [c for c in table.columns if c not in key and c not in LINEAGE]
    kinds = {c: table.columns[c].lower() for c in values}
    numbers = [c for c, kind in kinds.items() if kind in _NUMBERS or kind.startswith("decimal")]
    return key, {c: f"v{i}" for i, c in enumerate(values)}, numbers


def compared(table: Table, before: DataFrame, after: DataFrame) -> DataFrame:
    """Return one row per group of keys: counts of differing rows, sums, and the first and last examples."""
    key, v, numbers = _shape(table)
    k = {c: f"k{i}" for i, c in enumerate(key)}
    names = k | v
    same = [F.col(f"b.{name}").eqNullSafe(F.col(f"a.{name}")) for name in (*k.values(), "nth")]
    pairs = (
        _numbered(table, before, names, len(key))
        .alias("b")
        .join(_numbered(table, after, names, len(key)).alias("a"), on=_all(same), how="full_outer")
    )
    was, is_now = F.col("b.nth").isNotNull(), F.col("a.nth").isNotNull()
    both = was & is_now
    differs = {c: both & ~F.col(f"b.{n}").eqNullSafe(F.col(f"a.{n}")) for c, n in v.items()}
    counted = {
        "rows_before": was,
        "rows_after": is_now,
        "added": is_now & ~was,
        "removed": was & ~is_now,
        "changed": _any(list(differs.values())),
        **{f"n_{v[c]}": condition for c, condition in differs.items()},
    }
    asked = [F.count_if(condition).alias(name) for name, condition in counted.items()]
    asked += [F.try_sum(_summed(table, c, F.col(f"{s}.{v[c]}"))).alias(f"{s}_{v[c]}") for c in numbers for s in "ba"]
    row = F.array(*[F.coalesce(*[_text(table, c, F.col(f"{side}.{n}")) for side in "ba"]) for c, n in k.items()])
    shown = {v[c]: (differs[c], *(_text(table, c, F.col(f"{side}.{v[c]}")) for side in "ba")) for c in v}
    there = F.lit("there")
    shown[_ONE_SIDED] = (~both, F.when(was, there), F.when(is_now, there))
    for name, (condition, one, other) in shown.items():
        example = F.when(condition, F.struct(row.alias("key"), one.alias("before"), other.alias("after")))
        asked += [F.min(example).alias(f"first_{name}"), F.max(example).alias(f"last_{name}")]
    return pairs.groupBy(F.pmod(F.xxhash64(row), F.lit(_GROUPS)).alias("g")).agg(*asked)


def _together(key: Sequence[str], v: Mapping[str, str], numbers: Collection[str], groups: Sequence[Row]) -> RowDiff:
    counts = {
        name: sum(group[name] for group in groups)
        for name in ("rows_before", "rows_after", "added", "removed", "changed")
    }
    columns = {c: n for c, name in v.items() if (n := sum(group[f"n_{name}"] for group in groups))}
    wanted = {c: v[c] for c in columns} | ({"": _ONE_SIDED} if counts["added"] or counts["removed"] else {})
    examples = {c: _examples(key, groups, name) for c, name in wanted.items()}
    totals = {c: Total(*(_sum([group[f"{side}_{v[c]}"] for group in groups]) for side in "ba")) for c in numbers}
    return RowDiff(**counts, columns=columns, examples=examples, totals=totals)


def _examples(key: Sequence[str], groups: Sequence[Row], name: str) -> list[Example]:
    ends = [group[f"{end}_{name}"] for group in groups for end in ("first", "last")]
    rows = {(tuple(end.key), end.before, end.after) for end in ends if end is not None}
    found = nsmallest(
        EXAMPLES, rows, key=lambda row: [(value is not None, value or "") for value in (*row[0], *row[1:])]
    )
    return [Example(dict(zip(key, keys, strict=True)), before, after) for keys, before, after in found]


def _sum(values: Sequence[Any]) -> Decimal | float | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _numbered(table: Table, rows: DataFrame, names: Mapping[str, str], keys: int) -> DataFrame:
    """Rename the columns to short names. Sort rows with the same key by all columns, and number them."""
    shortened = rows.select(*[_comparable(table, c, F.col(quoted(c))).alias(name) for c, name in names.items()])
    short = list(names.values())
    return shortened.withColumn("nth", F.row_number().over(Window.partitionBy(*short[:keys]).orderBy(*short)))


def _comparable(table: Table, column: str, value: Column) -> Column:
    """Return the value, or its JSON text if Spark cannot compare values of this type."""
    return F.to_json(value) if table.columns[column].lower().startswith(_NO_ORDER) else value


def _text(table: Table, column: str, value: Column) -> Column:
    kind = table.columns[column].lower()
    return F.hex(value) if kind == "binary" else value.cast("string")


def _summed(table: Table, column: str, value: Column) -> Column:
    # The sum of bigints may overflow, which is an error in ANSI mode.
    return value.cast("decimal(38,0)") if table.columns[column].lower() in _WHOLE else value


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions)


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions, F.lit(False))
