"""The library's whole suite, in a copy of the checkout without the grocer."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.conftest import Report
from tests.test_own_domain import environment_of
from tests.test_without_grocer import bare

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7200)]

__all__ = ["bare"]


def test_library_test_suite_passes_without_the_grocer(bare: Path, tmp_path: Path, report: Report) -> None:
    output = tmp_path / "output.txt"  # to be looked at while it runs
    with output.open("wb") as told:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider", "tests/tidemark"],
            cwd=bare,
            env=environment_of(bare),
            stdout=told,
            stderr=subprocess.STDOUT,
            timeout=7000,
        )
    lines = output.read_text().splitlines()
    found = re.search(r"(\d+) passed", lines[-1])
    report("without-grocer", {"said": lines[-1]})
    assert done.returncode == 0 and found and int(found[1]) > 1000, "\n".join(lines[-80:])
