"""Each name that the library imports from Dagster's private modules exists; a missing one is named in one line.

`make check-range` runs this with the lowest and the newest Dagster that pyproject.toml allows. What the private names
do is held by `tests/tidemark/dagster_internals`.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import dagster
import pytest
import yaml

import dagster_tidemark
from dagster_tidemark import dagster_range
from tests.checkout import CHECKOUT

PACKAGE = Path(dagster_tidemark.__file__).parent


def private_imports() -> Iterator[tuple[Path, str, str]]:
    """Yield file, module and name of each import from a module of Dagster that is not public."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        # Each collection of tests comes here: parsing all files would take seconds.
        if not any(map(dagster_range.is_private, re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and dagster_range.is_private(node.module or ""):
                yield from ((path, node.module or "", each.name) for each in node.names)
            elif isinstance(node, ast.Import):
                yield from ((path, each.name, "") for each in node.names if dagster_range.is_private(each.name))


FOUND = list(private_imports())
IMPORTS = sorted({(module, name) for _, module, name in FOUND})


def test_list_of_private_dagster_names_is_complete() -> None:
    assert ("dagster._core.storage.event_log", "SqlEventLogStorage") in IMPORTS
    assert len(IMPORTS) > 50, "the finder finds no imports any more"


def test_private_dagster_names_are_imported_only_by_internals_and_simulator() -> None:
    """Type-only imports count too, which import-linter leaves out."""
    elsewhere = {path.parent.name for path, _, _ in FOUND} - {"dagster_internals", "simulation"}
    assert not elsewhere


def test_each_public_name_of_dagster_internals_has_a_contract_test() -> None:
    tests = Path(__file__).parent / "dagster_internals"
    untested = []
    for path in sorted((PACKAGE / "dagster_internals").glob("[!_]*.py")):
        text = (tests / f"test_{path.name}").read_text()
        untested += [f"{path.stem}.{name}" for name in public_names(path) if not re.search(rf"\b{name}\b", text)]
    assert not untested


def public_names(path: Path) -> Iterator[str]:
    """Yield the names that a module defines without an underscore, and those that it imports for others."""
    for node in ast.parse(path.read_text()).body:
        names = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            names = [each.asname for each in node.names if each.asname]
        yield from (name for name in names if not name.startswith("_"))


@pytest.mark.parametrize(("module", "name"), IMPORTS, ids=".".join)
def test_private_dagster_name_exists(module: str, name: str) -> None:
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
    f"supported: {dagster_range.supported()}; install a supported version"
)


def test_command_reports_a_missing_dagster_name_in_one_line() -> None:
    said = ended("sys.argv[1:] = ['status']; from dagster_tidemark.cli.app import main; main()")
    assert said == f"tidemark: {EXPECTED}\n"


def test_code_location_reports_a_missing_dagster_name_in_one_line() -> None:
    said = ended("from dagster_tidemark import build_definitions")
    assert said.splitlines()[-1].endswith(EXPECTED)
    assert said.count("Traceback") == 1, "the import's own traceback says nothing more"


def test_missing_private_dagster_module_is_explained() -> None:
    error = ModuleNotFoundError("No module named 'dagster._core.nowhere'", name="dagster._core.nowhere")
    assert "has no dagster._core.nowhere, which" in (dagster_range.explained(error) or "")


def test_unrelated_import_errors_are_not_explained() -> None:
    assert dagster_range.explained(ModuleNotFoundError("No module named 'shop'", name="shop")) is None
    assert dagster_range.explained(ImportError("cannot import name 'x' from 'dagster'", name="dagster")) is None


def test_weekly_job_of_ci_checks_the_range(tmp_path: Path) -> None:
    workflow = yaml.safe_load((CHECKOUT / ".github" / "workflows" / "weekly.yml").read_text())
    assert workflow[True]["schedule"], "YAML reads the key `on` as true"
    [job] = workflow["jobs"].values()
    [command] = [step["run"] for step in job["steps"] if "run" in step]
    for name in ("make", "java", "apt-get", "sudo"):  # nothing is installed, and only the call is recorded
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command.split(), cwd=CHECKOUT, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "make check-range" and "make test" not in done.stdout
