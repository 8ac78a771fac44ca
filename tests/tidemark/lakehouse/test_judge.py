"""What of a text is a value of a declared type."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.lakehouse.loading.validation import typed

DATES = {
    "2026-10-01": "2026-10-01",
    " 2026-1-5 ": "2026-01-05",
    "2026-10-01T23:30:00Z": "2026-10-01",
    "2026-10-01 07:15:00.5": "2026-10-01",
    "2026-10-01Tgarbage": None,
    "2026-10-01 ": "2026-10-01",
    "2026-10": None,
    "2026": None,
    "202610": None,
    "+202610-01-01": None,
    "01.10.2026": None,
    "2026-02-30": None,
    "": None,
}
TIMES = {
    "2026-10-01T07:15:00Z": "2026-10-01 07:15:00",
    "2026-10-01 07:15": "2026-10-01 07:15:00",
    "2026-10-01T07:15:00,5": "2026-10-01 07:15:00.500000",
    "2026-10-01": "2026-10-01 00:00:00",
    " 2026-1-5 ": "2026-01-05 00:00:00",
    "2026-10": None,
    "2026-1": None,
    "2026": None,
    "07:15": None,
    "": None,
}
NUMBERS = {"5": 5.0, "1e3": 1000.0, "-0.5": -0.5, " 7 ": 7.0, "5d": None, "5.f": None, "0x1p3": None, "x": None}


def found(spark: SparkSession, texts: list[str], kind: str) -> list[object]:
    rows = spark.createDataFrame(list(enumerate(texts)), "n int, text string")
    return [row.value for row in rows.select("n", typed(F.col("text"), kind).alias("value")).orderBy("n").collect()]


def test_only_valid_date_text_is_cast_to_a_date(spark: SparkSession) -> None:
    days = found(spark, list(DATES), "date")
    assert {text: day and str(day) for text, day in zip(DATES, days, strict=True)} == DATES


def test_only_valid_timestamp_text_is_cast_to_a_timestamp(spark: SparkSession) -> None:
    times = found(spark, list(TIMES), "timestamp")
    assert {text: time and str(time) for text, time in zip(TIMES, times, strict=True)} == TIMES


def test_only_plain_number_text_is_cast_to_a_double(spark: SparkSession) -> None:
    assert dict(zip(NUMBERS, found(spark, list(NUMBERS), "double"), strict=True)) == NUMBERS
