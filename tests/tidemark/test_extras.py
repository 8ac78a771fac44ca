"""Without the packages of the extras everything else works, and what needs one names it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from dagster_tidemark.asset_page import with_pages
from dagster_tidemark.cli.app import app
from dagster_tidemark.settings import load_settings
from tests.checkout import CHECKOUT
from tests.tidemark import extras


def test_modules_and_a_code_location_load_without_extras() -> None:
    program = [sys.executable, "-W", "ignore", extras.__file__, "--blocked"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=200, check=False, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("extras: none; 0 failed\n")


def test_every_extra_is_documented_and_tested_alone() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    page = (CHECKOUT / "docs" / "existing-location.md").read_text()
    table = page.split("| extra | needed for |")[1].split("\n\n")[0]
    documented = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert documented == set(project["optional-dependencies"]) == extras.PACKAGES.keys()


def test_up_command_reports_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervisor.xmlrpc", None)
    for name in [name for name in sys.modules if name.startswith("dagster_tidemark.local.platform.")]:
        monkeypatch.delitem(sys.modules, name)
    done = CliRunner().invoke(app, ["up"])
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("pip install 'dagster-tidemark[local]'\n")


def test_asset_without_a_source_file_has_a_page_without_a_link(tmp_path: Path) -> None:
    module: dict[str, dg.AssetsDefinition] = {}
    exec("import dagster as dg\n@dg.asset\ndef numbers(): ...", module)
    [page] = with_pages([module["numbers"]], {}, load_settings(), [])
    assert page.key == dg.AssetKey("numbers") and "dagster/code_references" not in page.metadata_by_key[page.key]
