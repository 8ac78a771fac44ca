"""`dg`, the command that Dagster's users reach for first, on the project as it is."""

import json
import os
import shutil
from pathlib import Path

from tests.checkout import CHECKOUT
from tests.warm_python import run_script


def dg(*arguments: str, cwd: Path) -> str:
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONPATH": str(cwd)}
    done = run_script("dg", arguments, cwd=cwd, env=os.environ | quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dg_lists_definitions_with_checks_and_sensors_and_the_asset_it_scaffolded(tmp_path: Path) -> None:
    for name in ("pipelines", "pyproject.toml"):
        copy = shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy2
        copy(CHECKOUT / name, tmp_path / name)
    dg("scaffold", "defs", "dagster.asset", "marts/returns.py", cwd=tmp_path)
    assert (tmp_path / "pipelines" / "assets" / "marts" / "returns.py").exists()
    found = json.loads(dg("list", "defs", "--json", cwd=tmp_path))
    assert {"core/orders", "returns"} <= {asset["asset_key"] for asset in found["assets"]}
    assert {"landing", "automation", "catch_up", "contracts"} <= {sensor["name"] for sensor in found["sensors"]}
    assert any("contract" in check["key"] for check in found["asset_checks"])
