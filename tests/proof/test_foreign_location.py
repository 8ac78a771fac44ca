"""300 assets of an existing location ask for the same, and run the same, with and without Tidemark's beside them.

`FOREIGN_SECONDS` sets how long two daemons run, one on each form of the location; by default an hour. Belongs here:
what lands and what is compared. Does not belong here: the location (`tests.proof.foreign_location`).
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import dagster as dg
import pytest
import yaml

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.settings import Settings
from tests.checkout import CHECKOUT
from tests.live.waiting import eventually
from tests.proof import foreign_location as foreign
from tests.proof.conftest import Report
from tests.tidemark.engine.evaluations import evaluations

DAYS, SECONDS, EVERY = 7, float(os.environ.get("FOREIGN_SECONDS", "3600")), 300.0
_LOCATION = CHECKOUT / "tests" / "proof" / "foreign_location.py"
_ASKED_BY = ("dagster/sensor_name", "dagster/schedule_name")
_OURS = {"core/trips", "marts/trip_counts", "raw/trips", "ops/incidents", "ops/landing_events", "ops/maintenance"}


def test_extended_location_requests_the_same_runs_for_seven_days(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_START_DATE", "2026-11-02")
    asked = {with_ours: _asked(with_ours) for with_ours in (False, True)}
    figures = {"assets": foreign.ASSETS, "days": DAYS, "ticks": DAYS * 24, "requests": len(asked[False])}
    report("foreign-conditions", figures)
    assert asked[False] == asked[True] and len(asked[False]) > 1000


def _asked(with_ours: bool) -> list[tuple[int, str, str | None]]:
    """Return what the location's conditions ask for, an hour per tick. Half of it is built before the next tick."""
    theirs = foreign.their_location()
    definitions = foreign.with_ours(theirs) if with_ours else theirs
    names = [f"theirs_{number}" for number in range(foreign.ASSETS - foreign.ROOTS)]
    begin = datetime.fromisoformat("2026-11-25T00:05+00:00")
    times = [begin + tick * timedelta(hours=1) for tick in range(DAYS * 24)]
    found: list[tuple[int, str, str | None]] = []
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("customers", ["ada", "bob"])
        for tick, wanted in enumerate(evaluations(definitions, instance, names, times)):
            found += [(tick, *each) for each in wanted]
            dice = random.Random(tick)
            for name, partition in dice.sample(wanted, (len(wanted) + 1) // 2):
                instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=partition))
            root = dice.randrange(foreign.ROOTS)
            partition = _last_partition(root, times[tick])
            instance.report_runless_asset_event(dg.AssetMaterialization(f"root_{root}", partition=partition))
            if tick % 24 == 6:
                instance.add_dynamic_partitions("customers", [f"new {tick}"])
    return found


def _last_partition(root: int, now: datetime) -> str | None:
    partitions = foreign.PARTITIONS[root]
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        return dg.MultiPartitionKey({"day": f"{now:%Y-%m-%d}", "country": "dk"})
    return None if partitions is None else partitions.get_partition_keys(current_time=now)[-1]


@dataclass(frozen=True)
class Daemon:
    """A daemon with a home of its own on one form of the location."""

    folder: Path
    instance: dg.DagsterInstance

    def update(self, root: int, partition: str | None) -> None:
        """An asset of which the location only knows was built elsewhere."""
        self.instance.report_runless_asset_event(dg.AssetMaterialization(f"root_{root}", partition=partition))

    def built(self) -> Counter[tuple[str, str]]:
        """How often each partition of the location's own assets was built."""
        path = self.folder / "built"
        lines = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
        return Counter((asset, partition) for asset, partition, _ in lines)

    def runs(self) -> Counter[tuple[str, str]]:
        """How many runs of the location's own there were, by what asked for them and their status."""
        found: Counter[tuple[str, str]] = Counter()
        for run in self.instance.get_runs():
            assets = {key.to_user_string() for key in run.asset_selection or ()}
            if not assets or assets - _OURS:
                asked = next((run.tags[tag] for tag in _ASKED_BY if tag in run.tags), "")
                found[asked or run.job_name, run.status.value] += 1
        return found

    def is_idle(self) -> None:
        """Assert that no run is under way."""
        waiting = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
        assert self.instance.get_runs_count(dg.RunsFilter(statuses=waiting)) == 0


@contextmanager
def running(folder: Path, environment: Mapping[str, str]) -> Iterator[Daemon]:
    """Run a daemon with Dagster's own launcher, queue and executor until the block ends."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    configuration = {"telemetry": {"enabled": False}, "concurrency": {"runs": {"max_concurrent_runs": 3}}}
    (home / "dagster.yaml").write_text(yaml.safe_dump(configuration))
    variables = os.environ | environment | {"DAGSTER_HOME": str(home), "FOREIGN_FOLDER": str(folder)}
    command = [sys.executable, "-W", "ignore", "-m", "dagster._daemon", "run", "-f", str(_LOCATION)]
    with dg.DagsterInstance.from_config(str(home)) as instance, (folder / "daemon.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=CHECKOUT, env=variables, stdout=log, stderr=log, start_new_session=True)
        try:
            yield Daemon(folder, instance)
        finally:
            process_tree.end_group(process, seconds=20)


def test_extended_location_builds_the_same_beside_a_plain_daemon(
    tmp_path: Path, cloud: Settings, spark_server: Settings, report: Report
) -> None:
    extended = spark_server.exports() | {"FOREIGN_WITH": "tidemark", "TIDEMARK_START_DATE": "2026-11-02"}
    bucket = boto3.client("s3", **cloud.aws_options())
    begun, landed = time.monotonic(), 0
    with ExitStack() as stack:
        alone = stack.enter_context(running(tmp_path / "alone", {}))
        both = stack.enter_context(running(tmp_path / "both", extended))
        for daemon in (alone, both):
            eventually(lambda daemon=daemon: _ticks(daemon.instance, "theirs"), seconds=300)
        for round_ in range(max(1, int(SECONDS / EVERY))):
            root, now = round_ % foreign.ROOTS, datetime.now(UTC)
            for daemon in (alone, both):
                daemon.update(root, _last_partition(root, now))
                if round_ % foreign.ROOTS == foreign.ROOTS - 1:
                    daemon.instance.add_dynamic_partitions("customers", [f"customer {round_}"])
            rows = "".join(f"{100 * round_ + number}\n" for number in range(10))
            bucket.put_object(
                Bucket=cloud.landing_bucket,
                Key=f"trips/dt={now:%Y-%m-%d}/{round_}.csv",
                Body=f"trip_id\n{rows}".encode(),
            )
            landed += 10
            while time.monotonic() - begun < min(SECONDS, (round_ + 1) * EVERY):
                time.sleep(1)
        for daemon in (alone, both):
            eventually(daemon.is_idle, seconds=900)
        built, of_both = alone.built(), both.built()
        differing = {key for key in built | of_both if built[key] != of_both[key]}
        figures = {
            "assets": foreign.ASSETS,
            "seconds": round(time.monotonic() - begun),
            "partitions built": built.total(),
            "partitions built beside us": of_both.total(),
            "differences": {str(key): [built[key], of_both[key]] for key in sorted(differing)},
            "runs": {" ".join(key): count for key, count in sorted(alone.runs().items())},
            "runs beside us": {" ".join(key): count for key, count in sorted(both.runs().items())},
            "rows landed": landed,
        }
        report("foreign-hour", figures)
        eventually(lambda: _counted(spark_server, landed), seconds=300)
    assert built == of_both and built.total() > 50
    # Without us again: plain Dagster on the same home, and tables that pyiceberg reads.
    with running(tmp_path / "both", {}) as plain:
        before = plain.built().total()
        plain.update(0, None)
        eventually(lambda: _more(plain, before), seconds=300)
    _counted(spark_server, landed)


def _ticks(instance: dg.DagsterInstance, sensor: str) -> None:
    states = {state.name: state.instigator_data for state in instance.all_instigator_state()}
    assert getattr(states.get(sensor), "last_tick_timestamp", None), f"{sensor} has not ticked"


def _counted(settings: Settings, landed: int) -> None:
    lake = open_lake(settings)
    trips = lake.load_table("marts.trip_counts").scan().to_arrow()
    assert sum(trips["trips"].to_pylist()) == landed == lake.load_table("core.trips").scan().to_arrow().num_rows


def _more(daemon: Daemon, before: int) -> None:
    assert daemon.built().total() > before
