"""`tidemark plan --against` on the grocer: columns that differ from the catalog's, their readers, refusals."""

import json
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from typer.testing import CliRunner

from dagster_tidemark import location
from dagster_tidemark.cli.app import app
from dagster_tidemark.engine.code_plan import SavedState, state_of
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import Stored
from dagster_tidemark.settings import load_settings
from tests.grocer_code import deployed_state

Planned = Callable[..., tuple[int, dict[str, dict[str, Any]], str]]


def as_declared(table: Table) -> Stored:
    return Stored(table.columns, partitioned_by=table.stored_by, row_key=table.row_key)


@pytest.fixture(scope="module")
def saved() -> SavedState:
    return deployed_state()


@pytest.fixture
def planned(saved: SavedState, tmp_path: Path) -> Planned:
    """Plan against tables that differ. Returns the exit code, the reported tables by key, and the errors."""
    tables = location.tables(load_settings())

    def plan(name: str, **differs: Any) -> tuple[int, dict[str, dict[str, Any]], str]:
        stored = {each.name: as_declared(each) for each in tables.values()}
        stored[name] = replace(stored[name], **differs)
        path = tmp_path / "state.json"
        path.write_text(json.dumps(saved.__dict__ | {"tables": {n: vars(each) for n, each in stored.items()}}))
        done = CliRunner().invoke(app, ["plan", "--against", str(path), "--json"])
        said = json.loads(done.stdout[: done.stdout.rindex("}") + 1])
        return done.exit_code, {table["key"]: table for table in said["tables"]}, done.stderr

    return plan


ORDERS = location.tables(load_settings())["core.orders"].columns


def test_plan_does_not_list_unchanged_tables(planned: Planned) -> None:
    assert planned("core.orders")[:2] == (0, {})


def test_plan_shows_an_added_column_and_its_nulls(planned: Planned) -> None:
    code, tables, _ = planned("core.orders", columns={c: k for c, k in ORDERS.items() if c != "discount"})
    assert code == 2
    assert tables["core/orders"]["columns"] == [
        {"change": "added", "column": "discount", "before": None, "after": ORDERS["discount"]}
    ]
    assert tables["core/orders"]["notes"] == ["existing rows have null in discount; raise code_version to rebuild them"]


def test_plan_refuses_a_type_change_iceberg_cannot_make(planned: Planned) -> None:
    code, tables, errors = planned("core.orders", columns=ORDERS | {"quantity": "string"})
    assert (code, list(tables)) == (8, ["core/orders"])
    (why,) = tables["core/orders"]["refused"]
    assert why.startswith("retyped quantity string -> bigint: ")
    assert "new table" in why
    assert "refused, see above" in errors


def test_plan_accepts_a_widened_column(planned: Planned) -> None:
    code, tables, _ = planned("core.orders", columns=ORDERS | {"quantity": "int"})
    assert (code, tables["core/orders"]["refused"]) == (2, [])


def test_plan_refuses_a_dropped_column_and_names_its_readers(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = dict(location.tables(load_settings()))
    columns = {c: k for c, k in ORDERS.items() if c != "quantity"}
    less = replace(tables["core.orders"], columns=columns, column_comments={})
    monkeypatch.setattr(location, "tables", lambda _: {**tables, "core.orders": less})
    code, told, _ = planned("core.orders", columns=ORDERS)
    assert code == 8
    assert told["core/orders"]["columns"][0]["change"] == "dropped"
    broken = [why for why in told["core/orders"]["refused"] if "reads quantity" in why]
    readers = ["marts/margin_hourly", "marts/sales_daily", "marts/sales_hourly"]
    assert [why.split()[0] for why in broken] == readers
    assert "(pipelines/transforms/margin.py: margin_hourly()) and would fail" in broken[0]
    assert "quantity stays in the table, with null in new rows" in told["core/orders"]["notes"][0]


def test_plan_lists_possible_readers_of_a_dropped_column_without_refusing(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = dict(location.tables(load_settings()))
    columns = {c: k for c, k in ORDERS.items() if c not in ("customer_id", "discount")}
    less = replace(tables["core.orders"], columns=columns, column_comments={})
    monkeypatch.setattr(location, "tables", lambda _: {**tables, "core.orders": less})
    code, told, _ = planned("core.orders", columns=ORDERS)
    assert (code, told["core/orders"]["refused"]) == (2, [])
    assert [line.partition(" (")[0] for line in told["core/orders"]["readers"]] == [
        "marts/order_stats mentions customer_id",
        "no reader mentions discount",
    ]


def test_plan_refuses_a_changed_row_key_without_a_new_code_version(planned: Planned) -> None:
    code, tables, _ = planned("core.prices", row_key=("product_id",))
    assert code == 8
    (why,) = tables["core/prices"]["refused"]
    assert why.startswith("row key product_id -> day, product_id: existing rows have the old key")


def test_plan_refuses_a_new_table_generation_without_a_new_code_version(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = dict(location.tables(load_settings()))
    monkeypatch.setattr(
        location, "tables", lambda _: {**tables, "core.orders": replace(tables["core.orders"], generation=2)}
    )
    code, told, _ = planned("core.orders", columns=ORDERS | {"quantity": "string"})
    assert code == 8
    assert told["core/orders"]["refused"] == [
        "generation 1 -> 2: no run would fill the new table; raise code_version to rebuild it"
    ]


def test_plan_refuses_a_saved_state_of_an_older_format(saved: SavedState, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(saved.__dict__ | {"form": 1}))
    assert CliRunner().invoke(app, ["plan", "--against", str(path)]).exit_code == 1


def test_plan_works_without_tables_and_feeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "tests.proof.no_such_feeds")
    package = types.ModuleType("tests.proof.no_such_feeds")
    package.__path__ = []
    module = types.ModuleType("tests.proof.no_such_feeds.definitions")
    module.defs = dg.Definitions(assets=[dg.AssetsDefinition.from_op(dg.op(name="one")(lambda: 1))])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    settings = load_settings()
    with DagsterInstance.ephemeral() as instance:
        saved = state_of(location.definitions(settings), instance, contract_scale=1.0)
    (tmp_path / "state.json").write_text(json.dumps(saved.__dict__))
    done = CliRunner().invoke(app, ["plan", "--against", str(tmp_path / "state.json"), "--json"])
    assert json.loads(done.stdout)["tables"] == [], done.output
