"""The long proofs: `make proof` runs them, plain pytest leaves them out. Their reports are kept in `proof/`."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import CHECKOUT
from tests.conftest import JARS, copied_checkout
from tests.live.platform import Platform, running

Report = Callable[[str, dict[str, Any]], None]

pytest.register_assert_rewrite(
    "tests.proof.shape_stories",
    "tests.proof.fault_stories",
    "tests.proof.shapes_platform",
    "tests.proof.edited_project",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are proofs, and may take long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("proof")
            item.add_marker(pytest.mark.timeout(3 * 3600))


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Keep the figures of a proof: `report("tick", {...})` writes proof/tick.json. Before anything is judged."""

    def _write(name: str, figures: dict[str, Any]) -> None:
        git = ["git", "-C", str(CHECKOUT)]
        commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        status = [*git, "status", "--porcelain", "--", ".", ":!proof"]  # other reports change nothing
        changed = subprocess.run(status, capture_output=True, text=True, check=False)
        told = {
            "commit": commit.stdout.strip() + ("+changes" if changed.stdout.strip() else ""),
            "command": f"python -m pytest -m proof {request.node.nodeid}",
            "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
            **figures,
        }
        folder = CHECKOUT / "proof"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(told, indent=2) + "\n")

    return _write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copied working tree for edits (`tests.proof.edited_project`)."""
    return copied_checkout(tmp_path / "project")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The library's wheel, built from this checkout."""
    folder = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--quiet", "-w", folder, CHECKOUT], check=True, timeout=600)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(name="platform")
def platform_of_project(project: Path, tmp_path: Path) -> Iterator[Platform]:
    """A platform that runs this working tree, without a sample feed."""
    with running(tmp_path, JARS, PYTHONPATH=str(project), TIDEMARK_PROJECT=str(project)) as made:
        yield made
