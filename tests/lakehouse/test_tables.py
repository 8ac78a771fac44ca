"""What follows from a table's declaration alone."""

import pytest

from pipelines.lakehouse.tables import Table


def test_the_column_of_an_hour_may_have_any_name() -> None:
    table = Table("test.trips", {"begins": "timestamp", "trip": "bigint"}, ("begins", "trip"), "begins")
    assert table.partition_literal("2026-10-01-07:00") == "TIMESTAMP '2026-10-01 07:00:00'"
    assert table.partition_key_sql == "date_format(begins, 'yyyy-MM-dd-HH:00')"
    by_day = Table("test.rain", {"on": "date", "mm": "double"}, ("on",), "on")
    assert by_day.partition_literal("2026-10-01") == "DATE '2026-10-01'"


@pytest.mark.parametrize("columns", [{"begins": "string"}, {"other": "timestamp"}])
def test_a_partition_column_that_is_none_is_refused_by_name(columns: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"table test\.trips: begins"):
        Table("test.trips", columns, ("begins",), "begins")
