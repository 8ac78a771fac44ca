"""`tidemark maintain` is killed at each boundary of each action: no live file is lost, and the next run continues."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

from dagster import DagsterInstance

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import WAIVERS
from dagster_tidemark.maintenance.maintained_tables import save_upkeep, saved_upkeep
from dagster_tidemark.settings import MaintenanceBoundary, Settings
from tests.proof.conftest import Report
from tests.tidemark.maintenance.conftest import appended

ACTIONS = (1, 2, 3)


def test_kill_at_any_boundary_of_maintenance_removes_no_live_file(
    spark_server: Settings, tmp_path: Path, report: Report
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    settings = spark_server.model_copy(update={"dagster_home": home, "code_location": "tests.toys"})
    cells, lost = 0, 0
    for boundary, number in product(get_args(MaintenanceBoundary), ACTIONS):
        appended(settings, WAIVERS, [{"asset": f"{boundary} {number}", "reason": str(n)} for n in range(6)])
        before = rows(settings)
        died = maintain(settings, TIDEMARK_KILL_AT=f"{boundary}:{number}")
        assert died.returncode == -9, died.stderr
        cells += 1
        lost += sum(not path.exists() for path in live_files(settings))
        assert rows(settings) == before
        end_rests(settings)
    last = maintain(settings)
    assert last.returncode == 0 and rows(settings) == before, last.stderr
    report("maintenance_kills", {"kills": cells, "live files lost": lost, "the run after them": last.stdout.strip()})
    assert lost == 0


def maintain(settings: Settings, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "dagster_tidemark.cli.app", "maintain", WAIVERS.name]
    return subprocess.run(
        command,
        env=os.environ | settings.exports() | variables,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )


def end_rests(settings: Settings) -> None:
    """An action that was killed rests for minutes, which the proof does not wait for."""
    with DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        [upkeep] = saved_upkeep(instance, settings.code_location, [WAIVERS.name]).values()
        last = {action: replace(done, failures=0) for action, done in upkeep.last.items()}
        save_upkeep(instance, settings.code_location, WAIVERS.name, replace(upkeep, last=last))


def rows(settings: Settings) -> list[tuple[str, str]]:
    found = Appendable(open_lake(settings), WAIVERS).rows().to_pylist()
    return sorted((row["asset"], row["reason"]) for row in found)


def live_files(settings: Settings) -> set[Path]:
    found = open_lake(settings).load_table(WAIVERS.name)
    head = found.current_snapshot()
    assert head is not None
    data = [task.file.file_path for task in found.scan().plan_files()]
    metadata = [found.metadata_location, head.manifest_list, *(m.manifest_path for m in head.manifests(found.io))]
    return {Path(path.removeprefix("file:")) for path in (*data, *metadata)}
