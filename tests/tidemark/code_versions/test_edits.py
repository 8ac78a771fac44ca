"""Edits of small code locations: the fingerprints that change are those of the assets whose rows change.

Each edit in `edits/` is a location with two assets, `one` and `two`. `[[a||b]]` is the text before and after the edit,
and `@A` is the asset's decorator. The header lists the assets whose rows change. Both versions run, which checks the
list. `may change` lists fingerprints that change although the rows do not, such as after a new logging line. `not run`
marks assets that need Spark or a run.

Does not belong here: single definitions (`test_references.py`, `test_normal_form.py`), and where the code of an asset
begins (`test_assets.py`).
"""

import colorsys
import importlib
import os
import sys
from collections.abc import Iterator
from copy import copy
from decimal import getcontext, setcontext
from fractions import Fraction
from pathlib import Path

import pytest

from dagster_tidemark.code_versions.fingerprint import Code
from dagster_tidemark.code_versions.project import Definition, Project
from tests.tidemark.code_versions.edit_texts import EDITS, Edit, edits_in, files_in, version

ASSET = '@dg.asset(code_version="1")\n'
PACKAGES = ("toy", "shared", "helpers")


ROWS = edits_in(EDITS / "that_change_rows.txt") | edits_in(EDITS / "that_change_rows_too.txt")
NOTHING = edits_in(EDITS / "that_change_nothing.txt")


def write(root: Path, text: str) -> None:
    """Write a location. Paths are relative to its package; a path with a leading slash is relative to the project."""
    for name, body in {"__init__.py": "", **files_in(text)}.items():
        path = root / name[1:] if name.startswith("/") else root / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import dagster as dg\n{body}" if name == "assets.py" else body)
    for folder in {path.parent for path in (root / "toy").rglob("*.py")}:
        (folder / "__init__.py").touch()


def forget_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def libraries() -> Iterator[None]:
    """Restore what the edits change in Python's own libraries."""
    environment, function, context = dict(os.environ), colorsys.rgb_to_yiq, copy(getcontext())
    yield
    forget_modules()
    setcontext(context)
    colorsys.rgb_to_yiq = function
    os.environ.clear()
    os.environ.update(environment)
    for name in ("with_tax", "with_vat"):
        if name in vars(Fraction):
            delattr(Fraction, name)


def fingerprints(root: Path, text: str) -> dict[str, str]:
    """Return the digest of each asset in a version of a location."""
    write(root, text.replace("@A\n", ASSET))
    project = Project(root, "toy")
    code = Code(project)
    starts = {key: project.named(f"toy.assets.{key}") for key in ("one", "two")}
    return {key: code.fingerprint(of).digest for key, of in starts.items() if isinstance(of, Definition)}


def rows(root: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the rows that each asset computes, as text. Its decorator is left out."""
    write(root, text.replace("@A\n", ""))
    forget_modules()
    monkeypatch.chdir(root)  # commands and runs work in the project's folder
    with monkeypatch.context() as patch:
        patch.syspath_prepend(root)
        module = importlib.import_module("toy.assets")
        return {key: repr(getattr(module, key)()) for key in ("one", "two")}


def check(edit: Edit, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [version(edit.text, side) for side in (1, 2)]
    before, after = (fingerprints(root / f"code {n}", text) for n, text in enumerate(versions))
    if edit.runs:
        first, second = (rows(root / f"run {n}", text, monkeypatch) for n, text in enumerate(versions))
        assert {key for key in first if first[key] != second[key]} == edit.changes, "the rows that really change"
    changed = {key for key in before if before[key] != after[key]}
    assert changed - edit.may_change == edit.changes


@pytest.mark.parametrize("name", ROWS)
def test_edit_that_changes_rows_changes_the_fingerprints_of_these_assets_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(ROWS[name], tmp_path, monkeypatch)


@pytest.mark.parametrize("name", NOTHING)
def test_edit_that_changes_no_row_keeps_the_fingerprints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(NOTHING[name], tmp_path, monkeypatch)
