"""Two deployments on one machine: a table of the second follows one of the first within its contract.

Each has a home, a daemon and a code server of its own. They share nothing but a queue on a server of SQS's protocol.
The first is stopped for a minute, then the second; both times new data arrives at the beginning of the minute.
`STOPPED_SECONDS` sets another length. Does not belong here: the locations (`tests.proof.two_deployments_location`).
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import yaml

from dagster_tidemark.engine.lag_history import lags
from dagster_tidemark.local.host import process_tree
from dagster_tidemark.settings import LOCAL_KEY, Settings
from dagster_tidemark.tags import DATA_VERSION
from tests.checkout import CHECKOUT
from tests.live.waiting import eventually, holds_for
from tests.proof import two_deployments_location as location
from tests.proof.conftest import Report

STOPPED = float(os.environ.get("STOPPED_SECONDS", "60"))
_FILE = CHECKOUT / "tests" / "proof" / "two_deployments_location.py"
_SENSORS = {"finance": "listener_to_sales", "sales": "asset_events"}
_FOLLOWS_WITHIN = 2 * location.CONTRACT.total_seconds() + STOPPED  # then it counts as lost


@dataclass
class Deployment:
    """A deployment with a home of its own. It can be stopped and started again."""

    name: str
    folder: Path
    environment: dict[str, str]
    instance: dg.DagsterInstance
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self) -> None:
        """Start the daemon, which starts its code server, and wait until the sensor of the queue has ticked."""
        begun = time.time()
        command = [sys.executable, "-W", "ignore", "-m", "dagster._daemon", "run", "-f", str(_FILE)]
        with (self.folder / "daemon.log").open("ab") as log:
            started = subprocess.Popen(
                command, cwd=CHECKOUT, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(started)
        eventually(lambda: self._ticks(begun), seconds=300)

    def stop(self) -> None:
        """End the daemon, its code server and its runs."""
        while self.processes:
            process_tree.end_group(self.processes.pop(), seconds=5)

    def _ticks(self, begun: float) -> None:
        states = {state.name: state.instigator_data for state in self.instance.all_instigator_state()}
        last = getattr(states.get(_SENSORS[self.name]), "last_tick_timestamp", None)
        log = (self.folder / "daemon.log").read_text(errors="replace")
        assert last and last > begun, f"{_SENSORS[self.name]} of {self.name} has not ticked:\n{log[-2000:]}"

    def quote(self, day: str) -> None:
        """New quotes of a day arrive."""
        tags = {DATA_VERSION: f"{time.time_ns()}"}
        said = dg.AssetObservation(location.QUOTES.split("/"), partition=day, tags=tags)
        self.instance.report_runless_asset_event(said)

    def built(self, asset: str, day: str) -> list[dg.EventLogRecord]:
        """The materializations of a partition, the newest first."""
        wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset), asset_partitions=[day])
        return list(self.instance.fetch_materializations(wanted, limit=10).records)


@contextmanager
def deployment(name: str, folder: Path, cloud: Settings) -> Iterator[Deployment]:
    """A deployment that is not started yet. Nothing of it runs in the end."""
    home = folder / name
    (home / "warehouse").mkdir(parents=True)
    configuration = {"telemetry": {"enabled": False}, "concurrency": {"runs": {"max_concurrent_runs": 3}}}
    (home / "dagster.yaml").write_text(yaml.safe_dump(configuration))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        made = Deployment(name, home, _variables(name, home, cloud), instance)
        try:
            yield made
        finally:
            made.stop()


def _variables(name: str, home: Path, cloud: Settings) -> dict[str, str]:
    own = {
        "state_dir": home,
        "catalog_uri": f"jdbc:sqlite:{home}/catalog.db",
        "warehouse": str(home / "warehouse"),
        "dagster_home": home,
        "code_location": name,
        "spark_remote": None,  # its assets need no Spark, and nothing probes for it
    }
    found = os.environ | cloud.model_copy(update=own).exports() | {"DEPLOYMENT": name}
    return {variable: value for variable, value in found.items() if variable != "SPARK_REMOTE"}


def test_table_follows_another_deployment_also_after_either_was_stopped(
    tmp_path: Path, cloud: Settings, report: Report
) -> None:
    begun, days = time.time(), iter(location.DAYS.get_partition_keys())
    told: dict[str, dict[str, Any]] = {}
    with deployment("finance", tmp_path, cloud) as first, deployment("sales", tmp_path, cloud) as second:
        first.start()
        second.start()

        steady = [next(days) for _ in range(5)]
        for day in steady:
            first.quote(day)
            time.sleep(7)
        told["both run"] = _followed(first, second, steady)

        away = [next(days) for _ in range(2)]
        first.stop()
        # A person reports an event in the UI, and quotes arrive, which only the restarted deployment can convert.
        said = dg.AssetMaterialization(location.RATES.split("/"), partition=away[0], metadata={"extras": _BY_HAND})
        first.instance.report_runless_asset_event(said)
        first.quote(away[1])
        time.sleep(STOPPED)
        first.start()
        told["first stopped"] = _followed(first, second, away)

        away = [next(days) for _ in range(2)]
        second.stop()
        for day in away:
            first.quote(day)
        time.sleep(STOPPED)
        second.start()
        told["second stopped"] = _followed(first, second, away)

        every = list(location.DAYS.get_partition_keys())[:9]
        builds = holds_for(lambda: [len(second.built(location.CONVERTED, day)) for day in every], seconds=20)
        own = lags(second.instance, location.sales(cloud).resolve_asset_graph(), [(begun, time.time())])
    figures = {
        "contract, s": location.CONTRACT.total_seconds(),
        "stopped, s": STOPPED,
        "seconds from the first deployment's event to the second's table": told,
        "partitions": len(every),
        "builds of the second's table": sum(builds),
        "messages left in the queue and its dead letters": _left(cloud),
        "share of time within the contract, as ops/freshness counts it": [each.lag.within for each in own],
        "longest lag, as ops/freshness counts it, s": [round(each.lag.longest, 1) for each in own],
        "seconds": round(time.time() - begun),
    }
    report("two-deployments", figures)
    late = [phase for phase, found in told.items() if max(found["lags"]) > location.CONTRACT.total_seconds()]
    assert late == [], told
    assert all(found["with the extras of its event"] for found in told.values()), told
    assert builds == [1] * len(every), "an event was lost or counted twice"
    assert _left(cloud) == 0
    assert [each.lag.within for each in own] == [1.0]


_BY_HAND = {"built by": "a person"}


def _followed(first: Deployment, second: Deployment, days: Sequence[str]) -> dict[str, Any]:
    """Wait until the second deployment has converted some days, and return the lags in seconds."""

    def check() -> None:
        lacking = [day for day in days if not second.built(location.CONVERTED, day)]
        at_first = [day for day in days if not first.built(location.RATES, day)]
        assert not lacking, f"not converted: {lacking}; without rates in the first deployment: {at_first}"

    eventually(check, seconds=_FOLLOWS_WITHIN)
    found, extras = list[float](), list[bool]()
    for day in days:
        (rates,), (sold,) = first.built(location.RATES, day), second.built(location.CONVERTED, day)
        assert rates.asset_materialization is not None and sold.asset_materialization is not None
        sent = rates.asset_materialization.metadata["extras"].value
        read = sold.asset_materialization.metadata["rates built by"].value
        extras.append(isinstance(sent, dict) and sent["built by"] == read)
        found.append(round(sold.timestamp - rates.timestamp, 1))
    return {"lags": found, "with the extras of its event": all(extras)}


def _left(cloud: Settings) -> int:
    keys = {"aws_access_key_id": LOCAL_KEY, "aws_secret_access_key": LOCAL_KEY}
    sqs = boto3.client("sqs", **(cloud.aws_options() | keys))
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    urls = sqs.list_queues(QueueNamePrefix=location.QUEUE)["QueueUrls"]
    held = [sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"] for url in urls]
    return sum(int(number) for attributes in held for number in attributes.values())
