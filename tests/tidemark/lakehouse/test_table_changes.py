"""How a declaration differs from its table: the words, pyiceberg's judgement of the rules, and what writers do."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.iceberg_schema import spark_type, stored_of
from dagster_tidemark.lakehouse.stored_tables import CatalogUnreadable, stored_tables
from dagster_tidemark.lakehouse.table import SchemaDiffers, Table
from dagster_tidemark.lakehouse.table_changes import Stored, TableChangeKind, changes_of
from tests.conftest import make_settings

TABLE = Table("core.x", {"day": "date", "id": "bigint", "n": "int", "name": "string"}, ("day", "id"), "day")
STORED = Stored(TABLE.columns, partitioned_by=("day",), row_key=("day", "id"))
KINDS: list[IcebergType] = [
    *(IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), DateType(), TimestamptzType()),
    *(DecimalType(5, 2), DecimalType(9, 2), DecimalType(9, 3)),
]


def told(columns: dict[str, str], stored: Stored = STORED, **more: bool) -> list[str]:
    changes = changes_of(replace(TABLE, columns=columns), stored, **more)
    return [f"{change}{' refused' * bool(change.refused)}" for change in changes]


def test_schema_changes_are_listed_and_those_iceberg_cannot_make_are_refused() -> None:
    same = dict(TABLE.columns)
    assert told(same) == []
    assert told(dict(reversed(same.items()))) == [], "the order is no difference"
    assert told(same | {"size": "decimal(9,2)"}) == ["added size decimal(9,2)"]
    assert told({c: k for c, k in same.items() if c != "n"}) == ["dropped n int"]
    assert told({"day": "date", "id": "bigint", "count": "int", "name": "string"}) == ["renamed n -> count (int)"]
    assert told({"day": "date", "id": "bigint", "name": "string", "count": "string"}) == [
        "added count string",
        "dropped n int",
    ]
    assert told(same | {"n": "bigint"}) == ["widened n int -> bigint"]
    assert told(same | {"id": "int"}) == ["retyped id bigint -> int refused"]
    assert told(same | {"name": "double"}) == ["retyped name string -> double refused"]
    assert told({("Name" if c == "name" else c): k for c, k in same.items()}) == [
        "renamed name -> Name (string) refused"
    ]


def test_dropping_a_required_column_or_restoring_a_dropped_one_is_refused() -> None:
    less = {c: k for c, k in TABLE.columns.items() if c != "n"}
    assert told(less, replace(STORED, required=("n",))) == ["dropped n int refused"]
    retired = replace(STORED, retired=("n",))
    assert told(less, retired) == [], "a run has seen it"
    assert told(less | {"N": "string"}, retired) == ["added N string refused"], "Spark ignores case in names"
    more = replace(STORED, columns=TABLE.columns | {"extra": "string"}, from_files=("extra",))
    assert told(dict(TABLE.columns), more) == ["dropped extra string refused"]
    assert told(dict(TABLE.columns), more, may_have_more=True) == []
    again = replace(STORED, columns=less, written=TABLE.columns)
    assert told(dict(TABLE.columns), again) == ["added n int refused"]


def test_changes_of_partitioning_and_row_key_are_detected() -> None:
    by_hour = replace(TABLE, columns=TABLE.columns | {"hour": "timestamp"}, partitioned_by="hour", stored_by=())
    added, partitioning = changes_of(by_hour, STORED)
    assert (added.kind, partitioning.kind) == (TableChangeKind.ADDED, TableChangeKind.PARTITIONING)
    assert partitioning.refused.startswith("its files are partitioned by day; ")
    assert changes_of(TABLE, replace(STORED, partitioned_by=("day", "id"))) == [], "an owner's own partitioning"
    (key,) = changes_of(replace(TABLE, row_key=("id",)), STORED)
    assert str(key) == "row key day, id -> id"
    assert not key.refused, "plan asks for another code version"
    assert changes_of(TABLE, replace(STORED, row_key=None)) == [], "a table of before has not kept it"


@pytest.mark.parametrize("before", KINDS, ids=str)
def test_type_change_is_accepted_only_if_iceberg_promotes_it(tmp_path: Path, before: IcebergType) -> None:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    made = Appendable(open_lake(settings), Table("core.y", {"x": spark_type(before)}, ()))._loaded
    for after in KINDS:
        try:
            is_promoted = made.update_schema().update_column("x", field_type=after)._apply() is not None
        except (ResolveError, ValidationError):
            is_promoted = False
        if isinstance(before, DecimalType) and isinstance(after, DecimalType):
            is_promoted &= before.scale == after.scale  # as Iceberg's specification says; pyiceberg does not look
        changes = changes_of(Table("core.y", {"x": spark_type(after)}, ()), stored_of(made))
        assert (not any(change.refused for change in changes)) is is_promoted, (before, after)


def test_appender_widens_and_adds_columns_and_keeps_undeclared_ones(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    lake = open_lake(settings)
    table = Table("raw.pings", {"id": "string", "n": "int", "gone": "string"}, ("id",))
    first = Appendable(lake, table)
    first.commit(TableCommit(rows_of(first.schema, [{"id": "a", "n": 1, "gone": "x"}])))
    later = replace(table, columns={"id": "string", "n": "bigint", "new": "double"})
    second = Appendable(lake, later)
    second.commit(TableCommit(rows_of(second.schema, [{"id": "b", "n": 2**40, "new": 1.5}])))
    assert sorted(second.rows().to_pylist(), key=lambda row: str(row["id"])) == [
        {"id": "a", "n": 1, "gone": "x", "new": None},
        {"id": "b", "n": 2**40, "gone": None, "new": 1.5},
    ]
    with pytest.raises(SchemaDiffers, match="Iceberg can only widen"):
        Appendable(lake, table)


def test_stored_table_schemas_are_read_from_the_catalog_or_the_error_reported(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    assert stored_tables(settings, [TABLE]) == {}, "nothing was ever built"
    assert not (tmp_path / "catalog.db").exists(), "and nothing is written"
    Path(settings.warehouse).mkdir()
    made = Appendable(open_lake(settings), TABLE)
    found = stored_tables(settings, [TABLE, replace(TABLE, name="core.none")])
    assert found == {"core.x": STORED}
    Path(made._loaded.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(CatalogUnreadable, match=r"The metadata of core.x cannot be read"):
        stored_tables(settings, [TABLE])
    (tmp_path / "catalog.db").write_text("no database " * 100)
    with pytest.raises(CatalogUnreadable, match=r"The catalog .*catalog.db does not answer"):
        stored_tables(settings, [TABLE])


def test_new_table_generation_replaces_a_table_that_cannot_be_changed(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    lake = open_lake(settings)
    first = Appendable(lake, Table("core.z", {"id": "bigint"}, ("id",)))
    first.commit(TableCommit(rows_of(first.schema, [{"id": 1}])))
    text = Table("core.z", {"id": "string"}, ("id",))
    with pytest.raises(SchemaDiffers, match=r"replace the table \(declare generation=2"):
        Appendable(lake, text)

    replaced = replace(text, generation=2)
    changes = changes_of(replaced, stored_tables(settings, [replaced])["core.z"])
    assert [str(change) for change in changes] == ["retyped id bigint -> string", "generation 1 -> 2"]
    assert not any(change.refused for change in changes)
    second = Appendable(lake, replaced)
    second.commit(TableCommit(rows_of(second.schema, [{"id": "one"}])))
    again = Appendable(lake, replaced)
    assert again.rows()["id"].to_pylist() == ["one"], "it is replaced once"
    assert lake.load_table("core.z_generation_1").scan().to_arrow()["id"].to_pylist() == [1]
    assert lake.load_table("core.z").location() != lake.load_table("core.z_generation_1").location()
    with pytest.raises(SchemaDiffers, match="newer code has replaced the table"):
        Appendable(lake, text)
