"""A location that knows nothing of Tidemark gets a feed and two tables on a live platform, and loses them again.

`dagster dev` runs the location with an instance that retries runs. The lines of `docs/existing-location.md` are
appended to its file, and the code is reloaded as a person reloads it in the UI. Belongs here: the appended lines, what
a person does, and what is compared. Does not belong here: the location (`tests.proof.strangers_location`).
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.settings import Settings
from tests.checkout import CHECKOUT
from tests.conftest import free_port
from tests.live.ui import Ui
from tests.live.waiting import eventually
from tests.proof.conftest import Report

DAYS = ("2026-11-25", "2026-11-26", "2026-11-27")
ADDED = '''
from dagster_tidemark import LINEAGE, Feed, Grain, Table, extend, feed_assets, load_settings, table_asset

LANDING = {"pilot_id": "bigint", "minutes": "int"}
COLUMNS = {"day": "date"} | LANDING | LINEAGE
PILOTAGE = Table("core.pilotage", COLUMNS, partitioned_by="day", row_key=("day", "pilot_id"))
PILOTAGE_FEED = Feed("pilotage", "pilotage/", Grain.DAY, LANDING, required=("pilot_id",))
pilotage = feed_assets(PILOTAGE_FEED, PILOTAGE, partitions_def=DAYS, tags={"tidemark/pace": "asap"})
PER_DAY = Table("marts.calls", {"day": "date", "calls": "bigint"}, partitioned_by="day", row_key=("day",))


@table_asset(PER_DAY, ins={"calls": "core/calls"}, partitions=DAYS, fresh=timedelta(hours=1), code_version="1")
def calls_per_day(context: dg.AssetExecutionContext, calls: Any, tidemark_spark: dg.ResourceParam[Any]) -> Any:
    """One row per day: its calls."""
    assert isinstance(calls, list), calls
    return tidemark_spark.session.sql(f"SELECT DATE '{context.partition_key}' AS day, {len(calls)}L AS calls")


ours = [calls_per_day, *pilotage]
defs = extend(defs, load_settings(), assets=ours, tables=[PILOTAGE, PER_DAY], feeds=[PILOTAGE_FEED])
'''
_HOME = """
telemetry: {enabled: false}
concurrency: {runs: {max_concurrent_runs: 3}}
run_retries: {enabled: true, max_retries: 2}
sensors: {use_threads: true, num_workers: 4}
"""
_STATE = """query State { workspaceOrError { ... on Workspace { locationEntries { name loadStatus
    locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
_CODE = "flows.py"


class Harbor:
    """The location under `dagster dev`, as its engineer works with it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.ui, self._folder, self._plain = Ui(port), folder, (folder / _CODE).read_text()
        self.location = _CODE

    def loaded(self) -> None:
        """Assert that the code is loaded without an error."""
        try:
            entries = self.ui.query(_STATE)["workspaceOrError"]["locationEntries"]
        except OSError as error:
            raise AssertionError(error) from error
        assert entries and all(entry["loadStatus"] == "LOADED" for entry in entries), entries
        said = [entry["locationOrLoadError"] for entry in entries]
        if any(each["__typename"] == "PythonError" for each in said):
            pytest.fail(str(said))
        self.location = entries[0]["name"]

    def deploy(self, added: str = "") -> None:
        """Change the code, and press "Reload all"."""
        (self._folder / _CODE).write_text(self._plain + added)
        self.ui.reload()
        eventually(self.loaded, seconds=300)

    def sensors(self) -> dict[str, str]:
        """Return the state of each sensor."""
        return {name: found["sensorState"]["status"] for name, found in self.ui.sensors(self.location).items()}

    def errors(self) -> dict[str, str]:
        """Return the first error of each sensor that has one."""
        found = self.ui.sensors(self.location)
        failed = {n: [t["error"]["message"] for t in s["sensorState"]["ticks"] if t["error"]] for n, s in found.items()}
        return {name: messages[0] for name, messages in failed.items() if messages}

    def is_idle(self) -> None:
        """Assert that no run is under way."""
        assert not self.ui.unfinished()

    def built(self, *assets: str, partitions: tuple[str, ...] | None = None) -> None:
        """Press "Materialize" for several partitions, and wait for the end."""
        self.ui.backfilled(self.ui.backfill(*assets, partitions=partitions), seconds=600)


@contextmanager
def harbor(folder: Path, environment: Mapping[str, str]) -> Iterator[Harbor]:
    """Run the location under `dagster dev` in a home of its own until the block ends."""
    home, port = folder / "home", free_port()
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(_HOME)
    shutil.copy(CHECKOUT / "tests" / "proof" / "strangers_location.py", folder / _CODE)
    variables = os.environ | environment | {"DAGSTER_HOME": str(home), "HARBOR_FOLDER": str(folder)}
    command = [sys.executable, "-m", "dagster", "dev", "-f", _CODE, "-h", "127.0.0.1", "-p", str(port)]
    with (folder / "dev.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=log, stderr=log, start_new_session=True, preexec_fn=_with_signals
        )
        try:
            found = Harbor(folder, port)
            eventually(found.loaded, seconds=300)
            yield found
        finally:
            process_tree.end_group(process, seconds=20)


def _with_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _rows(settings: Settings, table: str) -> int:
    lake = open_lake(settings)
    return lake.load_table(table).scan().to_arrow().num_rows if lake.table_exists(table) else 0


def test_strangers_location_gets_a_feed_and_tables_and_loses_them_again(
    tmp_path: Path, cloud: Settings, spark_server: Settings, report: Report
) -> None:
    bucket, begun = boto3.client("s3", **cloud.aws_options()), time.monotonic()
    settings = spark_server.model_copy(update={"contract_scale": 0.0001})
    figures: dict[str, object] = {}

    def put(day: str, name: str, pilot: int) -> None:
        body = f"pilot_id,minutes\n{pilot},10\n{pilot + 1},20\n"
        bucket.put_object(Bucket=cloud.landing_bucket, Key=f"pilotage/dt={day}/{name}.csv", Body=body.encode())

    def has(table: str, rows: int) -> None:
        def counted() -> None:
            assert _rows(settings, table) == rows, f"{table} has {_rows(settings, table)} rows: {ours.errors()}"

        started = time.monotonic()
        eventually(counted, seconds=600)
        figures[f"{table}, {rows} rows, after seconds"] = round(time.monotonic() - started, 1)

    with harbor(tmp_path / "harbor", settings.exports() | {"TIDEMARK_START_DATE": "2026-11-23"}) as ours:
        ours.built("raw/port_calls", "core/calls", partitions=DAYS)
        before = ours.sensors()
        ours.deploy(ADDED)
        after = ours.sensors()
        assert {name: state for name, state in after.items() if name in before} == before
        assert all(name.startswith("tidemark_") for name in after.keys() - before.keys())
        for number, day in enumerate(DAYS):
            put(day, "a", 10 * number)
        has("core.pilotage", 6)
        has("marts.calls", 3)
        ours.ui.succeeded(ours.ui.materialize("rates"), seconds=300)
        ours.ui.succeeded(ours.ui.materialize("marts/calls", DAYS[0]), seconds=300)
        ours.built("raw/port_calls", "core/calls", "marts/calls", partitions=DAYS)
        ours.built("core/pilotage", partitions=DAYS)
        ours.built("day_port", partitions=(f"{DAYS[0]}|odense north",))
        ours.deploy(ADDED)
        put(DAYS[0], "b", 77)
        has("core.pilotage", 8)
        eventually(ours.is_idle, seconds=600)
        assert not ours.errors()
        runs = ours.ui.runs()
        figures["runs"] = {status: sum(run.status == status for run in runs) for status in {run.status for run in runs}}
        of_ours = [run for run in runs if run.assets & {"core/pilotage", "marts/calls"}]
        by_sensor = [run for run in of_ours if run.tags.get("tidemark/requested-by")]
        assert {run.status for run in runs} == {"SUCCESS"}, [
            ours.ui.failures(r.id) for r in runs if r.status == "FAILURE"
        ]
        assert by_sensor and {run.tags["dagster/max_retries"] for run in by_sensor} == {"0"}
        ours.deploy()
        assert ours.sensors() == before
        ours.ui.succeeded(ours.ui.materialize("rates"), seconds=300)
        ours.built("raw/port_calls", "core/calls", partitions=DAYS[:1])
        assert not ours.errors()
    figures["rows left"] = {table: _rows(settings, table) for table in ("core.pilotage", "marts.calls")}
    report("strangers", figures | {"seconds": round(time.monotonic() - begun)})
    assert figures["rows left"] == {"core.pilotage": 8, "marts.calls": 3}
