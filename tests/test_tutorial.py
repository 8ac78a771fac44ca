"""docs/tutorial.md, followed in an empty folder: its commands, modules and tests, on a real Spark server and S3.

Does not belong here: `make dev` and the sensors, which `tests.proof.test_init` runs with the same page.
"""

import io
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from dagster_tidemark.settings import Settings
from tests import pages
from tests.test_own_domain import run, tidemark

PAGE = pages.page("tutorial.md")
FEED, FUNCTION = (code for number in (4, 8) for code in pages.blocks(pages.step(PAGE, number), "python"))
BUILD = """
import sys
import dagster as dg
from acme.definitions import defs

TAGS = dict(zip(("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"), sys.argv[1:3]))
assets = [a for a in defs.assets if isinstance(a, dg.AssetsDefinition)]
with dg.DagsterInstance.ephemeral() as instance:
    for key in sys.argv[3:]:
        chosen = dg.AssetSelection.assets(dg.AssetKey(key.split("/")))
        assert dg.materialize(assets, selection=chosen, tags=TAGS, resources=defs.resources, instance=instance).success
from pyiceberg.catalog import load_catalog
for key in sys.argv[3:]:
    print(load_catalog("lake").load_table(key.replace("/", ".")).scan().to_pandas().to_csv(index=False), end="END\\n")
"""


def commands(number: int, block: int = 0) -> list[str]:
    """Return the lines of a block of a step."""
    return pages.blocks(pages.step(PAGE, number), "sh")[block].splitlines()


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1, f"{file.name}: {before!r}"
    file.write_text(text.replace(before, after))


def add_the_feed(project: Path) -> None:
    """Step 4, without the reload."""
    sample = "\n".join(commands(4)[:-1])
    subprocess.run(["bash", "-euc", sample], cwd=project, check=True)
    tidemark(project, commands(4)[-1])
    rule = '    rules={"nothing_sold": "quantity > 0"},\n'
    edit(project / "acme" / "feeds" / "sales.py", FEED.replace(rule, ""), FEED)


def add_the_table(project: Path) -> None:
    """Steps 6 and 7, without running anything."""
    tidemark(project, commands(6)[0])
    shown = [*pages.written(project, pages.step(PAGE, 6)), *pages.written(project, pages.step(PAGE, 7))]
    assert len(shown) == 3


def change_the_code(project: Path) -> None:
    """The first half of step 8."""
    transform = project / "acme" / "transforms" / "sales_by_item.py"
    edit(transform, transform.read_text().partition("\ndef ")[2], FUNCTION.removeprefix("def "))


def raise_the_version(project: Path) -> None:
    """The second half of step 8."""
    edit(project / "acme" / "assets" / "marts" / "sales_by_item.py", 'code_version="1"', 'code_version="2"')


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after step 7."""
    folder = tmp_path_factory.mktemp("tutorial")
    made, entered = commands(1)[-2:]
    tidemark(folder, made.removeprefix(".venv/bin/"))
    assert entered == "cd acme"
    add_the_feed(folder / "acme")
    add_the_table(folder / "acme")
    tidemark(folder / "acme", commands(7)[0])
    return folder / "acme"


@pytest.mark.proof
def test_tutorial_project_passes_lint_and_its_tests(project: Path) -> None:
    for command in ("check", "format --check"):
        run(project, ["-m", "ruff", *command.split(), "--no-cache", "."])
    tidemark(project, "tidemark lock check")
    # One more, with the session of docs/testing.md: to start Spark takes longer than all of them.
    conftest, tests = pages.blocks(pages.page("testing.md"), "python")
    (project / "tests" / "conftest.py").write_text(conftest)
    (project / "tests" / "test_counts.py").write_text(tests)
    assert "3 passed" in run(project, ["-m", "pytest", "-q", "-p", "no:cacheprovider"])
    (project / "tests" / "test_counts.py").unlink()


def test_tutorial_files_are_loaded_into_its_tables(project: Path, spark_server: Settings, cloud: Settings) -> None:
    (upload, *_) = pages.blocks(pages.step(PAGE, 5), "sh")
    run(project, ["-c", pages.python_of(upload)], cloud)
    today = datetime.now(UTC).date()
    told = run(
        project,
        ["-c", BUILD, str(today - timedelta(days=1)), str(today), "core/sales", "marts/sales_by_item"],
        cloud,
    )
    sales, by_item = (pd.read_csv(io.StringIO(text)) for text in told.split("END\n")[:2])
    assert sorted(sales["sale_id"]) == [1, 2, 3, 4]
    assert sorted(by_item["revenue_usd"]) == [30.0, 74.7, 74.7]
    assert cloud.dagster_home is not None
    cloud.dagster_home.mkdir(exist_ok=True)
    assert "bad_type" in run(project, ["-m", "dagster_tidemark.cli.app", "quarantine"], cloud)


def test_lock_check_refuses_changed_code_until_its_version_is_raised(project: Path) -> None:
    change_the_code(project)
    with pytest.raises(AssertionError, match='changed and code_version is still "1"'):
        tidemark(project, "tidemark lock check")
    raise_the_version(project)
    tidemark(project, commands(8)[0])
    tidemark(project, "tidemark lock check")
    run(project, ["-m", "ruff", "format", "--check", "--no-cache", "."])
