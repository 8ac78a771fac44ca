"""Values that Arrow casts against Spark's own casts, the exact rule: where Arrow takes a text, both say the same."""

from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading.validation import lost_by, typed
from dagster_tidemark.lakehouse.parsing import kernels

KINDS = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz"),
    *("decimal(18,4)", "decimal(38,0)", "decimal(5,5)", "decimal(3,0)", "string"),
]
SEEDS = [
    *(
        "0",
        "-0",
        "7",
        "-12",
        "007",
        "+5",
        "1.50",
        "0.1234",
        "-0.5",
        ".5",
        "5.",
        "1e5",
        "1E-3",
        "3.0",
        "127",
        "128",
        "-129",
    ),
    *("32767", "2147483647", "2147483648", "9223372036854775807", "999999999999999999", "0.1234567890123456789"),
    *(
        "true",
        "false",
        "TRUE",
        "t",
        "yes",
        "NaN",
        "Infinity",
        "5d",
        "0x1p3",
        "1_000",
        "１２",
        "--5",
        "1-2",
        "1.2.3",
        "-",
        ".",
    ),
    *("2026-03-01", "2026-02-30", "1999-12-31", "0001-01-01", "3000-01-01", "2026-3-1", "2026-03", "12:30:00"),
    *("2026-03-01T10:00:00", "2026-03-01 10:00:00.5", "2026-03-01T10:00:00Z", "2026-03-01T10:00:00.123456+02:00"),
    *(
        "2026-03-01T10:00:00.1234567Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T10:00:60Z",
        "2026-03-01T10:00",
        "2026-03-01T10",
    ),
    *(
        "2026-03-01T10:00:00-17:59",
        "2026-03-01T10:00:00+18:30",
        "2026-03-01T10:00:00 Europe/Berlin",
        "",
        " ",
        " 7",
        "7 ",
    ),
]


def texts(random: Random, count: int) -> list[str | None]:
    """Texts as people write them, and some with a character too many, too few, or another."""
    found: list[str | None] = [None, *SEEDS]
    while len(found) < count:
        text = random.choice(SEEDS) if random.random() < 0.7 else f"{random.uniform(-1e6, 1e6):.{random.randrange(6)}f}"
        for _ in range(random.randrange(3)):
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(["", *"0123456789-+.:TZ eE,"]) + text[at + random.randrange(2) :]
        found.append(text)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_text_cast_by_arrow_equals_the_cast_by_spark(spark: SparkSession, kind: str) -> None:
    given = pa.array(texts(Random(kind), 4_000), pa.string())
    values, odd = kernels.typed(given, kind)
    frame = spark.createDataFrame(pa.table({"n": range(len(given)), "text": given}))
    pattern = lost_by(kind)
    lost = F.trim("text").rlike(pattern) if pattern else F.lit(False)
    is_lost = F.coalesce(lost, F.lit(False))
    told = frame.select("n", typed(F.col("text"), kind).alias("value"), is_lost.alias("lost"))
    by_spark = told.orderBy("n").toArrow()
    expected = by_spark.column("value").combine_chunks().cast(values.type)
    taken = [n for n in range(len(given)) if odd is None or not odd[n]]
    assert len(taken) > 20
    assert values.take(pa.array(taken)).to_pylist() == expected.take(pa.array(taken)).to_pylist()
    # A part of such a value is never lost, or the row would have come with its texts.
    assert not any(by_spark.column("lost").take(pa.array(taken)).to_pylist())
    # The values of the others are not known to Arrow.
    assert odd is None or not any(values.filter(pa.array(odd)).to_pylist())
