"""Comparing a transform's result: rows in any order, columns in the declared one."""

from datetime import datetime

from pyspark.sql import DataFrame

from dagster_tidemark.lakehouse.table import Table


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    """The rows, sorted; timestamps in UTC without a zone."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def assert_declared(frame: DataFrame, table: Table) -> None:
    """The frame has exactly the table's columns, in order and type."""
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == list(table.columns.items())


def at(hour: int, minute: int = 0, day: int = 20) -> datetime:
    """A time in November 2026, as a session in UTC collects it."""
    return datetime(2026, 11, day, hour, minute)
