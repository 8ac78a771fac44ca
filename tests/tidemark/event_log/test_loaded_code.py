"""Which edits of a code location's folder count as other code."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagster_tidemark.event_log.deployed import code_of

NAME = "toy_of_loaded_code"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a package that can be imported."""
    made = tmp_path / NAME
    (made / "sql").mkdir(parents=True)
    (made / "__init__.py").touch()
    (made / "sql/q.sql").write_text("select 1")
    (made / "defs.yaml").write_text("a: 1")
    (made / "large.csv").write_bytes(b"1" * 1_500_000)
    monkeypatch.syspath_prepend(tmp_path)
    yield made
    sys.modules.pop(NAME, None)


def code() -> str:
    """The hash as a new process computes it."""
    return code_of.__wrapped__(cast("Any", SimpleNamespace(code_location=NAME)))


OTHER: dict[str, Callable[[Path], object]] = {
    "SQL": lambda f: (f / "sql/q.sql").write_text("select 2"),
    "YAML": lambda f: (f / "defs.yaml").write_text("a: 2"),
    "Python": lambda f: (f / "__init__.py").write_text("a = 2"),
    "a new file": lambda f: (f / "new.yaml").touch(),
    "a renamed file": lambda f: (f / "defs.yaml").rename(f / "other.yaml"),
    "a deleted file": lambda f: (f / "sql/q.sql").unlink(),
    "the size of a large file": lambda f: (f / "large.csv").write_bytes(b"1" * 1_500_001),
}
SAME: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "time of change": lambda f: (f / "defs.yaml").touch(),
    "a log": lambda f: (f / "run.log").write_text("started"),
    "a database": lambda f: (f / "catalog.db").write_bytes(b"2"),
    "a hidden folder": lambda f: [(f / ".cache").mkdir(), (f / ".cache/a.yaml").touch()],
    "compiled code": lambda f: [(f / "__pycache__").mkdir(), (f / "__pycache__/a.pyc").touch()],
}


@pytest.mark.parametrize("name", OTHER)
def test_changed_file_of_the_package_is_other_code(name: str, folder: Path) -> None:
    before = code()
    OTHER[name](folder)
    assert code() != before


@pytest.mark.parametrize("name", SAME)
def test_what_programs_write_is_the_same_code(name: str, folder: Path) -> None:
    before = code()
    SAME[name](folder)
    assert code() == before
