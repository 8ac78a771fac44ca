"""The name of a user's package is the user's: another distribution with the same package does not clash with ours."""

import json
import os
import tomllib
from pathlib import Path

from tests.checkout import CHECKOUT
from tests.warm_python import run_python

_LOCATION = """
import dagster as dg
from dagster_tidemark import build_definitions, load_settings

@dg.asset(code_version="1")
def {asset}(): return 1

defs = build_definitions(load_settings(), [{asset}], [], [])
"""


def project(folder: Path, asset: str) -> Path:
    (folder / "pipelines").mkdir(parents=True)
    (folder / "deep").mkdir()
    (folder / "pyproject.toml").write_text('[tool.tidemark]\npackage = "pipelines"\n')
    (folder / "pipelines" / "__init__.py").touch()
    (folder / "pipelines" / "definitions.py").write_text(_LOCATION.format(asset=asset))
    return folder


def assets_of(folder: Path, *installed: Path) -> set[str]:
    """The assets that a command finds in a project, with other folders on the path as if they were installed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    path = {"PYTHONPATH": os.pathsep.join(map(str, installed))}
    done = run_python(
        ["-m", "dagster_tidemark.cli.app", "lock", "check", "--json"],
        cwd=folder / "deep",  # from here Python would not find the package by itself
        env=inherited | path,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr[-2000:]  # no lock file yet: each asset is new
    return {found["asset"] for found in json.loads(done.stdout)}


def test_two_projects_with_the_same_package_name_do_not_clash(tmp_path: Path) -> None:
    one, two = project(tmp_path / "one", "apples"), project(tmp_path / "two", "pears")
    for folder, asset in ((one, "apples"), (two, "pears")):
        other = two if folder is one else one
        assert assets_of(folder, CHECKOUT, other) == {asset}
        assert assets_of(folder, CHECKOUT, other, folder) == {asset}, (
            "the project comes first, wherever it is installed"
        )


def test_wheel_contains_only_the_tidemark_package() -> None:
    build = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["packages"] == ["dagster_tidemark"]
    assert all(target.startswith("dagster_tidemark/") for target in build["force-include"].values())
