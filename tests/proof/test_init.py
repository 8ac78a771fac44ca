"""A new project from the built wheel, in a fresh virtual environment: `make dev`, `make test` and `make check` work.

Belongs here: the first commands of a user, with the packages that pip finds today. Does not belong here: which folders
`tidemark init` refuses and what it writes (`tests.tidemark.scaffold.test_new_project`).
"""

import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import pages
from tests.checkout import CHECKOUT
from tests.live.platform import Platform
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.test_tutorial import PAGE, add_the_feed, add_the_table, change_the_code, commands, raise_the_version

SAMPLE_ROWS = 8
SECONDS_TO_INSTALL, SECONDS_TO_FILL = 1800, 600


class Shell:
    """Commands in a folder, with the time that each takes. pip also finds the wheel.

    Args:
        wheels: The folder of the wheel.
    """

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()
        inherited = {name: value for name, value in os.environ.items() if not re.match("TIDEMARK_|PYTHONPATH", name)}
        self.environment = inherited | {"PIP_FIND_LINKS": f"{wheels} {inherited.get('PIP_FIND_LINKS', '')}".strip()}

    def run(self, what: str, *command: str | Path) -> str:
        """Run a command, which has to succeed, and return its output."""
        begun = time.monotonic()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_TO_INSTALL,
        )
        self.seconds[what] = round(time.monotonic() - begun, 1)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path, wheel: Path) -> Shell:
    """A shell in an empty folder. Another folder has a virtual environment with the library."""
    (tmp_path / "empty").mkdir()
    made = Shell(tmp_path / "empty", wheel.parent)
    python = tmp_path / "venv" / "bin" / "python"
    made.run("venv", sys.executable, "-m", "venv", tmp_path / "venv")
    made.run("pip install", python, "-m", "pip", "install", "--quiet", f"{wheel}[local]")
    return made


@pytest.fixture
def project(tmp_path: Path, shell: Shell, request: pytest.FixtureRequest) -> Path:
    """The new project; the shell goes into it. The parameter holds options of `tidemark init`."""
    options = getattr(request, "param", ())
    shell.run("tidemark init", tmp_path / "venv" / "bin" / "tidemark", "init", "acme", *options)
    shell.folder /= "acme"
    return shell.folder


@pytest.fixture
def platform(tmp_path: Path, jars: Path, project: Path, shell: Shell) -> Iterator[Platform]:
    """The platform of the new project, not started yet, at the pace that a user gets."""
    made = Platform(tmp_path / "state", jars, tmp_path / "up.log", project=project)
    del made.asked["TIDEMARK_CONTRACT_SCALE"]
    made.asked["PIP_FIND_LINKS"] = shell.environment["PIP_FIND_LINKS"]
    made.asked.pop("PYTHONPATH", None)
    yield made
    made.end()


def test_wheel_contains_the_library_and_templates_but_no_example(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"dagster_tidemark"}
    assert "dagster_tidemark/py.typed" in names
    here = CHECKOUT / "dagster_tidemark" / "scaffold" / "project"
    templates = {path.relative_to(CHECKOUT).as_posix() for path in here.rglob("*") if path.is_file()}
    assert templates and templates <= {*names}


def test_new_project_runs_and_its_tests_pass(project: Path, platform: Platform, shell: Shell, report: Report) -> None:
    figures: dict[str, Any] = {"seconds": shell.seconds, "files": sum(path.is_file() for path in project.rglob("*"))}
    try:
        shell.seconds["first make dev, until ready"] = round(platform.start("sample", seconds=SECONDS_TO_INSTALL), 1)
        begun = time.monotonic()

        def filled() -> None:
            for name, rows in (("core.stock", 2 * SAMPLE_ROWS), ("marts.stock_by_category", 2 * 4)):
                assert platform.table(name).num_rows == rows, f"{name}: {platform.table(name).num_rows} rows"
                shell.seconds.setdefault(f"{name}, after ready", round(time.monotonic() - begun, 1))

        eventually(filled, seconds=SECONDS_TO_FILL, every=1)
        assert sum(platform.table("marts.stock_by_category")["rows"].to_pylist()) == 2 * SAMPLE_ROWS
        status = platform.pipelines("status")
        figures["stopped"] = _stopped(platform)
        shell.seconds["second make dev, until ready"] = round(platform.start("sample"), 1)
        figures["stopped again"] = _stopped(platform)
        figures["tests"] = shell.run("make test", "make", "test").splitlines()[-1]
        shell.run("make check", "make", "check")
        platform.start("sample")
        figures["tutorial"] = _follow_the_tutorial(project, platform, shell)
        figures["stopped after the tutorial"] = _stopped(platform)
        shell.run("make check, with another feed and table", "make", "check")
    finally:
        report("init", figures)
    assert "marts/stock_by_category" in status.stdout
    assert figures["stopped"]["left"] == figures["stopped again"]["left"] == []
    assert re.search(r"\b1 passed\b", figures["tests"])


@pytest.mark.parametrize("project", [("--example", "grocer")], indirect=True)
def test_example_project_runs_and_its_tests_pass(
    project: Path, platform: Platform, shell: Shell, report: Report
) -> None:
    figures: dict[str, Any] = {"seconds": shell.seconds, "files": sum(path.is_file() for path in project.rglob("*"))}
    try:
        shell.seconds["first make dev, until ready"] = round(platform.start("sample", seconds=SECONDS_TO_INSTALL), 1)
        begun = time.monotonic()

        def filled() -> None:
            rows = {name: platform.table(name).num_rows for name in ("core.orders", "marts.sales_hourly")}
            assert all(rows.values()), rows
            figures["rows"] = rows

        eventually(filled, seconds=SECONDS_TO_FILL, every=2)
        shell.seconds["rows, after ready"] = round(time.monotonic() - begun, 1)
        figures["stopped"] = _stopped(platform)
        figures["tests"] = shell.run("make test", "make", "test").splitlines()[-1]
        shell.run("make check", "make", "check")
    finally:
        report("init-example", figures)
    assert figures["stopped"]["left"] == [] and re.search(r"\b1 passed\b", figures["tests"])


def _stopped(platform: Platform) -> dict[str, Any]:
    """End it by Ctrl-C."""
    done = platform.stop(signal.SIGINT)
    return {"seconds": round(done.seconds, 1), "exit_code": done.exit_code, "left": done.left}


def _follow_the_tutorial(project: Path, platform: Platform, shell: Shell) -> dict[str, Any]:
    """Follow docs/tutorial.md from step 4 on, and return the rows of its tables."""
    environment = {**shell.environment, **platform.environment, "TIDEMARK_PROJECT": str(project)}
    here = Shell(project, Path("/nowhere"))
    here.environment = environment | {"PATH": f"{project / '.venv' / 'bin'}:{environment['PATH']}"}
    here.seconds = shell.seconds

    def deploy(what: str) -> None:
        here.run(what, "bash", "-euc", commands(4, 1)[0])

    def holds(name: str, rows: int) -> None:
        eventually(lambda: _require(platform.table(name).num_rows == rows, name), seconds=SECONDS_TO_FILL, every=1)

    add_the_feed(project)
    deploy("deploy the feed")
    here.run("files arrive", "bash", "-euc", pages.blocks(pages.step(PAGE, 5), "sh")[0])
    holds("core.sales", 4)
    assert "bad_type" in here.run("tidemark quarantine", "tidemark", "quarantine")
    add_the_table(project)
    here.run("tidemark lock update", "tidemark", "lock", "update")
    deploy("deploy the table")
    holds("marts.sales_by_item", 3)
    before = sorted(map(float, platform.table("marts.sales_by_item")["revenue_usd"].to_pylist()))
    change_the_code(project)
    raise_the_version(project)
    here.run("tidemark lock update, again", "tidemark", "lock", "update")
    deploy("deploy the change")
    after = sorted(map(float, platform.table("marts.sales_by_item")["revenue_usd"].to_pylist()))
    assert [round(value * 1.2, 2) for value in after] == before
    return {"revenue before": before, "revenue after": after}


def _require(holds: bool, what: str) -> None:
    assert holds, what
