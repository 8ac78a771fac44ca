"""Columns that files have and nobody declared: ignored, added to the table or a reason to turn a file away."""

import dataclasses
import gzip
import io
import json
import uuid
from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.execution.load_check import quarantine_result
from dagster_tidemark.lakehouse import catalog
from dagster_tidemark.lakehouse.loading import new_columns
from dagster_tidemark.lakehouse.loading.dry_run import rehearse
from dagster_tidemark.lakehouse.loading.load import Load, Loaded, run_load
from dagster_tidemark.lakehouse.loading.new_columns import MOST, addable
from dagster_tidemark.lakehouse.read import read
from dagster_tidemark.lakehouse.table import LINEAGE, SchemaDiffers, Table
from dagster_tidemark.sources.feed import Feed, Grain, NewColumns
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import Loading, Put, both_sizes, quarantined, renamed
from tests.tidemark.lakehouse.overlapping import Run, overlap

DAY, NEXT = "2026-10-01", "2026-10-02"
KEY = dg.AssetKey(["core", "things"])
COLUMNS = {"id": "bigint", "colour": "string"}


@pytest.fixture
def things() -> Load:
    """The load of a feed that adds columns, by the day, on a table of its own."""
    feed = Feed("things", "things/", Grain.DAY, COLUMNS, required=("id",), new_columns=NewColumns.ADD)
    table = Table("core.things", {"day": "date"} | COLUMNS | LINEAGE, ("day", "id"), "day")
    return renamed(Load(feed, table, lambda rows: rows, code_version="1"))


def changed(load: Load, version: str, **feed_options: Any) -> Load:
    """The load by newer code."""
    feed = dataclasses.replace(load.feed, **feed_options)
    return dataclasses.replace(load, feed=feed, code_version=version)


def key(load: Load, name: str, day: str = DAY) -> str:
    return load.feed.prefix_of(day) + name


def parquet(**columns: Sequence[object]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), sink)
    return sink.getvalue()


def values(spark: SparkSession, load: Load, *columns: str) -> dict[int, tuple[object, ...]]:
    """Id to what stands in these columns, as a reader of the table sees it."""
    return {r.id: tuple(r[c] for c in columns) for r in read(spark, load.table).collect()}


def said(loaded: Loaded, load: Load) -> tuple[bool, str | None]:
    """Whether the check on the quarantine passes, and what it says."""
    result = quarantine_result(load.feed, KEY, loaded)
    return result.passed, result.description


def test_only_valid_unused_column_names_are_added_up_to_the_limit() -> None:
    odd = ["", " ", "a b", "a.b", "a`b", "1a", "_a", "ä", "a-b", "x" * 129, "a\nb"]
    taken = ["id", "day", "Source_File"]
    names = [*odd, "ID", "Day", "source_file", "order", "Colour", "colour", *(f"c{n}" for n in range(10_000))]
    new, refused = addable(names, taken, columns=10)
    assert new == ["order", "Colour", *(f"c{n}" for n in range(MOST - 12))]
    assert {*new, *refused} == {*names} and not {*new} & {*refused}
    assert {refused[name] for name in odd} == {"expected a letter, then letters, digits or _"}
    assert refused["ID"] == "the column id exists"
    assert refused["colour"] == "the column Colour exists"
    assert refused["c9999"] == "a table gets at most 200 columns"


def test_unknown_new_columns_policy_is_refused() -> None:
    assert Feed("x", "x/", Grain.DAY, COLUMNS, new_columns="add").new_columns is NewColumns.ADD  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="feed x: expected new_columns as one of ignore, add, fail, found 'keep'"):
        Feed("x", "x/", Grain.DAY, COLUMNS, new_columns="keep")  # type: ignore[arg-type]


@pytest.mark.usefixtures("size")
@both_sizes
def test_new_columns_of_every_file_format_are_added_and_filled(
    spark: SparkSession, put: Put, loading: Loading, things: Load
) -> None:
    put(key(things, "a.csv"), "id,colour,order,a b\n1,red, 07 ,x\n2,,,y\n")
    put(key(things, "b.csv.gz"), gzip.compress(b"null,ID,id,twice,twice\nno,x,3,1,2\n"))
    put(key(things, "c.jsonl"), '{"id": 4, "order": 1.50, "tags": {"a": [1.50, "\u00fc"]}}\n{"id": 5, "Order": "x"}\n')
    put(key(things, "d.parquet"), parquet(id=[6], order=[7.0], tags=[[1, 2]], current_date=[True]))
    put(key(things, "e.csv"), "id,colour\nmany,blue\n8,blue\n")

    loaded = loading(things, DAY)

    assert values(spark, things, "order", "null", "tags", "current_date") == {
        1: (" 07 ", None, None, None),
        2: (None, None, None, None),
        3: (None, "no", None, None),
        4: ("1.50", None, '{"a": [1.50, "\u00fc"]}', None),
        5: (None, None, None, None),
        6: ("7.0", None, "[1,2]", "true"),
        8: (None, None, None, None),
    }
    assert said(loaded, things) == (
        False,  # for the row of which the id is no number
        "1 rows rejected (bad_type 1), up to 12.50% of a partition: above the feed's limit of 1.00%; "
        "new columns, added as text: current_date, null, order, tags; "
        "new columns, not added (expected a letter, then letters, digits or _): a b; "
        "new columns, not added (it occurs twice in a header): twice; "
        "new columns, not added (the column id exists): ID; new columns, not added (the column order exists): Order; "
        "declared columns missing in files (null there): colour",
    )
    assert set(loaded.new_columns) == {"a b", "twice", "ID", "Order"}


def test_new_column_is_filled_for_old_files_after_a_policy_change(
    spark: SparkSession, put: Put, loading: Loading, things: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_columns, "MOST", len(things.table.columns) + 1)
    put(key(things, "a.csv"), "id,colour,size\n1,red,7\n2,red,\n")
    put(key(things, "a.csv", NEXT), "id,colour\n3,red\n")
    ignoring = changed(things, "1", new_columns=NewColumns.IGNORE)
    before = loading(ignoring, DAY, NEXT)
    assert said(before, ignoring) == (True, "new columns, ignored: size")

    adding = changed(things, "2")
    after = loading(adding, DAY, NEXT)

    assert values(spark, things, "size") == {1: ("7",), 2: (None,), 3: (None,)}
    assert after.content[DAY] != before.content[DAY], "who reads the table reads it again"
    assert after.content[NEXT] == before.content[NEXT]

    put(key(things, "b.csv"), "colour,id\nblue,2\nred,4\n")
    put(key(things, "b.csv", NEXT), "size,id,late\n9,5,x\n")
    more = loading(adding, DAY, NEXT)
    assert values(spark, things, "size") == {1: ("7",), 2: (None,), 3: (None,), 4: (None,), 5: ("9",)}
    assert (more.added_to, more.additions.added, more.additions.there) == ([DAY, NEXT], [], ("size",))
    assert list(more.additions.refused) == ["late"], "the table has as many as it gets"
    settled = loading(adding, DAY, NEXT)
    assert (settled.content, settled.added_to, settled.read_again) == (more.content, (), ())


def test_added_column_remains_text_until_it_is_dropped(
    spark: SparkSession, put: Put, loading: Loading, things: Load
) -> None:
    put(key(things, "a.csv"), "id,colour,size\n1,red,7\n")
    loading(things, DAY)
    with pytest.raises(SchemaDiffers, match="Keep it with new_columns=add in the feed; or declare it as string"):
        loading(changed(things, "2", new_columns=NewColumns.IGNORE), DAY)
    columns = things.table.columns | {"size": "bigint"}
    typed = changed(things, "2", columns=COLUMNS | {"size": "bigint"})
    typed = dataclasses.replace(typed, table=dataclasses.replace(things.table, columns=columns))
    drop = f"ALTER TABLE {things.table.identifier} DROP COLUMN size"
    with pytest.raises(SchemaDiffers) as refused:
        loading(typed, DAY)
    assert f"declare size as string; or drop it ({drop})" in str(refused.value)
    spark.sql(drop)
    loading(typed, DAY)
    assert values(spark, typed, "size") == {1: (7,)}


def test_file_with_an_undeclared_column_is_rejected_under_the_fail_policy(
    spark: SparkSession, put: Put, loading: Loading, things: Load
) -> None:
    failing = changed(things, "1", new_columns=NewColumns.FAIL)
    put(key(things, "a.csv"), "id,colour,size,a b\n1,red,7,x\n")
    put(key(things, "b.parquet"), parquet(id=[2], size=[7]))
    put(key(things, "c.jsonl"), json.dumps({"id": 3, "size": None}))
    put(key(things, "d.csv"), "colour,id\nred,4\n")

    loaded = loading(failing, DAY)

    assert set(values(spark, things)) == {4}
    assert quarantined(spark, failing) == [(name, 0, "new_column") for name in ("a.csv", "b.parquet", "c.jsonl")]
    passed, words = said(loaded, failing)
    assert not passed and words and f"{key(things, 'a.csv')} (new_column)" in words
    assert loaded.files_rejected[0].message.startswith("not declared: 'size', 'a b'; declare such columns, or")


def test_rehearsal_reports_new_columns_without_adding_them(
    spark: SparkSession, put: Put, loading: Loading, landing: S3Bucket, things: Load
) -> None:
    put(key(things, "a.csv"), "id,colour\n1,red\n")
    loading(things, DAY)
    put(key(things, "b.csv"), "id,size,weight\n2,7,8\nmany,8,9\n")
    columns = COLUMNS | {"weight": "bigint"}
    table = dataclasses.replace(things.table, columns=things.table.columns | {"weight": "bigint"})
    newer = dataclasses.replace(changed(things, "2", columns=columns), table=table)

    said = rehearse(spark, landing, newer, [DAY])

    assert (list(said.added), said.reasons) == (["size"], {(None, "bad_type"): 1})
    assert set(read(spark, things.table).columns) == set(things.table.columns), "code that runs meanwhile goes on"
    assert (loaded := loading(newer, DAY)).additions.added == ["size"]
    assert loaded.rows_rejected == 1
    assert values(spark, newer, "weight", "size") == {1: (None, None), 2: (8, "7")}


def test_load_reports_columns_its_transform_drops_fails_on_or_creates(
    spark: SparkSession, put: Put, loading: Loading, things: Load
) -> None:
    def selecting(rows: DataFrame) -> DataFrame:
        sizes = rows.sparkSession.createDataFrame([(1, "x")], "id bigint, weight string")
        joined = rows.join(sizes, on="id", how="left").withColumn("label", F.concat("colour", F.col("weight")))
        return joined.withColumn("made", F.lit("here")).drop("size", "weight")

    dropping = dataclasses.replace(things, transform=selecting)
    put(key(things, "a.csv"), "id,colour,size,weight,made,note\n1,red,7,8,9,hello\n")
    loaded = loading(dropping, DAY)
    assert values(spark, things, "note") == {1: ("hello",)}
    assert read(spark, things.table).columns == [*things.table.columns, "note"]
    passed, words = said(loaded, dropping)
    assert not passed and words
    assert "the transform of core/things drops it: size" in words
    assert "the transform of core/things fails with it: [AMBIGUOUS_REFERENCE]" in words
    assert "new columns, not added (the transform creates a column of this name): made" in words

    again = dataclasses.replace(things, transform=lambda rows: rows.select(*things.table.columns), code_version="2")
    loaded = loading(again, DAY)
    assert values(spark, things, "note") == {1: (None,)}
    dropped = "the transform of core/things drops it: made, note, size, weight"
    assert said(loaded, again) == (False, dropped)


def test_load_overtaken_while_adding_the_same_column_still_adds_its_rows(
    spark: SparkSession,
    other_spark: SparkSession,
    put: Put,
    loading: Loading,
    landing: S3Bucket,
    things: Load,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(key(things, "a.csv"), "id,size\n1,7\n")
    put(key(things, "a.csv", NEXT), "id,Size,size\n2,5,6\n")
    real, calls = catalog.add_texts, []

    def overtaken(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            run_load(other_spark, landing, things, [DAY], run_id=uuid.uuid4().hex)
        real(*arguments)

    monkeypatch.setattr(catalog, "add_texts", overtaken)
    loaded = loading(things, NEXT)
    assert len(calls) == 2
    assert values(spark, things, "size") == {1: ("7",), 2: ("6",)}
    assert loaded.additions.refused == {"Size": "the column size exists"}


def test_load_without_a_column_added_concurrently_still_commits(
    spark: SparkSession, other_spark: SparkSession, put: Put, loading: Loading, landing: S3Bucket, things: Load
) -> None:
    put(key(things, "a.csv"), "id,colour\n1,red\n")
    loading(things, DAY)
    put(key(things, "b.csv"), "id,colour\n2,red\n")

    def adds(boundary: str) -> None:
        if boundary == "before_commit" and "size" not in read(other_spark, things.table).columns:
            put(key(things, "b.csv", NEXT), "id,size\n3,7\n")
            run_load(other_spark, landing, things, [NEXT], run_id=uuid.uuid4().hex)

    overlap(landing, [Run(spark, things, [DAY], at_boundary=adds)], (0,))
    assert values(spark, things, "size") == {1: (None,), 2: (None,), 3: ("7",)}
