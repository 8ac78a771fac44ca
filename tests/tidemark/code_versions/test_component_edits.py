"""Edits of components: the fingerprints that change are those of the assets whose rows change.

The edits are in `edits/of_components.txt`, in the form of `test_edits`, below the package `acme`. The lines `@one`,
`@two`, `@feed`, `@mine` and `@kinds` stand for texts that many edits have in common. Both versions of each location are
loaded, and the transforms run on the names of their inputs.

Does not belong here: how components are declared (`tests/tidemark/test_components.py`).
"""

import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import load_settings
from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.project import Project
from dagster_tidemark.component_declarations import Declaration, declared_by
from dagster_tidemark.components.attributes import transform_named
from tests.sampling import sample
from tests.tidemark.code_versions.edit_texts import EDITS, edits_in, files_in, version
from tests.tidemark.component_project import AProject, opened_project

# Of Dagster itself, where it reads a defs.yaml.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in preview"),
]

OF_COMPONENTS = edits_in(EDITS / "of_components.txt")
KEYS = ("marts/one", "marts/two")
TABLE = """type: dagster_tidemark.TableComponent
attributes:
  name: marts.{name}
"""
OWN = """from dagster_tidemark import TableComponent, table_asset
class {name}(TableComponent):
    transform: str = ""
    def _assets(self):
        table, rows, options = self.declaration.table, self.rows, self._asset_options()
        return [table_asset(table, **options)(lambda: rows())]
"""
FEED = """type: dagster_tidemark.FeedComponent
attributes:
  name: one
  table: marts.one
  grain: day
  key: [n]
"""
DEFINITIONS = """from pathlib import Path
import dagster as dg
from dagster_tidemark import extend, load_settings
@dg.definitions
def defs():
    return extend(dg.load_from_defs_folder(path_within_project=Path(__file__).parent), load_settings())
"""
SOURCES = """import dagster as dg
A, B, C = dg.AssetSpec(["core", "a"]), dg.AssetSpec(["core", "b"]), dg.AssetSpec(["raw", "a"])
"""
T = "def one(): return 1\ndef two(): return 2\n"
GIVEN = {"columns": "{n: bigint}", "row_key": "[n]"}


def yaml_of(text: str) -> str:
    """Return a `defs.yaml` with the common lines written out."""
    text = re.sub(r"^@(one|two)$", lambda found: TABLE.format(name=found[1]).rstrip(), text, flags=re.MULTILINE)
    text = re.sub(r"^@feed$", FEED.rstrip(), text, flags=re.MULTILINE)
    mine = TABLE.format(name="one").replace("dagster_tidemark.TableComponent", "acme.kinds.Mine").rstrip()
    text = re.sub(r"^@mine$", mine, text, flags=re.MULTILINE)
    return "\n---\n".join(map(_completed, text.split("\n---\n")))


def _completed(document: str) -> str:
    more = [f"  {name}: {given}" for name, given in GIVEN.items() if f"\n  {name}: " not in document]
    if "FeedComponent" in document:
        more = [line for line in more if "row_key" not in line]
    is_ours = "dagster_tidemark." in document or "kinds.Mine" in document
    return document.replace("attributes:\n", "\n".join(["attributes:", *more, ""]), 1) if is_ours else document


def python_of(text: str) -> str:
    text = re.sub(r"^@kinds(?: as (\w+))?$", lambda f: OWN.format(name=f[1] or "Mine"), text, flags=re.MULTILINE)
    return text.replace("@definitions\n", DEFINITIONS)


def located(root: Path, text: str) -> AProject:
    """Write a location with the assets `marts/one` and `marts/two`."""
    files = {"definitions.py": DEFINITIONS, "t.py": T, "defs/two/defs.yaml": "@two\n  transform: acme.t:two\n"}
    files["defs/sources.py"] = SOURCES
    files |= files_in(text)
    if "defs/two/.keep" in files:
        files = {name: body for name, body in files.items() if name != "defs/two/defs.yaml" or name in files_in(text)}
    written = {name: yaml_of(body) if name.endswith(".yaml") else python_of(body) for name, body in files.items()}
    return AProject(root, {f"src/acme/{name}": body for name, body in written.items()})


def rows(asset: dg.AssetsDefinition, declared: Declaration | None) -> str:
    """Return what the rows of an asset follow from: its table, feed and inputs, and what its function returns."""
    read = {name: key.to_user_string() for name, key in asset.keys_by_input_name.items()}
    mapped = {key: repr(asset.get_partition_mapping(dg.AssetKey.from_user_string(key))) for key in read.values()}
    if declared and declared.feed:
        transform = declared.attributes.get("transform")
        found = transform_named(transform)("rows") if transform else None
    else:
        found = asset.op.compute_fn.decorated_fn(**read)  # type: ignore[union-attr]
    return repr((_of_rows(declared and declared.table), _of_rows(declared and declared.feed), mapped, found))


def _of_rows(of: Any) -> Any:
    left_out = {"comment", "column_comments", "retention", "quarantine_share"}
    return of and [(each.name, getattr(of, each.name)) for each in fields(of) if each.name not in left_out]


@pytest.mark.parametrize("name", sample(OF_COMPONENTS, *(n for n, edit in OF_COMPONENTS.items() if not edit.is_proof)))
def test_edit_of_a_component_changes_the_fingerprints_of_the_assets_whose_rows_change(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, versions = OF_COMPONENTS[name], list[tuple[dict[str, str], dict[str, str]]]()
    for side in (1, 2):
        root = tmp_path / str(side)
        with monkeypatch.context() as patch, opened_project(root, patch):
            shutil.rmtree(root)
            versions.append(_loaded(located(root, version(edit.text, side)), patch))
    [(before, first), (after, second)] = versions
    if edit.runs:
        assert {key for key in before if before[key] != after[key]} == edit.changes, "the rows that really change"
    changed = {key for key in first if first[key] != second[key]}
    assert changed - edit.may_change == edit.changes


def _loaded(project: AProject, patch: pytest.MonkeyPatch) -> tuple[dict[str, str], dict[str, str]]:
    """Return the rows and the fingerprints of both assets."""
    settings = load_settings()
    patch.chdir(project.root)
    assets = [each for each in project.load().assets or () if isinstance(each, dg.AssetsDefinition)]
    declared = declared_by(assets).by_asset
    by_key = {key.to_user_string(): (each, declared.get(key)) for each in assets for key in each.keys}
    digests = {key: of.fingerprint.digest for key, of in assets_of(assets, Project(settings.code_root, "acme")).items()}
    short = {key: key.rpartition("/")[2] for key in KEYS}
    return {s: rows(*by_key[key]) for key, s in short.items()}, {s: digests[key] for key, s in short.items()}
