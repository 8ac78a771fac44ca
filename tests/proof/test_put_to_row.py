"""Seconds from a file to its row in a deployment from the files of deploy/, and where they go.

Dagster's default launcher, PostgreSQL, and a standalone Spark cluster. `FILES=3` puts fewer files.
"""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg

from dagster_tidemark.lakehouse.append import open_lake
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.deployed import Deployed, deployed
from tests.proof.test_deploy import _LINE, _settings

FILES = int(os.environ.get("FILES", "8"))
WARM = 2
"""First files, which create the tables and compile Spark's code."""
PAUSE = 12.0
TARGET = 10.0
TABLE = "core/orders"
_STEPS = {
    dg.DagsterEventType.RUN_ENQUEUED: "run requested",
    dg.DagsterEventType.RUN_STARTING: "run left the queue",
    dg.DagsterEventType.RUN_START: "process has loaded the code",
    dg.DagsterEventType.STEP_START: "step began",
    dg.DagsterEventType.ASSET_MATERIALIZATION: "table committed and reported",
}


def test_file_becomes_a_row_within_ten_seconds(tmp_path: Path, report: Report) -> None:
    rows, stages = list[float](), list[dict[str, float]]()
    with deployed(tmp_path) as platform:
        for number in range(WARM + FILES):
            put_at = _put(platform, number)
            row_at = _row_at(platform, number)
            if number >= WARM:
                rows.append(round(row_at - put_at, 1))
                stages.append({what: round(at - put_at, 1) for what, at in _run_of(platform, put_at).items()})
                report("put-to-row", _figures(rows, stages))
            time.sleep(PAUSE if number >= WARM else 1)
    assert median(rows) <= TARGET


def _figures(rows: list[float], stages: list[dict[str, float]]) -> dict[str, Any]:
    return {
        "what": "seconds from a file to its row, with Dagster's default launcher and a Spark cluster of two workers",
        "files": len(rows),
        "median": round(median(rows), 1),
        "each": rows,
        "median until": {
            what: round(median(found), 1)
            for what in _STEPS.values()
            if (found := [stage[what] for stage in stages if what in stage])
        },
        "load average": os.getloadavg(),
    }


def _put(platform: Deployed, number: int) -> float:
    now = datetime.now(UTC)
    line = f"{_order(number)},1,1,101,1,3,2.50,0.1,{now:%Y-%m-%dT%H}:00:00Z\n"
    key = f"orders/dt={now:%Y-%m-%d}/hour={now:%H}/file-{number}.csv"
    platform.aws("s3").put_object(Bucket="landing", Key=key, Body=(_LINE + line).encode())
    return time.time()


def _order(number: int) -> int:
    return 4_200_000_000 + number


def _row_at(platform: Deployed, number: int) -> float:
    lake = open_lake(_settings(platform))

    def loaded() -> None:
        assert lake.table_exists("core.orders")
        assert lake.load_table("core.orders").scan(f"order_id = {_order(number)}").to_arrow().num_rows == 1

    eventually(loaded, seconds=600, every=0.2)
    return time.time()


def _run_of(platform: Deployed, since: float) -> Mapping[str, float]:
    """Return the times of the steps of the first run that was requested for the table after a time."""
    with platform.instance() as instance:
        created = dg.RunsFilter(created_after=datetime.fromtimestamp(since, UTC))
        records = [
            record
            for record in instance.get_run_records(created, limit=50, ascending=True)
            if dg.AssetKey.from_user_string(TABLE) in (record.dagster_run.asset_selection or ())
        ]
        events = instance.all_logs(records[0].dagster_run.run_id, of_type=set(_STEPS)) if records else []
    found: dict[str, float] = {}
    for event in events:
        assert event.dagster_event is not None
        found.setdefault(_STEPS[event.dagster_event.event_type], event.timestamp)
    return found
