"""Frames for the tests of a project: which rows and columns are refused. `tests/transforms` uses the rest."""

from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark import Table
from dagster_tidemark.testing import frame_of

TABLE = Table("core.items", {"item_id": "bigint", "price_usd": "decimal(18,4)", "name": "string"}, row_key=("item_id",))


class Session:
    """Keeps what a frame is made from."""

    def createDataFrame(self, rows: pa.Table) -> pa.Table:
        return rows


def made(table: Table, *rows: dict[str, object]) -> pa.Table:
    frame: DataFrame | pa.Table = frame_of(cast(SparkSession, Session()), table, *rows)
    return frame


def test_column_missing_in_a_test_row_is_null() -> None:
    rows = made(TABLE, {"item_id": 1, "name": "bell"}, {"name": None})
    assert rows.schema == pa.schema({"item_id": pa.int64(), "price_usd": pa.decimal128(18, 4), "name": pa.string()})
    assert rows.to_pylist() == [
        {"item_id": 1, "price_usd": None, "name": "bell"},
        {"item_id": None, "price_usd": None, "name": None},
    ]


def test_test_frame_without_rows_has_the_columns() -> None:
    assert made(TABLE).num_rows == 0 and made(TABLE).column_names == [*TABLE.columns]


def test_test_frame_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"core\.items has no column prize; it has item_id, price_usd, name"):
        made(TABLE, {"item_id": 1, "prize": 2})


def test_test_frame_with_a_nested_column_is_refused() -> None:
    nested = Table("core.items", {"item_id": "bigint", "tags": "array<string>"}, row_key=("item_id",))
    with pytest.raises(ValueError, match="tags is a array<string>: create this frame"):
        made(nested, {"item_id": 1})
