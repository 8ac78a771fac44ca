"""`tidemark lock`: what each command prints, writes and ends with; and the toy location, locked as it is."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner, Result

from dagster_tidemark import location
from dagster_tidemark.cli import lock
from dagster_tidemark.cli.app import app
from dagster_tidemark.code_versions.fingerprint import Fingerprint
from dagster_tidemark.code_versions.lock_file import Asset, Lock, read, write

BEFORE = {
    "core/orders": Asset("3", Fingerprint("aaaa", {"orders.py: best()": "1"})),
    "marts/sales": Asset("1", Fingerprint("bbbb", {"sales.py: sales()": "1"})),
}
FORGOTTEN = Asset("3", Fingerprint("cccc", {"orders.py: best()": "2"}))
RAISED = Asset("2", Fingerprint("dddd", {"sales.py: sales()": "2"}))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "code-versions.lock"
    write(found, Lock(BEFORE))
    monkeypatch.setattr(lock, "_path", lambda: found)
    return found


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> dict[str, Asset]:
    """The assets of the code location."""
    assets = dict(BEFORE)
    monkeypatch.setattr(lock, "_assets", lambda: assets)
    return assets


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lock", *arguments])


def test_lock_check_without_differences_exits_with_0(path: Path, now: Mapping[str, Asset]) -> None:
    done = run("check")

    assert done.exit_code == 0
    assert "2 assets" in done.stdout


def test_lock_check_reports_differences_and_writes_nothing(path: Path, now: dict[str, Asset]) -> None:
    now |= {"core/orders": FORGOTTEN, "marts/sales": RAISED}
    held = path.read_text()
    done = run("check")

    assert done.exit_code == 2
    assert "core/orders: orders.py: best() changed" in done.stdout
    assert "marts/sales: code_version is" in done.stdout
    assert "2 of 2 assets differ" in done.stderr
    assert path.read_text() == held


def test_lock_check_prints_a_json_list(path: Path, now: dict[str, Asset]) -> None:
    now["core/orders"] = FORGOTTEN
    [found] = json.loads(run("check", "--json").stdout)

    assert found["asset"] == "core/orders"
    assert found["difference"] == "forgotten"
    assert found["definitions"] == ["orders.py: best()"]


def test_lock_update_records_a_raised_version_and_refuses_a_forgotten_one(path: Path, now: dict[str, Asset]) -> None:
    now |= {"core/orders": FORGOTTEN, "marts/sales": RAISED}
    done = run("update")

    assert done.exit_code == 2
    assert "marts/sales: raised, recorded" in done.stdout
    assert read(path).assets == {"core/orders": BEFORE["core/orders"], "marts/sales": RAISED}


def test_lock_mark_current_accepts_a_changed_asset(path: Path, now: dict[str, Asset]) -> None:
    now["core/orders"] = FORGOTTEN
    done = run("mark-current", "core/orders", "marts/sales")

    assert done.exit_code == 0
    assert "marts/sales: its code has not changed" in done.stdout
    assert run("check").exit_code == 0


def test_lock_mark_current_without_names_accepts_code_changes_but_records_no_version(
    path: Path, now: dict[str, Asset]
) -> None:
    now |= {"core/orders": FORGOTTEN, "marts/sales": RAISED}
    run("mark-current")

    assert read(path).assets == {"core/orders": FORGOTTEN, "marts/sales": BEFORE["marts/sales"]}


def test_lock_mark_current_refuses_an_unknown_asset(path: Path, now: dict[str, Asset]) -> None:
    done = run("mark-current", "core/order")

    assert done.exit_code == 2
    assert "there is no asset core/order; known assets: core/orders, marts/sales" in done.stderr


def test_lock_commands_succeed_on_the_toy_code_location(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "tests.toys")

    path.unlink()

    assert run("update").exit_code == 0
    assert run("mark-current").exit_code == 0
    assert run("check").exit_code == 0
    assert "tests/toys/schemas.py: order_lines()" in read(path).assets["core/orders"].fingerprint.definitions


def test_plan_mark_current_updates_the_lock_file(path: Path, now: dict[str, Asset]) -> None:
    now["core/orders"] = FORGOTTEN
    assert [*lock.unseen_changes(())[0]] == ["core/orders"]
    done = CliRunner().invoke(app, ["plan", "--mark-current"])

    assert done.exit_code == 0, done.output
    assert read(path).assets["core/orders"] == FORGOTTEN
    assert lock.unseen_changes(()) == ({}, [])
    assert CliRunner().invoke(app, ["plan", "--mark-current", "--json"]).exit_code == 1


def test_plan_notes_lines_that_read_an_unknown_file(path: Path, now: dict[str, Asset]) -> None:
    of = BEFORE["marts/sales"].fingerprint
    now["marts/sales"] = Asset("1", replace(of, undecided=("sales.py: sales(), line 3: open(name)",)))
    changed, [note] = lock.unseen_changes(())
    assert not changed
    assert note.startswith("sales.py: sales(), line 3: open(name): reads a file")
    assert note.endswith("(marts/sales)")


def test_changed_assets_without_an_entry_in_the_lock_file_are_named(path: Path, now: dict[str, Asset]) -> None:
    now |= {"marts/new": FORGOTTEN, "marts/other": FORGOTTEN}
    changed, _ = lock.unseen_changes({"marts/new", "core/orders"})

    assert [*changed] == ["marts/new"], "the lock file has core/orders as it is now"
    assert changed["marts/new"] == (
        'marts/new: its code differs from the deployed code and code_version is still "3"; raise it, or '
        "run `tidemark lock update` if the change is harmless"
    )


def test_plan_mark_current_updates_only_selected_assets(
    path: Path, now: dict[str, Asset], monkeypatch: pytest.MonkeyPatch
) -> None:
    now |= {"core/orders": FORGOTTEN, "marts/sales": Asset("1", RAISED.fingerprint)}
    made = [dg.asset(key=name.split("/"))(lambda: None) for name in BEFORE]
    defs = dg.Definitions(assets=[dg.AssetSpec("raw"), *made])
    monkeypatch.setattr(location, "definitions", lambda settings: defs)
    done = CliRunner().invoke(app, ["plan", "--mark-current", "--select", "core/orders"])

    assert done.exit_code == 0, done.output
    assert read(path).assets["core/orders"] == FORGOTTEN
    assert read(path).assets["marts/sales"] == BEFORE["marts/sales"]
    done = CliRunner().invoke(app, ["plan", "--mark-current", "--select", "raw"])
    assert done.exit_code == 1, done.output  # 2 would be something to do
    assert read(path).assets["marts/sales"] == BEFORE["marts/sales"]
