"""The project of docs/components.md, as `create-dagster` makes it."""

import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core import snapshot

from dagster_tidemark import location
from tests.checkout import CHECKOUT

PYPROJECT = """
[project]
name = "acme"
version = "0.1.0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "acme"

[tool.dg.cli]
suppress_warnings = ["project_and_activated_venv_mismatch"]

[tool.tidemark]
package = "acme"
"""
ENTRY_OF = cache(snapshot.get_package_entry_snap)
"""What the UI is told about a component class, its schema among it. To make it takes most of the time of a load."""
FEED, TABLE = "returns/defs.yaml", "returns_per_day/defs.yaml"


def page() -> dict[str, str]:
    """Return the files of the page's first project by their paths, without its further examples."""
    return {path: text for path, text in every_file_of_the_page().items() if path not in examples()}


def examples() -> dict[str, str]:
    """Return the files of the page's further examples by their paths."""
    text = _text()
    return _files_in(text[text.index("## More examples") :])


def every_file_of_the_page() -> dict[str, str]:
    found = _files_in(_text())
    assert {Path(path).name for path in found} == {"definitions.py", "defs.yaml", "transform.py", "query.sql"}
    return found


def _text() -> str:
    return (CHECKOUT / "docs" / "components.md").read_text()


def _files_in(text: str) -> dict[str, str]:
    return dict(re.findall(r"`(src/[\w/.]+)`[^`]*?\n\n```\w+\n(.*?)^```", text, re.M | re.S))


class AProject:
    """A project as `create-dagster` makes it, with the files of the page."""

    def __init__(self, root: Path, texts: dict[str, str]) -> None:
        self.root, self.defs_folder = root, root / "src" / "acme" / "defs"
        init = {"src/acme/__init__.py": "", "src/acme/defs/__init__.py": ""}
        for path, text in {"pyproject.toml": PYPROJECT, **init, **texts}.items():
            self.write(path, text)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def change(self, path: str, before: str, after: str) -> None:
        file = self.defs_folder / path
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    def load(self) -> dg.Definitions:
        """Return the definitions; everything is imported again."""
        forget()
        return import_module("acme.definitions").defs()  # type: ignore[no-any-return]

    def line_of(self, path: str, text: str) -> str:
        lines = (self.defs_folder / path).read_text().splitlines()
        return f"{path}:{next(n for n, line in enumerate(lines, 1) if text in line)}:"


def forget() -> None:
    """Have the project's modules imported again, and what was found about them forgotten."""
    location._BROKEN.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


@contextmanager
def opened_project(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AProject]:
    """Write the project of the page into a folder, and make it the one that commands find."""
    monkeypatch.setenv("TIDEMARK_PROJECT", str(root))
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "acme")
    monkeypatch.syspath_prepend(root / "src")
    monkeypatch.setattr(snapshot, "get_package_entry_snap", ENTRY_OF)
    try:
        yield AProject(root, page())
    finally:
        forget()
