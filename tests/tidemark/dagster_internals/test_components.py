"""Contract of components: the components of an asset, and folders whose broken parts are left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import components

pytestmark = pytest.mark.filterwarnings("ignore:.* is currently in preview")

_COMPONENT = """
import dagster as dg

class Named(dg.Component, dg.Resolvable, dg.Model):
    name: str

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions([dg.AssetSpec(self.name)])
"""
_GOOD = "type: a_project_of_parts.named.Named\nattributes: {name: good}\n"


def test_broken_files_are_skipped_and_other_assets_have_their_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a_project_of_parts" / "defs"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder.parent / "named.py").write_text(_COMPONENT)
    (folder / "good").mkdir()
    (folder / "good" / "defs.yaml").write_text(_GOOD)
    (folder / "broken.py").write_text("raise ValueError('broken')\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "a_project_of_parts"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    refused: list[tuple[str, str]] = []

    @contextmanager
    def refusing(path: Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            refused.append((path.name, str(error)))

    with components.components_one_by_one(refusing):
        defs = dg.load_from_defs_folder(path_within_project=folder)
    (spec,) = defs.resolve_all_asset_specs()
    assert spec.key == dg.AssetKey("good")
    assert {name for name, _ in refused} == {"broken.py"} and all("broken" in why for _, why in refused)
    assert [type(each).__name__ for each in components.components_of(spec.metadata)][-1] == "Named"
    assert list(components.components_of({})) == []
