"""The contestants: this project and the two baselines, each with its own bucket, catalog and Dagster.

All run on one machine at once. They share one local cloud and one set of jars, and work one at a time.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import EqualTo

from dagster_tidemark.catalog_options import sqlalchemy_uri
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.local.platform.supervision import memory_mb
from tests.checkout import CHECKOUT
from tests.conftest import free_port
from tests.live.platform import Platform
from tests.live.ui import Ui
from tests.live.waiting import eventually


@dataclass
class Contestant:
    """A code location that turns files on a bucket into core.orders."""

    name: str
    bucket: str
    catalog: Catalog
    processes: list[psutil.Process] = field(default_factory=list)

    def memory_mb(self) -> int:
        """Return the memory of its processes in MB. Shared memory counts proportionally."""
        return sum(memory_mb(process.pid) for process in self.processes)


class Baseline:
    """`dagster dev` with `bench/stock` or `bench/tuned`."""

    def __init__(self, name: str, platform: Platform, state: Path) -> None:
        self.name = name
        home = state / name
        home.mkdir(parents=True)
        shutil.copy(CHECKOUT / "bench" / name / "dagster.yaml", home)
        catalog = f"jdbc:sqlite:{home}/catalog.db?journal_mode=WAL&busy_timeout=30000"
        self.port = free_port()
        # Spark clients in this process set variables, which would redirect the sessions of a baseline's runs.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        self.environment = {
            name: value for name, value in {**inherited, **platform.environment}.items() if name != "SPARK_REMOTE"
        } | {
            "DAGSTER_HOME": str(home),
            "TIDEMARK_LANDING_BUCKET": name,
            "TIDEMARK_READINGS_QUEUE": f"{name}-readings",
            "TIDEMARK_ALERTS_QUEUE": f"{name}-alerts",
            "TIDEMARK_CATALOG_URI": catalog,
            "TIDEMARK_WAREHOUSE": str(home / "warehouse"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(CHECKOUT),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        (home / "warehouse").mkdir()
        self.catalog = load_catalog("lake", type="sql", uri=sqlalchemy_uri(catalog), warehouse=str(home / "warehouse"))
        self._process: subprocess.Popen[bytes] | None = None
        self._home = home

    def start(self) -> Contestant:
        """Start it and wait until its UI answers."""
        with dg.DagsterInstance.from_config(str(self._home)):
            pass  # created here first: two processes that open a new home at the same time break it
        workspace = CHECKOUT / "bench" / self.name / "workspace.yaml"
        with (self._home / "dagster.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dagster", "dev", "-w", workspace, "-h", "127.0.0.1", "-p", str(self.port)],
                cwd=self._home,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ui = Ui(self.port)
        eventually(lambda: _answers(ui), seconds=120)
        return Contestant(self.name, self.name, self.catalog, [psutil.Process(self._process.pid)])

    def stop(self) -> None:
        """End it with all processes that it started."""
        if self._process is not None:
            mine = psutil.Process(self._process.pid).children(recursive=True)
            process_tree.end_group(self._process)
            process_tree.end(lambda: [p for p in mine if p.is_running() and p.status() != psutil.STATUS_ZOMBIE])


def ours(platform: Platform) -> Contestant:
    """This project, as `make dev FEED=none` starts it."""
    return Contestant("tidemark", "landing", platform.catalog, [platform.processes()[0]])


def rows_of(contestant: Contestant, hour: datetime) -> Any:
    """Return the sorted rows of an hour of core.orders, without the columns that depend on the bucket."""
    of_hour = EqualTo("hour", f"{hour:%Y-%m-%dT%H}:00:00+00:00")
    table = contestant.catalog.load_table("core.orders").scan(row_filter=of_hour).to_arrow()
    kept = [c for c in table.column_names if c not in ("source_version", "arrived_at", "loaded_by")]
    return table.select(kept).sort_by([(c, "ascending") for c in ("hour", "order_id", "line_number")])


def _answers(ui: Ui) -> None:
    try:
        ui.runs()
    except OSError as error:
        raise AssertionError(f"{ui.url} does not answer") from error
