"""Partition keys and the values that rows hold: every definition of Dagster's, there and back, in Python and in SQL."""

from datetime import datetime

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.partitioning import ByDimensions, ByKey, ByTime, Partitioning, text_literal
from dagster_tidemark.lakehouse.table import Table

NASTY = [
    "eu",
    "us west",
    "it's",
    'say "hi"',
    "back\\slash",
    "ünï",
    "a",
    "a b",
    "a'b",
    "aZ",
    "2026-10-01",
    "100 %",
    "$x",
]
QUARTERS = dg.TimeWindowPartitionsDefinition(
    start=datetime(2026, 10, 1), fmt="%Y-%m-%d-%H:%M", cron_schedule="*/15 * * * *", end=datetime(2026, 10, 2)
)
TEXT = dg.TimeWindowPartitionsDefinition(
    start="2026_10 T03", fmt="%Y_%m T%d", cron_schedule="0 0 * * *", end=datetime(2026, 11, 1)
)
BERLIN = dg.DailyPartitionsDefinition("2026-10-20", end_date="2026-11-01", timezone="Europe/Berlin")
HOURS_OF_BERLIN = dg.HourlyPartitionsDefinition(
    "2026-10-24-22:00", end_date="2026-10-25-06:00", timezone="Europe/Berlin"
)
HOURS_OF_ST_JOHNS = dg.HourlyPartitionsDefinition(
    "2026-10-31-22:00", end_date="2026-11-01-06:00", timezone="America/St_Johns"
)
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-09")
REGIONS = dg.StaticPartitionsDefinition(NASTY)

HOURS = dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_date="2026-10-03-00:00")
CASES: dict[str, tuple[dg.PartitionsDefinition[str], Partitioning | str, dict[str, str]]] = {
    "hours": (
        dg.HourlyPartitionsDefinition("2026-10-01-00:00", end_date="2026-10-03-00:00"),
        "at",
        {"at": "timestamp"},
    ),
    "days": (DAYS, "at", {"at": "date"}),
    "weeks": (dg.WeeklyPartitionsDefinition("2026-09-28", day_offset=1, end_date="2026-12-28"), "at", {"at": "date"}),
    "months": (dg.MonthlyPartitionsDefinition("2026-01-01", end_date="2027-01-01"), "at", {"at": "date"}),
    "quarters of an hour": (QUARTERS, ByTime("at", format="%Y-%m-%d-%H:%M"), {"at": "timestamp"}),
    "a format with text": (TEXT, ByTime("at", format="%Y_%m T%d"), {"at": "date"}),
    "days of Berlin as days": (BERLIN, "at", {"at": "date"}),
    "days of Berlin as instants": (
        BERLIN,
        ByTime("at", format="%Y-%m-%d", timezone="Europe/Berlin"),
        {"at": "timestamp"},
    ),
    "hours of Berlin, when clocks go back": (
        HOURS_OF_BERLIN,
        ByTime("at", timezone="Europe/Berlin"),
        {"at": "timestamp"},
    ),
    "hours of Berlin that end in four digits": (
        dg.HourlyPartitionsDefinition(
            "2026-10-24-2200", end_date="2026-10-25-0600", fmt="%Y-%m-%d-%H%M", timezone="Europe/Berlin"
        ),
        ByTime("at", format="%Y-%m-%d-%H%M", timezone="Europe/Berlin"),
        {"at": "timestamp"},
    ),
    "hours of St. John's, half an hour off": (
        HOURS_OF_ST_JOHNS,
        ByTime("at", timezone="America/St_Johns"),
        {"at": "timestamp"},
    ),
    "regions": (REGIONS, ByKey("region"), {"region": "string"}),
    "days x regions": (
        dg.MultiPartitionsDefinition({"region": REGIONS, "day": DAYS}),
        ByDimensions({"region": ByKey("area"), "day": ByTime("at")}),
        {"area": "string", "at": "date"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_partition_key_is_restored_from_row_values_in_python_and_sql(spark: SparkSession, name: str) -> None:
    definition, declared, columns = CASES[name]
    table = Table("test.t", columns | {"n": "bigint"}, row_key=("n",), partitioned_by=declared)
    keys = list(definition.get_partition_keys())
    given = ", ".join(f"({text_literal(key)})" for key in keys)
    values = ", ".join(f"{value} AS {column}" for column, value in table.partition_values_sql("key").items())
    rows = spark.sql(f"SELECT key, {values} FROM VALUES {given} AS t(key)")
    rows = rows.selectExpr("key", *columns)
    asked = keys[1::3]
    found = rows.selectExpr("key", f"{table.partition_key_sql} AS back", f"{table.predicate(asked)} AS is_in").collect()
    assert [row.back for row in found] == [row.key for row in found] and len(found) == len(keys)
    assert {row.key for row in found if row.is_in} == set(asked)


@pytest.mark.parametrize("definition", [BERLIN, HOURS_OF_BERLIN, HOURS_OF_ST_JOHNS])
def test_window_start_of_a_partition_equals_that_of_dagster(definition: dg.TimeWindowPartitionsDefinition) -> None:
    by = ByTime("at", format=definition.fmt, timezone=definition.timezone)
    for key in definition.get_partition_keys():
        begins = definition.time_window_for_partition_key(key).start.timestamp()
        said = by.values(key, {"at": "timestamp"})["at"]
        assert isinstance(said, datetime) and said.timestamp() == begins


@pytest.mark.parametrize(
    ("declared", "columns", "said"),
    [
        (ByTime("at"), {"at": "string"}, "must be a timestamp or date column"),
        (ByTime("at"), {"on": "date"}, "must be a timestamp or date column"),
        (ByTime("at", format="%j"), {"at": "date"}, "%j"),
        (ByKey("region"), {"region": "bigint"}, "must be a string column"),
        (ByDimensions({"a": ByKey("x")}), {"x": "string"}, "at least two dimensions"),
        (ByDimensions({"a": ByKey("x"), "b": ByKey("x")}), {"x": "string"}, "each with its own column"),
    ],
)
def test_invalid_table_partitioning_is_refused(declared: Partitioning, columns: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Table("test.t", columns, row_key=(), partitioned_by=declared)
