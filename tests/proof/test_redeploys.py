"""Redeploys under load: the newest code is everywhere in the end, nothing is lost, and shifts change over soon.

Each new code server has other code versions of two marts. It answers beside the old one for some seconds, and the
daemon reaches both in turn. Dagster's default launcher starts runs beside either. A run beside the old one builds
nothing, and a shift there ends before it works.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import dagster as dg

from dagster_tidemark.dagster_internals import instance_store, run_storage
from dagster_tidemark.event_log.beats import Beat
from dagster_tidemark.event_log.standby import ReplacedCode
from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.tags import CODE, SHIFT, STREAM, WORKER
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.rolling_platform import RollingPlatform, rolling_platform
from tests.proof.test_frozen_parts import put_order

TIMES = int(os.environ.get("REDEPLOYS", "10"))
OVERLAP = float(os.environ.get("OVERLAP", "20"))
SHIFTS_WITHIN = 10.0
MARTS = ("marts/sales_hourly", "marts/sales_daily")


def test_redeploys_with_overlap_end_with_the_newest_code_and_lose_nothing(
    tmp_path: Path, jars: Path, report: Report
) -> None:
    figures: dict[str, Any] = {
        "what": "redeploys with the old and the new code server answering in turn",
        "seconds of overlap": OVERLAP,
        "seconds until all new shifts are requested": [],
        "seconds until all shifts are new": [],
        "longest start of a run": [],
    }
    with rolling_platform(tmp_path, jars) as platform:
        eventually(lambda: _require(platform.status().code == 0, "not met at first"), seconds=420, every=3)
        with _load(platform) as sent:
            for version in range(2, TIMES + 2):
                codes = _codes(platform)
                platform.deploy(f"code-{version}", version)
                began = time.time()
                changed = _seconds_until_changed(platform, codes, began)
                figures["seconds until all shifts are new"].append(changed)
                figures["seconds until all new shifts are requested"].append(
                    _seconds_until_requested(platform, codes, began)
                )
                figures["longest start of a run"].append(_seconds_of_a_start(platform, began))
                time.sleep(max(0.0, OVERLAP - (time.time() - began)))
                platform.retire(f"code-{version - 1}")
                report("redeploys", figures)
        orders, readings = sent
        eventually(lambda: _all_there(platform, orders, readings), seconds=300, every=2)
        eventually(lambda: _require(_versions(platform) == {str(TIMES + 1)}, _versions(platform)), seconds=600, every=3)
        figures |= {"orders": len(orders), "readings": len(readings)}
        eventually(lambda: _require(_code_of_shifts(platform) == {_newest_code(platform)}, "old shifts"), seconds=300)
        figures["built back"] = _built_back(platform)
        figures["runs refused beside old code servers"] = _refused(platform)
        figures["rows twice"] = _twice(platform)
        report("redeploys", figures)
    assert figures["built back"] == [] and figures["rows twice"] == 0
    waits = figures["seconds until all new shifts are requested"]
    assert sorted(waits)[TIMES // 2] <= SHIFTS_WITHIN, waits


@contextmanager
def _load(platform: RollingPlatform) -> Iterator[tuple[list[int], list[str]]]:
    """Put a file every 8 seconds and send a message every 2 seconds meanwhile."""
    over, orders, readings = Event(), list[int](), list[str]()

    def work() -> None:
        number = 0
        while not over.wait(2.0):
            readings.append(platform.send_reading())
            number += 1
            if number % 4 == 0:
                orders.append(put_order(platform))

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield orders, readings
    finally:
        over.set()
        thread.join(60)


def _shifts(platform: RollingPlatform) -> dict[str, str]:
    """Return the run of each post's last heartbeat."""
    with platform.instance() as instance:
        saved = instance_store.saved_under(instance, SHIFT)
    return {key: beat.run for key, text in saved.items() if (beat := Beat.read(text)) is not None}


def _shift_runs(platform: RollingPlatform) -> list[tuple[tuple[str, str], str, float]]:
    """Return post, code and time of the request of each shift, oldest first."""
    with platform.instance() as instance:
        records = instance.get_run_records(limit=1000, ascending=True)
    return [
        ((run.tags[STREAM], run.tags[WORKER]), run.tags[CODE], record.create_timestamp.timestamp())
        for record in records
        if STREAM in (run := record.dagster_run).tags
    ]


def _codes(platform: RollingPlatform) -> set[str]:
    return {code for _, code, _ in _shift_runs(platform)}


def _newest_code(platform: RollingPlatform) -> str:
    return _shift_runs(platform)[-1][1]


def _code_of_shifts(platform: RollingPlatform) -> set[str]:
    """Return the code of the shifts that have the last heartbeats."""
    with platform.instance() as instance:
        runs = instance.get_runs(dg.RunsFilter(run_ids=list(_shifts(platform).values())))
    return {run.tags[CODE] for run in runs}


def _seconds_until_requested(platform: RollingPlatform, codes: set[str], since: float) -> float:
    """Return the seconds until each post had a request with other code than these."""
    first: dict[tuple[str, str], float] = {}
    for post, code, at in _shift_runs(platform):
        if code not in codes:
            first.setdefault(post, at)
    return round(max(first.values()) - since, 1)


def _seconds_of_a_start(platform: RollingPlatform, since: float) -> float:
    """Return the longest time from the request of a new shift to the start of its work."""
    with platform.instance() as instance:
        records = instance.get_run_records(dg.RunsFilter(created_after=datetime.fromtimestamp(since, UTC)), limit=50)
    starts = [
        record.start_time - record.create_timestamp.timestamp()
        for record in records
        if STREAM in record.dagster_run.tags and record.start_time is not None
    ]
    return round(max(starts, default=0.0), 1)


def _seconds_until_changed(platform: RollingPlatform, codes: set[str], since: float) -> float:
    """Return the seconds until the last heartbeats of all posts are of shifts with other code than these."""

    def changed() -> None:
        assert codes.isdisjoint(_code_of_shifts(platform)), "shifts with replaced code are still the last ones"

    eventually(changed, seconds=180, every=0.5)
    return round(time.time() - since, 1)


def _all_there(platform: RollingPlatform, orders: list[int], readings: list[str]) -> None:
    lake = open_lake(platform.settings)
    stored = lake.load_table("core.orders").scan(selected_fields=("order_id",)).to_arrow()["order_id"].to_pylist()
    assert set(orders) <= set(stored), f"{len(set(orders) - set(stored))} orders are missing"
    devices = lake.load_table("raw.readings").scan(selected_fields=("device_id",)).to_arrow()["device_id"].to_pylist()
    assert set(readings) <= set(devices), f"{len(set(readings) - set(devices))} readings are missing"


def _twice(platform: RollingPlatform) -> int:
    """Return the number of rows of orders and readings that are there more than once."""
    lake, found = open_lake(platform.settings), 0
    for table, columns in (("core.orders", ("order_id", "line_number")), ("raw.readings", ("device_id",))):
        rows = lake.load_table(table).scan(selected_fields=columns).to_arrow()
        found += rows.num_rows - rows.group_by(list(columns)).aggregate([]).num_rows
    return found


def _materializations(platform: RollingPlatform) -> list[tuple[str, str | None, int, float]]:
    """Return asset, partition, version and the creation of the run for each materialization, oldest first."""
    found = []
    with platform.instance() as instance:
        for mart in MARTS:
            records = dg.AssetRecordsFilter(asset_key=dg.AssetKey.from_user_string(mart))
            for record in instance.fetch_materializations(records, limit=5000, ascending=True).records:
                event = record.asset_materialization
                run = instance.get_run_record_by_id(record.run_id)
                assert event is not None and run is not None and event.tags is not None
                version = int(event.tags["dagster/code_version"])
                found.append((mart, event.partition, version, run.create_timestamp.timestamp()))
    return found


def _versions(platform: RollingPlatform) -> set[str]:
    """Return the code versions of the newest materializations of all partitions."""
    newest = {(mart, partition): str(version) for mart, partition, version, _ in _materializations(platform)}
    return set(newest.values())


def _built_back(platform: RollingPlatform) -> list[str]:
    """Return the materializations of a partition by older code than the one before."""
    newest: dict[tuple[str, str | None], int] = {}
    found = []
    for mart, partition, version, _ in _materializations(platform):
        before = newest.get((mart, partition), version)
        if version < before:
            found.append(f"{mart} {partition}: version {version} after version {before}")
        newest[(mart, partition)] = max(before, version)
    return found


def _refused(platform: RollingPlatform) -> int:
    """Return the number of runs that found that their code was replaced."""
    with platform.instance() as instance:
        failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        events = [instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE) for run in failed]
    return sum(any(ReplacedCode.__name__ in (run_storage.errors_of(event) or ()) for event in each) for each in events)


def _require(holds: bool, otherwise: object) -> None:
    assert holds, otherwise
