"""What a code location's packages hold, in every form in which Dagster takes it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph

from dagster_tidemark import assets_in, build_definitions, load_settings
from dagster_tidemark.definitions import ComponentHoldsMore

ASSETS = """
import dagster as dg

@dg.asset
def table() -> None: ...

elsewhere = dg.AssetSpec("elsewhere")

@dg.asset_check(asset=table)
def has_rows() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)

MADE_IN_A_LOOP = [dg.asset(name=f"of_{region}")(lambda: None) for region in ("north", "south")]
"""
COMPONENT = """
import dagster as dg

class OneTable(dg.Component, dg.Resolvable, dg.Model):
    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        @dg.asset
        def from_a_component() -> None: ...

        return dg.Definitions(assets=[from_a_component]{more})
"""

# Of Dagster itself, where it reads a defs.yaml.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in preview"),
]

Package = Callable[..., ModuleType]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """A package of files given by their paths and texts."""
    name = f"of_{tmp_path.name}"

    def _written(files: dict[str, str]) -> ModuleType:
        for path, text in {"__init__.py": "", **files}.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return import_module(name)

    monkeypatch.syspath_prepend(tmp_path)
    yield _written
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[module]


def _graph(found: list[object]) -> BaseAssetGraph[Any]:
    return build_definitions(load_settings(), found, (), ()).resolve_asset_graph()


def test_assets_and_checks_are_found_in_packages_of_any_depth(package: Package) -> None:
    found = assets_in(package({"marts/__init__.py": "", "marts/deep/__init__.py": "", "marts/deep/some.py": ASSETS}))
    graph = _graph(found)
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert keys >= {"table", "elsewhere", "of_north", "of_south"}
    assert dg.AssetCheckKey(dg.AssetKey("table"), "has_rows") in graph.asset_check_keys
    assert graph.get(dg.AssetKey("table")).automation_condition is not None, "as every other"


def test_component_asset_gets_an_automation_condition(package: Package) -> None:
    made = package({"some.py": ASSETS, "kind.py": COMPONENT.format(more=""), "of_it/defs.yaml": ""})
    (Path(made.__path__[0]) / "of_it" / "defs.yaml").write_text(f"type: {made.__name__}.kind.OneTable\n")
    graph = _graph(assets_in(made))
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert keys >= {"table", "elsewhere", "of_north", "of_south", "from_a_component"}
    assert dg.AssetCheckKey(dg.AssetKey("table"), "has_rows") in graph.asset_check_keys
    assert graph.get(dg.AssetKey("from_a_component")).automation_condition is not None


def test_component_that_provides_resources_is_refused(package: Package) -> None:
    text = COMPONENT.format(more=', resources={"store": dg.ResourceDefinition.none_resource()}')
    made = package({"kind.py": text, "of_it/defs.yaml": ""})
    (Path(made.__path__[0]) / "of_it" / "defs.yaml").write_text(f"type: {made.__name__}.kind.OneTable\n")
    with pytest.raises(ComponentHoldsMore, match=r"give resources, .*dg\.Definitions\.merge"):
        assets_in(made)


def test_import_of_a_code_location_loads_neither_pandas_nor_pyiceberg() -> None:
    """Each takes a second, which every command and every start of a code server would wait for."""
    code = "import sys, pipelines.definitions; print({'pandas', 'pyiceberg.catalog'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100)
    assert ran.stdout.strip() == "set()", ran.stderr
