"""`tidemark plan` on the grocer: how the code differs from the deployed code, and the question before a deploy."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dagster_tidemark.cli import lock, plan_view
from dagster_tidemark.cli.app import app
from dagster_tidemark.code_versions.lock_file import NAME, read, write
from dagster_tidemark.engine.code_plan import AssetPlan, CodePlan, MovedDefinition, SavedState
from dagster_tidemark.planner.rehearsal import Rebuild
from tests.checkout import CHECKOUT
from tests.grocer_code import deployed_state
from tests.sampling import sample
from tests.warm_python import run_python

SALES = "pipelines/transforms/sales.py"


@pytest.fixture(scope="module")
def saved() -> SavedState:
    return deployed_state()


def plan(saved: SavedState, path: Path, code: Mapping[str, str], *options: str) -> Any:
    path.write_text(json.dumps({**saved.__dict__, "code": dict(code)}))
    return CliRunner().invoke(app, ["plan", "--against", str(path), *options])


def test_saved_deploy_code_contains_the_project_without_the_library(saved: SavedState) -> None:
    assert saved.code[SALES] == (CHECKOUT / SALES).read_text()
    assert not [path for path in saved.code if path.startswith("dagster_tidemark/")]


def test_plan_shows_no_difference_for_the_same_code(saved: SavedState, tmp_path: Path) -> None:
    done = plan(saved, tmp_path / "state.json", saved.code, "--json")
    assert (done.exit_code, json.loads(done.stdout)["code"]) == (0, {})


def test_plan_shows_a_changed_function_once_with_its_assets(saved: SavedState, tmp_path: Path) -> None:
    before = saved.code[SALES].replace('F.sum("quantity")', 'F.max("quantity")', 1)
    assert before != saved.code[SALES]
    code = {**saved.code, SALES: before}
    done = plan(saved, tmp_path / "state.json", code, "--diff")
    assert "pipelines/transforms/sales.py: sales_hourly() changed: affects marts/sales_hourly" in " ".join(
        done.stdout.split()
    )
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines if "max(" in line] == [["-", 'F.max("quantity").alias("quantity"),']]
    assert [line.split()[:2] for line in lines if 'F.sum("quantity")' in line and line.lstrip().startswith("+")]
    told = plan(saved, tmp_path / "state.json", code).stdout
    assert "sales_hourly() changed" in " ".join(told.split()) and "max(" not in told, "--diff shows the lines"
    found = json.loads(plan(saved, tmp_path / "state.json", code, "--diff", "--json").stdout)["code"]
    assert list(found) == ["marts/sales_hourly"]
    assert [each["definition"] for each in found["marts/sales_hourly"]] == [f"{SALES}: sales_hourly()"]


def test_plan_ignores_comments_and_docstrings(saved: SavedState, tmp_path: Path) -> None:
    code = {**saved.code, SALES: "# sales\n" + saved.code[SALES].replace('    """', '    """So: ', 1)}
    assert json.loads(plan(saved, tmp_path / "state.json", code, "--json").stdout)["code"] == {}


def test_plan_shows_a_changed_constant_and_a_new_function(saved: SavedState, tmp_path: Path) -> None:
    core = "pipelines/schemas/core.py"
    code = {**saved.code, core: saved.code[core].replace('"cost_usd": "decimal(18,4)"', '"cost_usd": "decimal(18,2)"')}
    del code["pipelines/transforms/margin.py"]
    found = json.loads(plan(saved, tmp_path / "state.json", code, "--json").stdout)["code"]
    assert f"{core}: PRICES_LANDING" in [each["definition"] for each in found["core/prices"]]
    margin = [each["definition"] for each in found["marts/margin_hourly"]]
    assert "pipelines/transforms/margin.py: margin_hourly()" in margin


def test_plan_reports_that_the_deployed_code_is_unknown(saved: SavedState, tmp_path: Path) -> None:
    done = plan(saved, tmp_path / "state.json", {}, "--diff")
    assert "the text of the deployed code is unknown" in " ".join(done.stdout.split())


def test_plan_exits_with_7_if_an_asset_changed_and_its_version_did_not(
    saved: SavedState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = read(CHECKOUT / NAME)
    sales = locked.assets["marts/sales_hourly"]
    other = replace(sales, fingerprint=replace(sales.fingerprint, digest="of other code"))
    write(tmp_path / NAME, replace(locked, assets={**locked.assets, "marts/sales_hourly": other}))
    monkeypatch.setattr(lock, "_path", lambda: tmp_path / NAME)

    done = plan(saved, tmp_path / "state.json", saved.code, "--json")
    assert (done.exit_code, [*json.loads(done.stdout)["unversioned"]]) == (7, ["marts/sales_hourly"])
    shown = plan(saved, tmp_path / "state.json", saved.code)
    assert shown.exit_code == 7
    assert "marts/sales_hourly: code that it refers to changed and code_version is still" in " ".join(
        shown.stdout.split()
    )
    assert plan(saved, tmp_path / "state.json", saved.code, "--select", "core/orders").exit_code == 0


def a_plan() -> CodePlan:
    days = ["2026-10-03", "2026-10-02", "2026-10-01"]
    first = [Rebuild("core/a", day, "code version 1 -> 2") for day in days]
    after = [Rebuild("marts/b", day, "after core/a", certain=False, after=(("core/a", day),)) for day in days]
    return CodePlan(
        [AssetPlan("core/a", "", first, partitions=days[::-1]), AssetPlan("marts/b", "", after, partitions=days[::-1])]
    )


def test_plan_lists_partitions_oldest_first_in_json() -> None:
    one, other = plan_view.as_dict(a_plan())["assets"]
    assert one["partitions"] == ["2026-10-01", "2026-10-02", "2026-10-03"] == other["partitions"]
    assert (one["indirect"], other["indirect"]) == (False, True)


def test_plan_names_no_changed_code_of_an_added_asset() -> None:
    moved = {key: [MovedDefinition(f"{key}.py: f()", ())] for key in ("core/a", "marts/b")}
    plan = replace(a_plan(), assets=[AssetPlan("core/a", "added"), AssetPlan("marts/b", "")], moved=moved)
    console = Console(width=80, record=True)
    console.print(plan_view.told(plan))
    text = console.export_text()
    assert "core/a: added" in text and "core/a.py" not in text and "marts/b.py: f() changed: affects marts/b" in text
    assert "no partition would run" in text and "nothing to do" not in text, "a refusal may follow"


def test_plan_lists_indirect_rebuilds_separately() -> None:
    console = Console(width=80, record=True)
    console.print(plan_view.told(a_plan()))
    text = console.export_text()
    assert (
        text.index("core/a") < text.index("runs that follow if the rows of their inputs change") < text.index("marts/b")
    )


ASKS = """
import sys
from types import SimpleNamespace
from dagster_tidemark.cli import plan_apply, plan_view
from dagster_tidemark.cli.app import app
from dagster_tidemark.local.platform import instance_lock
plan_view.show = lambda *_, **__: SimpleNamespace(has_work=False)
instance_lock.take_environment = lambda settings: settings
plan_apply.apply = lambda *_: print("DEPLOYED")
app(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("answer", "more", "code"), sample([("y\n", [], 0), ("n\n", [], 1), ("", ["--yes"], 0)], ("n\n", [], 1))
)
def test_plan_apply_asks_before_it_deploys_on_a_terminal(answer: str, more: list[str], code: int) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", ASKS, "plan", "--apply", *more],
            stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=CHECKOUT, text=True,
        )  # fmt: skip
        os.write(ours, answer.encode())
        said, _ = process.communicate(timeout=120)
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == code, said
    assert ("DEPLOYED" in said) is (code == 0)
    assert ("Deploy this code?" in said) is not bool(more)


def test_plan_apply_deploys_without_a_question_outside_a_terminal() -> None:
    done = run_python(["-c", ASKS, "plan", "--apply"], cwd=CHECKOUT)
    assert done.returncode == 0 and "DEPLOYED" in done.stdout, done.stdout + done.stderr
