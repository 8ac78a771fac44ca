"""Each name that the library imports from Dagster's private modules exists; a missing one is named in one line.

`make check-range` runs this with the lowest and the newest Dagster that pyproject.toml allows. What the private names
do is held by `tests/tidemark/dagster_internals`.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import dagster
import pytest

import dagster_tidemark
from dagster_tidemark import dagster_range

PACKAGE = Path(dagster_tidemark.__file__).parent


def private_imports() -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from a module of Dagster that is not public."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and dagster_range.is_private(node.module or ""):
                yield from ((node.module or "", each.name) for each in node.names)
            elif isinstance(node, ast.Import):
                yield from ((each.name, "") for each in node.names if dagster_range.is_private(each.name))


IMPORTS = sorted(set(private_imports()))


def test_the_list_of_private_names_is_complete() -> None:
    assert ("dagster._core.storage.event_log", "SqlEventLogStorage") in IMPORTS
    assert len(IMPORTS) > 50, "the finder finds no imports any more"


@pytest.mark.parametrize(("module", "name"), IMPORTS, ids=".".join)
def test_a_private_name_exists(module: str, name: str) -> None:
    found = import_module(module)
    assert not name or hasattr(found, name), f"dagster {dagster.__version__} has no {module}.{name}"


_WITHOUT = """
import sys
import dagster._core.storage.runs as runs
del runs.SqlRunStorage
"""


def ended(script: str) -> str:
    """Return the last line that a Python process wrote to stderr, without the name of the exception."""
    command = [sys.executable, "-W", "ignore", "-c", _WITHOUT + script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode, done.stdout
    return done.stderr


EXPECTED = (
    f"dagster {version('dagster')} has no dagster._core.storage.runs.SqlRunStorage, which dagster_tidemark needs; "
    f"supported: {dagster_range.supported()}; install such a version"
)


def test_a_command_names_a_missing_name_in_one_line() -> None:
    said = ended("sys.argv[1:] = ['status']; from dagster_tidemark.cli.app import main; main()")
    assert said == f"tidemark: {EXPECTED}\n"


def test_a_code_location_names_a_missing_name_in_one_line() -> None:
    said = ended("from dagster_tidemark import build_definitions")
    assert said.splitlines()[-1].endswith(EXPECTED)
    assert said.count("Traceback") == 1, "the import's own traceback says nothing more"


def test_a_missing_module_is_named_too() -> None:
    error = ModuleNotFoundError("No module named 'dagster._core.nowhere'", name="dagster._core.nowhere")
    assert "has no dagster._core.nowhere, which" in (dagster_range.explained(error) or "")


def test_other_import_errors_are_left_alone() -> None:
    assert dagster_range.explained(ModuleNotFoundError("No module named 'shop'", name="shop")) is None
    assert dagster_range.explained(ImportError("cannot import name 'x' from 'dagster'", name="dagster")) is None
