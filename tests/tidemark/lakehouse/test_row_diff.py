"""What differs between two versions of a table: against pandas, over random tables."""

import random
import re
import uuid
from datetime import date
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import branches, catalog, write
from dagster_tidemark.lakehouse.row_diff import RowDiff, compared, row_diff
from dagster_tidemark.lakehouse.table import Table
from tests.sampling import sample

DAYS = ("2026-10-01", "2026-10-02", "2026-10-03")
SCHEMA = "day date, k string, n bigint, price decimal(10,2), note string, share double"
Row = tuple[Any, ...]


def table() -> Table:
    columns = dict(part.strip().split(" ") for part in SCHEMA.split(", "))
    return Table(f"t{uuid.uuid4().hex[:8]}.x", columns, ("day", "k"), "day")


def random_row(dice: random.Random, day: str) -> Row:
    def or_null(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    return (
        date.fromisoformat(day),
        or_null(f"k{dice.randrange(12)}"),
        or_null(dice.randrange(-3, 3)),
        or_null(Decimal(dice.randrange(-300, 300)) / 4),
        or_null(dice.choice(["", "a", "b"])),
        or_null(dice.choice([0.0, 1.5, float("nan"), -2.25])),
    )


def mutated(dice: random.Random, rows: list[Row]) -> list[Row]:
    kept = [row for row in rows if dice.random() > 0.2]
    day = str(rows[0][0])
    changed = [(*row[:2], *random_row(dice, day)[2:]) if dice.random() < 0.4 else row for row in kept]
    return [*changed, *(random_row(dice, day) for _ in range(dice.randrange(6)))]


def by_pandas(before: list[Row], after: list[Row]) -> dict[str, Any]:
    """The figures, worked out with another engine."""
    names = [part.split(" ")[0] for part in SCHEMA.split(", ")]
    values = names[2:]

    def keyed(rows: list[Row]) -> dict[tuple[Any, int], Row]:
        as_text = pd.DataFrame(
            [[i, str(row[:2]), *[_rank(v) for v in row]] for i, row in enumerate(rows)], columns=["i", "key", *names]
        )
        ordered = as_text.sort_values(names)
        nth = ordered.groupby("key").cumcount()
        return {(rows[i][:2], n): rows[i] for i, n in zip(ordered["i"], nth, strict=True)}

    one, other = keyed(before), keyed(after)
    both = one.keys() & other.keys()
    differs = {
        name: sum(_rank(one[at][column]) != _rank(other[at][column]) for at in both)
        for column, name in enumerate(names)
        if name in values
    }
    return {
        "rows_before": len(before),
        "rows_after": len(after),
        "added": len(other.keys() - one.keys()),
        "removed": len(one.keys() - other.keys()),
        "changed": sum(any(_rank(a) != _rank(b) for a, b in zip(one[at], other[at], strict=True)) for at in both),
        "columns": {name: count for name, count in differs.items() if count},
    }


def _rank(value: Any) -> tuple[int, Any]:
    """As Spark orders and compares: nulls first, NaN last and equal to itself."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)


def figures(diff: RowDiff) -> dict[str, Any]:
    names = ("rows_before", "rows_after", "added", "removed", "changed")
    return {name: getattr(diff, name) for name in names} | {"columns": dict(diff.columns)}


@pytest.mark.parametrize("seed", sample(range(4), 0, 1))
def test_row_diff_counts_equal_those_of_pandas(spark: SparkSession, seed: int) -> None:
    dice, x = random.Random(seed), table()
    before = {day: [random_row(dice, day) for _ in range(40)] for day in DAYS}
    after = before | {day: mutated(dice, before[day]) for day in DAYS[:2]}
    catalog.ensure(spark, x)
    write.overwrite(
        spark.createDataFrame([row for rows in before.values() for row in rows], SCHEMA), x, DAYS, run_id="1"
    )
    base = write.current_snapshot(spark, x)
    branches.create(spark, x, "preview_x", base)
    changed = spark.createDataFrame([row for day in DAYS[:2] for row in after[day]], SCHEMA)
    head = branches.overwrite(changed, x, "preview_x", DAYS[:2], run_id="2")
    diff = row_diff(spark, x, DAYS[:2], base, head)
    one, other = ([row for day in DAYS[:2] for row in version[day]] for version in (before, after))
    assert figures(diff) == by_pandas(one, other)
    for column, at in (("n", 2), ("price", 3)):
        total = diff.totals[column]
        assert total.before == sum(row[at] for row in one if row[at] is not None)
        assert total.after == sum(row[at] for row in other if row[at] is not None)
    for column, examples in diff.examples.items():
        wanted = diff.columns[column] if column else diff.added + diff.removed
        assert 0 < len(examples) <= min(3, wanted)
        assert all(example.before != example.after for example in examples)
    assert not row_diff(spark, x, DAYS[2:], base, head).differs


def test_row_diff_reads_each_version_of_the_selected_partitions_once(spark: SparkSession) -> None:
    x = table()
    rows = [(date.fromisoformat(day), f"k{i}", i, Decimal(i), "", 0.5) for day in DAYS for i in range(100)]
    catalog.ensure(spark, x)
    write.overwrite(spark.createDataFrame(rows, SCHEMA), x, DAYS, run_id="1")
    base = write.current_snapshot(spark, x)
    branches.create(spark, x, "preview_x", base)
    head = branches.overwrite(spark.createDataFrame(rows[:100], SCHEMA), x, "preview_x", DAYS[:1], run_id="2")
    frames = [branches.rows_of(spark, x, DAYS[:1], at) for at in (base, head)]
    asked = compared(x, *frames)
    asked.collect()
    found = asked.executionInfo
    assert found is not None
    read = [int(rows) for rows in re.findall(r"BatchScan .*?numOutputRows: (\d+)", found.metrics.toText())]
    assert len(read) == 2 and sum(read) <= 1.1 * 200, read


def test_row_diff_reports_changed_added_and_removed_rows(spark: SparkSession) -> None:
    x = Table(f"t{uuid.uuid4().hex[:8]}.x", {"k": "bigint", "m": "map<string,bigint>", "b": "binary"}, ("k",))
    schema = "k bigint, m map<string,bigint>, b binary"
    one = [(1, {"a": 1}, b"\x00"), (2, None, None), (3, None, None)]
    other = [(1, {"a": 2}, b"\x00"), (2, None, b"\xff"), (4, None, None)]
    catalog.ensure(spark, x)
    assert not row_diff(spark, x, None, None, None).differs
    first = write.overwrite(spark.createDataFrame(one, schema), x, None, run_id="1").snapshot_id
    second = write.overwrite(spark.createDataFrame(other, schema), x, None, run_id="2").snapshot_id
    diff = row_diff(spark, x, None, first, second)
    by_hand = {"rows_before": 3, "rows_after": 3, "added": 1, "removed": 1, "changed": 2}
    assert figures(diff) == by_hand | {"columns": {"m": 1, "b": 1}}
    ((changed,), (filled,)) = (diff.examples["m"], diff.examples["b"])
    assert (changed.key, filled.before, filled.after) == ({"k": "1"}, None, "FF")
    assert [(e.key["k"], e.before, e.after) for e in diff.examples[""]] == [("3", "there", None), ("4", None, "there")]
