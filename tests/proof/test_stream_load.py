"""Fifty readings a second for ten minutes on a whole platform: from reading to alert, and whether that is steady."""

import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest

from bench.messages import reading
from pipelines.tidemark.sources.sqs import SqsQueue
from tests.conftest import JARS
from tests.live.platform import Platform, running
from tests.live.waiting import eventually
from tests.proof.conftest import Report

RATE = 50
SECONDS = int(os.environ.get("STREAM_SECONDS", "600"))
LIMIT_P95 = 5.0


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with running(tmp_path, JARS) as made:
        yield made


def test_fifty_readings_a_second(platform: Platform, report: Report) -> None:
    readings, alerts = (SqsQueue(platform.sqs, name) for name in ("cold-chain-readings", "alerts"))
    due: dict[str, float] = {}
    lags: dict[str, float] = {}
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            messages = alerts.receive(1)
            now = time.time()
            alerts.delete(messages)
            for message in messages:
                body = json.loads(message.body)
                if body["kind"] == "raise":
                    lags.setdefault(body["device_id"], now - due[body["device_id"]])

    listener = threading.Thread(target=listen)
    listener.start()
    sent = 0
    try:
        _warm(readings, due, alerts, lags)
        began = time.monotonic()
        for second in range(SECONDS):
            # Every second one device has been warm for ten minutes of its own time; the others are cold, or soon warm.
            now = datetime.now(UTC)
            device = f"warm-{second}"
            bodies = [reading(f"cold-{n}", now, 3.0) for n in range(RATE - 3)]
            bodies += [reading(device, now - timedelta(minutes=m), 9.0) for m in (11, 6, 0)]
            due[device] = time.time()
            readings.send(bodies)
            sent += len(bodies)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
        eventually(lambda: _all_there(lags, due), seconds=60)
    finally:
        over.set()
        listener.join()
    platform.quiet(seconds=300)
    table = platform.table("raw.readings")
    ordered = [lags[f"warm-{second}"] for second in range(SECONDS)]
    third = SECONDS // 3
    figures = {
        "what": f"{RATE} readings a second for {SECONDS} s; seconds from a reading's send to its alert on the queue",
        "readings": sent,
        "rows": table.num_rows,
        "median": round(statistics.median(ordered), 2),
        "p95": round(statistics.quantiles(ordered, n=20)[-1], 2),
        "longest": round(max(ordered), 2),
        "median of the first third": round(statistics.median(ordered[:third]), 2),
        "median of the last third": round(statistics.median(ordered[-third:]), 2),
        "load after": os.getloadavg()[0],
    }
    report("stream-load", figures)
    ids = table["message_id"]
    assert len(pc.unique(ids)) == table.num_rows == sent + 3
    assert figures["p95"] <= LIMIT_P95
    assert figures["median of the last third"] <= figures["median of the first third"] + 1.0


def _warm(readings: SqsQueue, due: dict[str, float], alerts: SqsQueue, lags: dict[str, float]) -> None:
    """The first shift has started."""
    start = datetime.now(UTC) - timedelta(minutes=30)
    due["first"] = time.time()
    readings.send([reading("first", start + timedelta(minutes=m), 9.0) for m in (0, 6, 12)])
    eventually(lambda: _all_there(lags, due), seconds=120)


def _all_there(lags: dict[str, float], due: dict[str, float]) -> None:
    assert due.keys() <= lags.keys(), f"{len(due.keys() - lags.keys())} alerts are missing"
