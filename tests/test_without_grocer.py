"""The library and its tests without the grocer: no module of the example is needed.

Here the location loads and the tests are collected; `tests.proof.test_without_grocer` runs them.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import copied_checkout
from tests.test_own_domain import run

OF_THE_LIBRARY = (
    "tests/tidemark",
    "tests/transforms",
    "tests/live/test_nothing_lost.py",
    "tests/live/test_warm_runs.py",
)
STAYS = ("__init__.py", "definitions.py", "partitions.py", "ruff.toml")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A copy of the checkout whose example is empty packages, without tests of the example."""
    copy = copied_checkout(tmp_path / "bare")
    for path in [path for path in (copy / "pipelines").rglob("*") if path.is_file() and path.name not in STAYS]:
        path.unlink()
    for path in (copy / "tests").glob("*.py"):
        if path.name.startswith(("test_", "grocer_")):
            path.unlink()
    for folder in ("bench", "tests/demo", "tests/transforms/grocer"):
        shutil.rmtree(copy / folder)
    (copy / "code-versions.lock").unlink()
    return copy


def test_empty_location_loads_and_library_tests_are_collected_without_the_grocer(bare: Path) -> None:
    run(bare, ["-c", "from pipelines.definitions import defs, ASSETS; assert not ASSETS; defs.get_repository_def()"])
    # Nothing is run, and to rewrite every assert takes as long as all else.
    options = ["--collect-only", "--assert=plain", "-q", "-p", "no:cacheprovider"]
    collected = run(bare, ["-m", "pytest", *options, *OF_THE_LIBRARY])
    assert re.search(r"^\d{4} tests collected|^\d{4}/\d+ tests collected", collected, re.M), collected[-300:]
    run(bare, ["-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"])
