"""`tidemark init`: which folders it refuses, which files it writes, and that they are tidy and load."""

import os
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dagster_tidemark.cli.app import app
from dagster_tidemark.project_folder import VARIABLE, code_location
from dagster_tidemark.scaffold.new_project import project_files
from tests.checkout import CHECKOUT
from tests.warm_python import run_python

ABOVE = {
    ".github/workflows/ci.yml",
    ".gitignore",
    "Makefile",
    "README.md",
    "dagster.yaml",
    "pyproject.toml",
    "samples/stock.csv",
    "tests/conftest.py",
    "tests/test_stock_by_category.py",
    "workspace.yaml",
}
MODULES = {
    "assets/marts/stock_by_category.py",
    "definitions.py",
    "demo/feed.py",
    "feeds/stock.py",
    "partitions.py",
    "schemas/stock_by_category.py",
    "transforms/stock_by_category.py",
}
PACKAGES = ("", "assets/", "assets/marts/", "demo/", "feeds/", "schemas/", "transforms/")
LISTED = """
from my_shop.definitions import defs
print(*sorted(key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()))
"""


def written(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def ran(project: Path, *arguments: str, code: int = 0) -> str:
    """Return the output of Python in the project's folder, without settings."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    environment = mine | {"PYTHONPATH": str(project), "PYTHONWARNINGS": "error:::my_shop"}
    done = run_python(["-P", *arguments], cwd=project, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my-shop"
    done = CliRunner().invoke(app, ["init", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def test_init_writes_the_files_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-shop").mkdir()
    monkeypatch.chdir(tmp_path / "my-shop")
    done = CliRunner().invoke(app, ["init", "."])
    assert done.exit_code == 0, done.output
    modules = MODULES | {f"{package}__init__.py" for package in PACKAGES}
    assert set(written(tmp_path / "my-shop")) == ABOVE | {f"my_shop/{module}" for module in modules}


def test_new_project_contains_no_placeholder(project: Path) -> None:
    for name, text in project_files("my_shop").items():
        assert "$package" not in text and "$name" not in text and "$$" not in text.replace("$$p", ""), name


def test_new_project_configuration_names_the_package(project: Path) -> None:
    assert code_location(project) == "my_shop"
    said = tomllib.loads((project / "pyproject.toml").read_text())
    assert said["project"]["name"] == "my-shop"
    assert said["project"]["dependencies"] == ["dagster-tidemark"], "production goes without the laptop's platform"
    assert "dagster-tidemark[local]" in said["dependency-groups"]["dev"]
    assert said["tool"]["dagster"]["module_name"] == "my_shop.definitions"
    assert yaml.safe_load((project / "workspace.yaml").read_text())["load_from"] == [
        {"python_module": {"module_name": "my_shop.definitions", "location_name": "my_shop"}}
    ]
    workflow = yaml.safe_load((project / ".github/workflows/ci.yml").read_text())
    assert "make test" in str(workflow) and workflow[True]["schedule"], "YAML reads the key `on` as true"


def test_new_project_has_the_dagster_instance_configuration_of_the_checkout(project: Path) -> None:
    assert (project / "dagster.yaml").read_text() == (CHECKOUT / "dagster.yaml").read_text()


def test_new_project_readme_has_at_most_50_lines(project: Path) -> None:
    assert len((project / "README.md").read_text().splitlines()) <= 50


@pytest.mark.parametrize("name", ["my_shop", "a", "the_warehouse_of_a_company_with_a_long_name"])
def test_new_project_modules_pass_ruff(name: str, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["init", str(tmp_path / name)]).exit_code == 0
    for command in ("check", "format --check"):
        ran(tmp_path / name, "-m", "ruff", *command.split(), "--no-cache", ".")


def test_new_project_definitions_load_and_include_modules_added_later(project: Path) -> None:
    assert ran(project, "-c", LISTED).split() == [
        "core/stock",
        "marts/stock_by_category",
        "ops/incidents",
        "ops/landing_events",
        "ops/maintenance",
        "raw/stock",
    ]
    (project / "prices.csv").write_text("item_id,price_usd\n1001,29.90\n1002,89.00\n")
    command = ["-m", "dagster_tidemark.cli.app", "new"]
    ran(project, *command, "feed", "prices", "--sample", "prices.csv", "--by", "hour", "--key", "item_id")
    ran(project, *command, "table", "price_changes", "--from", "core/prices", "--by", "week", "--key", "item_id")
    assert {"core/prices", "marts/price_changes"} < set(ran(project, "-c", LISTED).split())
    for command in ("check", "format --check"):
        ran(project, "-m", "ruff", *command.split(), "--no-cache", ".")


def test_new_project_refuses_the_feed_command_and_names_tidemark_up_instead(project: Path) -> None:
    said = ran(project, "-m", "dagster_tidemark.cli.app", "feed", code=2)
    assert said == "tidemark: my_shop has no module `demo.command`: use `tidemark up` instead\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("2fast", "'2fast' makes no valid Python package name"),
        ("größe", "'größe' makes no valid Python package name"),
        ("class", "'class' cannot be the project's package: it is a keyword"),
        ("json", "'json' cannot be the project's package: Python has a module"),
        ("dagster", "'dagster' cannot be the project's package: an installed package"),
        ("dagster-tidemark", "'dagster_tidemark' cannot be the project's package: an installed package"),
        ("Tests", "'tests' cannot be the project's package: the project has a folder"),
    ],
)
def test_init_refuses_an_invalid_or_taken_package_name(name: str, said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / name)])
    assert done.exit_code == 2
    assert said in done.stderr and done.stderr.count("\n") == 1
    assert written(tmp_path) == [] and not (tmp_path / name).exists()


def test_init_refuses_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        (tmp_path / "mine" / name).touch()
    done = CliRunner().invoke(app, ["init", str(tmp_path / "mine")])
    assert done.exit_code == 2
    assert done.stderr.endswith("mine is not empty (a.txt, b.txt, c.txt, ...): name a new or an empty folder\n")
    assert len(written(tmp_path)) == 4


def test_init_refuses_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = CliRunner().invoke(app, ["init", str(tmp_path / "mine")])
    assert done.exit_code == 2 and "mine is a file: name a new or an empty folder" in done.stderr


def test_init_refuses_an_unknown_or_unavailable_example(tmp_path: Path) -> None:
    unknown = CliRunner().invoke(app, ["init", str(tmp_path / "mine"), "--example", "baker"])
    assert unknown.exit_code == 2 and "expected grocer, not 'baker'" in unknown.stderr
    checkout = CliRunner().invoke(app, ["init", str(tmp_path / "mine"), "--example", "grocer"])
    assert checkout.exit_code == 2 and "this installation is a checkout: `pipelines/` there is" in checkout.stderr
    assert written(tmp_path) == []


def test_init_ignores_a_wrong_project_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    assert CliRunner().invoke(app, ["init", str(tmp_path / "mine")]).exit_code == 0
