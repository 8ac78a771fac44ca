"""The machinery's whole suite, in a copy of the project without the grocer (docs/your-own-domain.md, step 1)."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.conftest import Report
from tests.test_own_domain import copy, environment_of

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

__all__ = ["copy"]


def test_the_machinery_is_whole_without_the_grocer(copy: Path, report: Report) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider", "tests/tidemark"],
        cwd=copy,
        env=environment_of(copy),
        capture_output=True,
        text=True,
        timeout=3500,
    )
    said = done.stdout.splitlines()[-1]
    found = re.search(r"(\d+) passed", said)
    report("without-grocer", {"said": said})
    assert done.returncode == 0 and found and int(found[1]) > 1000, done.stdout[-4000:]
