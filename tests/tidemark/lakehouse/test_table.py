"""What follows from a table's declaration alone."""

import pytest

from dagster_tidemark.lakehouse.loading.load_plan import AGAIN
from dagster_tidemark.lakehouse.loading.spec import Load
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sources.feed import Feed, Grain


def test_partition_column_may_have_any_name() -> None:
    table = Table("test.trips", {"begins": "timestamp", "trip": "bigint"}, ("begins", "trip"), "begins")
    assert "TIMESTAMP '2026-10-01 07:00:00'" in table.predicate(["2026-10-01-07:00"])
    assert table.partition_key_sql == "date_format(`begins`, 'yyyy-MM-dd-HH:mm')"
    by_day = Table("test.rain", {"on": "date", "mm": "double"}, ("on",), "on")
    assert "DATE '2026-10-01'" in by_day.predicate(["2026-10-01"])


@pytest.mark.parametrize("kind", ["double", "float"])
def test_float_column_is_refused_as_a_row_key(kind: str) -> None:
    table = Table("test.trips", {"trip": kind}, ("trip",))
    feed = Feed("trips", "trips/latest.csv", Grain.NONE, {"trip": kind}, required=("trip",))
    with pytest.raises(
        ValueError, match=r"table test\.trips: \['trip'\] identify a row, but Spark and Iceberg compare"
    ):
        Load(feed, table, lambda rows: rows, "1")


@pytest.mark.parametrize(
    ("grain", "by", "needs"),
    [
        (Grain.HOUR, None, "a timestamp column"),
        (Grain.HOUR, "date", "a timestamp column"),
        (Grain.DAY, "timestamp", "a date column"),
        (Grain.NONE, "date", "nothing"),
    ],
)
def test_table_partitioning_that_does_not_fit_the_feed_is_refused(grain: Grain, by: str | None, needs: str) -> None:
    columns = {"trip": "bigint"} | ({"begins": by} if by else {})
    table = Table("test.trips", columns, ("begins", "trip") if by else ("trip",), "begins" if by else None)
    prefix = "trips.csv" if grain is Grain.NONE else "trips/"
    feed = Feed("trips", prefix, grain, {"trip": "bigint"}, required=("trip",))
    with pytest.raises(ValueError, match=rf"has partitions by {grain}: test\.trips must be partitioned by {needs}"):
        Load(feed, table, lambda rows: rows, "1")


def test_partition_column_may_be_named_like_a_sql_function() -> None:
    by_day = Table("test.rain", {"date": "date", "mm": "double"}, ("date",), "date")
    assert by_day.partition_key_of_metadata_sql == "date_format(partition.`date`, 'yyyy-MM-dd')"
    assert Table("test.all", {"a": "date"}, ("a",)).partition_key_of_metadata_sql == "CAST(NULL AS STRING)"


def test_load_refuses_a_partition_column_that_its_files_contain() -> None:
    table = Table("test.trips", {"day": "date", "trip": "bigint"}, ("day", "trip"), "day")
    feed = Feed("trips", "trips/", Grain.DAY, {"day": "date", "trip": "bigint"}, required=("day", "trip"))
    with pytest.raises(ValueError, match="'day' is a column of its files"):
        Load(feed, table, lambda rows: rows, "1")


def test_empty_code_version_does_not_cause_a_reload() -> None:
    table = Table("test.trips", {"trip": "bigint"}, ("trip",))
    feed = Feed("trips", "trips/latest.csv", Grain.NONE, {"trip": "bigint"}, required=("trip",))
    assert Load(feed, table, lambda rows: rows, "").code_version not in ("", AGAIN)


@pytest.mark.parametrize("columns", [{"begins": "string"}, {"other": "timestamp"}])
def test_missing_or_wrongly_typed_partition_column_is_refused(columns: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"table test\.trips: partitioned by begins"):
        Table("test.trips", columns, ("begins",), "begins")
