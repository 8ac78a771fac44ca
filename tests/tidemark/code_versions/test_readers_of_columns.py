"""Readers of a dropped column, as `tidemark plan` names or refuses them."""

# ruff: noqa: E501 (packages as text)

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagster_tidemark.cli.plan_tables import _Readers, names_in_text
from dagster_tidemark.code_versions.fingerprint import Code
from dagster_tidemark.code_versions.references import Attribute, Ref
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.table_changes import TableChange, TableChangeKind
from tests.tidemark.code_versions.packages import Package, write

READ = "from pathlib import Path\ndef total(orders): return orders.sparkSession.sql((Path(__file__).parent / '{}').read_text())"
DROPPED = TableChange(TableChangeKind.DROPPED, "quantity", "bigint", "")

REFUSED: dict[str, tuple[Package, str]] = {
    "same case": ({"assets.py": "def total(orders): return orders.select('quantity')"}, "toy/assets.py: total()"),
    "other case": ({"assets.py": "def total(orders): return orders.selectExpr('sum(QUANTITY)')"}, "toy/assets.py: total()"),
    "attribute": ({"assets.py": "def total(orders): return orders.Quantity"}, "toy/assets.py: total()"),
    "SQL file": ({"assets.py": READ.format("q.sql"), "q.sql": "select sum(Quantity) from orders"}, "toy/q.sql"),
    "SQL file of a folder": (
        {
            "assets.py": "from pathlib import Path\ndef total(o, n): return (Path(__file__).parent / 'sql' / n).read_text()",
            "sql/q.sql": "select quantity",
        },
        "toy/sql/q.sql",
    ),
}  # fmt: skip


def readers(root: Path, package: Package, columns: dict[str, str], *more: Ref) -> _Readers:
    """A finder for a package with one asset, `marts/total`, that reads `core/orders`."""
    write(root, package)
    tables = {
        "core.orders": Table("core.orders", {"id": "bigint"}, ("id",)),
        "marts.total": Table("marts.total", columns, ()),
    }
    settings = cast("Any", SimpleNamespace(code_root=root, code_location="toy"))
    found = _Readers(settings, tables, {"marts/total": {"core/orders"}}, [])
    code, start = Code(found._project), cast("Ref", found._project.named("toy.assets.total"))
    found._code = cast(
        "Any",
        SimpleNamespace(definitions=lambda _: code.definitions(start, *more), declares_table=lambda _: False),
    )
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_reader_of_a_dropped_column_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    package, where = REFUSED[name]
    found = readers(tmp_path, package, {"n": "bigint"})
    (why,) = found.refused("core/orders", DROPPED)
    assert why.startswith(f"marts/total reads quantity ({where}) and would fail")
    assert found.told("core/orders", DROPPED) == []


def test_component_with_the_column_in_its_query_is_refused(tmp_path: Path) -> None:
    query = Attribute("toy/defs.yaml: sql", 'sql="select\\nQUANTITY from orders"')
    found = readers(tmp_path, {"assets.py": "def total(x): return x"}, {"n": "bigint"}, query)
    (why,) = found.refused("core/orders", DROPPED)
    assert "(toy/defs.yaml: sql)" in why


def test_reader_whose_own_table_has_the_column_in_another_case_is_refused(tmp_path: Path) -> None:
    found = readers(tmp_path, {"assets.py": "def total(x): return x"}, {"Quantity": "bigint"})
    (why,) = found.refused("core/orders", DROPPED)
    assert "(its table declares it)" in why


def test_column_in_a_file_of_data_is_told_and_refuses_nothing(tmp_path: Path) -> None:
    package = {"assets.py": READ.format("rates.csv"), "rates.csv": "Quantity,rate\n1,2\n"}
    found = readers(tmp_path, package, {"n": "bigint"})
    assert found.refused("core/orders", DROPPED) == []
    (line,) = found.told("core/orders", DROPPED)
    assert line.startswith("marts/total mentions quantity (toy/rates.csv)")


def test_file_that_is_not_text_names_no_column(tmp_path: Path) -> None:
    found = readers(tmp_path, {"assets.py": READ.format("q.bin")}, {"n": "bigint"})
    (tmp_path / "toy/q.bin").write_bytes(b"quantity \xff\xfe")
    assert found.told("core/orders", DROPPED) == ["no reader mentions quantity"]


def test_names_in_a_text_have_no_case() -> None:
    names = names_in_text("select sum(A) AS B from `Orders`")
    assert names.mentioned == {"select", "sum", "a", "as", "b", "from", "orders"}
    assert names.made == {"b"}
