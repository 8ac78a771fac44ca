"""A value that stays a value gets the verdict of its text."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading.validation import lost_by, typed
from dagster_tidemark.lakehouse.parsing.kernels import arrow_type
from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent
from dagster_tidemark.lakehouse.parsing.typed_rows import rows_of_table
from dagster_tidemark.lakehouse.readers.values import texts_of
from tests.tidemark.lakehouse.parsing.arrow_edges import KINDS, edges, is_same, text_of

EDGES = edges()


def handed_on(kind: str) -> tuple[pa.Array, list[str | None]]:
    """Return the values that stay values in a declared type, and their texts."""
    values: list[pa.Array] = []
    texts: list[str | None] = []
    for column in EDGES.values():
        for n in range(len(column)):
            table = pa.table({"v": column.slice(n, 1)})
            found = rows_of_table(DeclaredContent({"v": kind}, is_exact=True), table).columns["v"]
            if kind == "string" or found.type != pa.string():
                values.append(found)
                texts.append(text_of(column.slice(n, 1), kind))
    return pa.concat_arrays(values), texts


@pytest.mark.parametrize("kind", KINDS)
def test_typed_value_is_judged_like_its_text(spark: SparkSession, kind: str) -> None:
    values, texts = handed_on(kind)
    assert len(values) >= 6
    rows = spark.createDataFrame(pa.table({"n": pa.array(range(len(texts))), "text": texts, "again": texts_of(values)}))
    pattern = lost_by(kind) or "^$"
    judged = rows.select(
        "n",
        typed(F.col("text"), kind).alias("value"),
        typed(F.col("again"), kind).alias("value_again"),
        *(
            F.coalesce(F.trim(c).rlike(pattern) & F.lit(bool(lost_by(kind))), F.lit(False)).alias(f"{c}_lost")
            for c in ("text", "again")
        ),
    )
    verdicts = judged.toArrow().sort_by("n").to_pylist()
    for text, value, found in zip(texts, values.to_pylist(), verdicts, strict=True):
        assert is_same(value, found["value"]), (text, value, found)
        assert is_same(value, found["value_again"]), (text, value, found)
        assert not found["text_lost"], text
        assert not found["again_lost"], text
    assert values.type == arrow_type(kind)


def test_timestamp_text_of_a_far_year_is_read_exactly(spark: SparkSession) -> None:
    micros = [10**17, -(10**17), -62_135_596_800_000_001, 253_402_300_800_000_000, 2**63 - 1]
    column = pa.array(micros, pa.int64()).view(pa.timestamp("us"))
    texts = rows_of_table(DeclaredContent({"v": "timestamp_ntz"}), pa.table({"v": column})).columns["v"]
    rows = spark.createDataFrame(pa.table({"n": pa.array(range(len(micros))), "text": texts}))
    times = rows.select("n", typed(F.col("text"), "timestamp_ntz").alias("value")).toArrow().sort_by("n")
    assert times["value"].cast(pa.int64()).to_pylist() == micros
