"""Parts that hang or are away for a minute: afterwards rows come again by themselves, soon.

The code server runs as in deploy/: `dagster api grpc`, without the proxy of `dagster code-server start`, which would go
on listening after its inner server has ended itself for lack of heartbeats.

`FAULTS=code frozen` runs only this fault.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.doubts import LANDING
from dagster_tidemark.tags import LOOKED
from tests.live.waiting import eventually
from tests.proof.bare_platform import BarePlatform, bare_platform
from tests.proof.conftest import Report

HEADER = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"
USUAL = 22.4
"""Seconds from a file to its row with Dagster's default launcher, on the quiet machine of the promises."""
Effect = Callable[[BarePlatform], Any]


@dataclass(frozen=True)
class Freeze:
    """A part that does no work for some seconds, and the promise for the time after it.

    Args:
        held: Seconds without the part.
        rows_within: Seconds from the end of the fault to the row of a file that arrived during it, on a machine where a
            file is a row after `USUAL` seconds.
    """

    name: str
    begin: Effect
    end: Effect
    held: float
    rows_within: float


def _frozen(part: str) -> tuple[Effect, Effect]:
    return lambda p: p.signal(part, signal.SIGSTOP), lambda p: p.signal(part, signal.SIGCONT)


FAULTS = [
    Freeze("code frozen", *_frozen("code"), held=85, rows_within=60),
    Freeze("spark killed", lambda p: p.kill("spark"), lambda p: p.start("spark"), held=53, rows_within=30),
    Freeze("spark frozen", *_frozen("spark"), held=53, rows_within=30),
]


def test_rows_come_again_soon_after_a_part_was_frozen_or_away(tmp_path: Path, jars: Path, report: Report) -> None:
    chosen = {name.strip() for name in os.environ.get("FAULTS", "").split(",") if name.strip()}
    found: dict[str, dict[str, Any]] = {}
    what = "seconds from the end of a fault to the row of a file that arrived during it"
    with bare_platform(tmp_path, jars) as platform:
        eventually(lambda: _require(platform.status().code == 0, "not met at first"), seconds=420, every=3)
        usual = _seconds_to_row(platform, put_order(platform), time.monotonic())
        assert usual is not None
        for fault in FAULTS:
            if not chosen or fault.name in chosen:
                found[fault.name] = _one(platform, fault, max(0.0, usual - USUAL))
                report("frozen-parts", {"what": what, "usual put to row": usual, "faults": found})
    assert found and all(each["as promised"] for each in found.values()), found


def _one(platform: BarePlatform, fault: Freeze, more: float) -> dict[str, Any]:
    server = platform.processes["code"].pid
    fault.begin(platform)
    begun = time.monotonic()
    time.sleep(15)  # so that a run is under way, or was refused, when the part comes back
    number = put_order(platform)
    time.sleep(max(0.0, fault.held - (time.monotonic() - begun)))
    fault.end(platform)
    ended, ended_at = time.monotonic(), time.time()
    eventually(lambda: _require(_looked_at(platform) > ended_at, "no sensor ticks"), seconds=240, every=0.5)
    looks = round(time.monotonic() - ended, 1)
    rows = _seconds_to_row(platform, number, ended)
    same = platform.processes["code"].pid == server and platform.processes["code"].poll() is None
    good = rows is not None and rows <= fault.rows_within + more and same and looks <= 60
    return {
        "held": fault.held,
        "bucket looked at after": looks,
        "rows after": rows,
        "same code server": same,
        "as promised": good,
    }


def _seconds_to_row(platform: BarePlatform, number: int, since: float) -> float | None:
    try:
        eventually(lambda: _require(platform.has_order(number), "no row yet"), seconds=240, every=0.5)
    except AssertionError:
        return None
    return round(time.monotonic() - since, 1)


def _looked_at(platform: BarePlatform) -> float:
    """Return the time of the last look of the sensor `landing`."""
    with platform.instance() as instance:
        found = instance_store.saved(instance, f"{LOOKED}{platform.settings.code_location}/{LANDING}")
    return float(json.loads(found or "{}").get("at", 0.0))


def put_order(platform: BarePlatform) -> int:
    """Put a file with one order of this hour, and return its number."""
    number, hour = int(time.time() * 10), datetime.now(UTC)
    line = f"{number},1,1,101,1,3,2.50,0.1,{hour:%Y-%m-%dT%H}:00:00Z\n"
    key = f"orders/dt={hour:%Y-%m-%d}/hour={hour:%H}/steady-{number}.csv"
    eventually(lambda: platform.put(key, HEADER + line), seconds=60, every=1)
    return number


def _require(holds: bool, otherwise: str) -> None:
    assert holds, otherwise
