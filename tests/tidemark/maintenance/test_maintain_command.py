"""`tidemark maintain --dry-run`, and the lines of `status`, without Spark."""

import time
from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test
from typer.testing import CliRunner, Result

from dagster_tidemark import location
from dagster_tidemark.cli.app import app
from dagster_tidemark.lakehouse.append import TableCommit
from dagster_tidemark.lakehouse.loading.quarantine_table import WAIVERS
from dagster_tidemark.lakehouse.maintenance.due import Action, DueAction
from dagster_tidemark.lakehouse.maintenance.maintenance_table import MAINTENANCE
from dagster_tidemark.maintenance.maintenance_overview import MaintenanceOverview, keep_overview, kept_overview
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import MAINTENANCE as MAINTENANCE_TAG
from tests.tidemark.maintenance.conftest import appended


@pytest.fixture
def at(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    for name, value in settings.exports().items():
        monkeypatch.setenv(name, value)
    return settings


def maintain(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["maintain", *arguments])


def test_dry_run_prints_what_would_be_done_and_names_an_unreadable_table(at: Settings) -> None:
    assert (maintain("--dry-run").output, maintain("--dry-run").exit_code) == ("nothing to do\n", 0)
    made = appended(at, WAIVERS, [{"asset": "core/orders", "reason": str(n)} for n in range(6)])
    lines = maintain("ops/waivers", "--dry-run").output.splitlines()
    assert lines[0] == "ops.waivers: would rewrite_data_files: 6 small files"
    assert all(line.startswith("ops.waivers: would ") for line in lines)
    made.commit(TableCommit(marks={"write.target-file-size-bytes": "large"}))
    found = maintain("--dry-run")
    assert found.exit_code == 1 and "ops.waivers: ValueError" in found.output, "it could not decide"


def test_unknown_table_and_a_run_under_way_are_refused(at: Settings) -> None:
    found = maintain("core.nowhere", "--dry-run")
    assert found.exit_code == 2 and "there is no table core.nowhere; known tables: " in found.output
    with DagsterInstance.get() as instance:
        run = create_run_for_test(instance, status=DagsterRunStatus.STARTED, tags={MAINTENANCE_TAG: "elsewhere"})
    found = maintain(MAINTENANCE.name)
    assert found.exit_code == 1 and f"run {run.run_id} maintains tables: wait for its end" in found.output


def test_overview_shows_five_tables_and_each_unreadable_one() -> None:
    due = tuple(DueAction(f"core.t{n}", Action.COMPACT, "60 small files") for n in range(7))
    waits = DueAction("core.t0", Action.COMPACT, "60 small files", waits="run 4711 builds the table")
    shown = list(
        MaintenanceOverview(time.time(), "2 runs wait in the queue", (waits, *due[1:]), {"a.b": "gone"}).lines()
    )
    assert shown[0] == (
        "maintenance of core.t0: would rewrite_data_files (60 small files); not now: run 4711 builds the table"
    )
    assert shown[1].endswith("not now: 2 runs wait in the queue")
    assert shown[5:] == [
        "maintenance is due for 2 more tables: core.t5, core.t6",
        "maintenance of a.b: unknown: gone",
    ]


def test_old_overview_is_not_shown(instance: DagsterInstance) -> None:
    for age, is_shown in ((800, True), (1000, False)):
        keep_overview(instance, "tests.toys", MaintenanceOverview(time.time() - age, "", unreadable={"a.b": "gone"}))
        assert (kept_overview(instance, "tests.toys") is not None) is is_shown


def test_nothing_is_removed_while_a_module_is_broken(at: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    appended(at, WAIVERS, [{"asset": "core/orders", "reason": str(n)} for n in range(6)])
    monkeypatch.setattr(location, "broken_parts", lambda _: ("streams/a.py:1: no such name",))
    lines = maintain("ops/waivers", "--dry-run").output.splitlines()
    [orphans] = [line for line in lines if "would remove_orphan_files" in line]
    assert orphans.endswith("is broken, whose needs are unknown: streams/a.py:1: no such name")
    assert "ops.waivers: would rewrite_data_files: 6 small files" in lines
