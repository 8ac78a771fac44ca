"""1,500 readings a second of a topic and 4 a second of a queue, on one stream: lag, its trend, and memory.

`ENDURANCE_SECONDS` is the duration (30 minutes), `ENDURANCE_RATE` and `ENDURANCE_QUEUE_RATE` are readings a second. At
the end the shift is killed, and the next one's first batch is timed.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.sqs import SqsQueue
from tests.checkout import CHECKOUT
from tests.proof.conftest import Report
from tests.tidemark.kafka import Broker
from tests.tidemark.streams import toy

SECONDS = int(os.environ.get("ENDURANCE_SECONDS", "1800"))
RATE = int(os.environ.get("ENDURANCE_RATE", "1500"))
QUEUE_RATE = int(os.environ.get("ENDURANCE_QUEUE_RATE", "4"))
DEVICES = 1_500
LAG_P95, MEMORY_MB, FIRST_BATCH = 3.0, 400, 5.0


@dataclass
class Load:
    """The sent readings, and the received alerts. Each second one gadget of the queue is strong twice."""

    broker: Broker
    readings: SqsQueue
    alerts: SqsQueue
    name: str
    sent: int = 0
    asked: dict[str, float] = field(default_factory=dict)
    lags: dict[str, float] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send and listen until the block ends."""
        workers = [threading.Thread(target=each) for each in (self._topic, self._queue, self._listen)]
        for each in workers:
            each.start()
        try:
            yield
        finally:
            self.over.set()
            for each in workers:
                each.join()

    def _ticks(self, every: float) -> Iterator[float]:
        began, count = time.monotonic(), 0
        while not self.over.is_set():
            yield began + count * every
            count += 1
            time.sleep(max(0.0, began + count * every - time.monotonic()))

    def _topic(self) -> None:
        producer, at_once, device = self.broker.producer(), RATE // 10, 0
        for _ in self._ticks(0.1):
            for _ in range(at_once):
                device = (device + 1) % DEVICES
                body = ping(f"d{device}", 1.0)
                producer.produce(f"topic-{self.name}", body.encode(), partition=device % 3)
            producer.poll(0)
            self.sent += at_once
        producer.flush(30)

    def _queue(self) -> None:
        for second, _ in enumerate(self._ticks(1.0)):
            gadget = f"strong-{second}"
            self.asked[gadget] = time.time()
            bodies = [ping(gadget, 9.0), ping(gadget, 9.0), *(ping(f"q{n}", 1.0) for n in range(QUEUE_RATE - 2))]
            self.readings.send(bodies)
            self.sent += len(bodies)

    def _listen(self) -> None:
        quiet_since = time.monotonic()
        while not (self.over.is_set() and time.monotonic() - quiet_since > 8):
            messages = self.alerts.receive(1)
            now = time.time()
            self.alerts.delete(messages)
            for message in messages:
                quiet_since, body = time.monotonic(), json.loads(message.body)
                self.lags.setdefault(body["gadget"], now - self.asked[body["gadget"]])


def ping(gadget: str, strength: float) -> str:
    return json.dumps({"gadget": gadget, "at": datetime.now(UTC).isoformat(), "strength": strength})


@contextmanager
def worker(load: Load, settings: Settings, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    told = {"TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": load.broker.servers}
    command = [sys.executable, "-m", "tests.proof.endurance_worker", load.name, str(file)]
    with file.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | settings.exports() | {"ARROW_DEFAULT_MEMORY_POOL": "system"} | told,
            stderr=log,
            cwd=CHECKOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_busy_topic_beside_a_quiet_queue_has_stable_lag_and_memory(
    cloud: Settings, kafka: Broker, tmp_path: Path, report: Report
) -> None:
    name = toy.new_name()
    kafka.create(f"topic-{name}", 3)
    load = Load(kafka, toy.make_queue(cloud, f"queue-{name}"), toy.make_queue(cloud, f"out-{name}"), name)
    first, second = tmp_path / "first", tmp_path / "second"
    with worker(load, cloud, first) as process:
        deadline = time.monotonic() + 60
        kafka.send(f"topic-{name}", ping("first", 1.0))
        load.sent += 1
        while not lines(first):
            assert time.monotonic() < deadline, first.with_suffix(".log").read_text()
            time.sleep(0.1)
        with load.sending():
            time.sleep(SECONDS)
            process.kill()
            with worker(load, cloud, second):
                began = time.time()
                deadline = time.monotonic() + 120
                while not lines(second):
                    assert time.monotonic() < deadline, second.with_suffix(".log").read_text()
                    time.sleep(0.1)
                time.sleep(30)  # the killed shift's messages are delivered again
                load.over.set()
                time.sleep(10)
    figures, took = figures_of(lines(first)[1:], load), lines(second)[0]["at"] - began
    table = Appendable(open_lake(cloud), toy.table(name))
    ids = table.rows(columns=("message_id",))["message_id"]
    report(
        "stream-endurance", {"what": WHAT, **figures, "first batch of another run": round(took, 2), "sent": load.sent}
    )
    assert len(pc.unique(ids)) == len(ids) == load.sent
    assert load.lags.keys() == load.asked.keys()
    assert figures["lag"]["p95"] <= LAG_P95
    assert figures["lag"]["p95 of the last third"] <= figures["lag"]["p95 of the first third"] * 1.2 + 0.5
    assert figures["most MB"] <= MEMORY_MB
    assert took <= FIRST_BATCH


WHAT = f"{RATE} readings a second of a topic and {QUEUE_RATE} of a queue for {SECONDS} s; seconds from send to commit"


def figures_of(batches: list[dict[str, Any]], load: Load) -> dict[str, Any]:
    third = len(batches) // 3
    alerts = [load.lags[gadget] for gadget in load.asked if gadget in load.lags]
    return {
        "lag": {
            "median": _of(batches, 0.5),
            "p95": _of(batches, 0.95),
            "longest": round(max(batch["longest"] for batch in batches), 2),
            "p95 of the first third": _of(batches[:third], 0.95),
            "p95 of the last third": _of(batches[-third:], 0.95),
        },
        "alert": {
            "median": round(statistics.median(alerts), 2),
            "p95": round(statistics.quantiles(alerts, n=20)[-1], 2),
            "longest": round(max(alerts), 2),
        },
        "most MB": max(batch["mb"] for batch in batches),
        "MB of the first third": max(batch["mb"] for batch in batches[:third]),
        "commits": len(batches),
        "rows": sum(batch["rows"] for batch in batches),
        "load after": os.getloadavg()[0],
    }


def _of(batches: list[dict[str, Any]], share: float) -> float:
    """Return a quantile of the lag, weighted by rows. Each batch counts with its own median or 95th percentile."""
    ordered = sorted((batch["median" if share == 0.5 else "p95"], batch["rows"]) for batch in batches)
    wanted, seen = share * sum(rows for _, rows in ordered), 0
    for lag, rows in ordered:
        seen += rows
        if seen >= wanted:
            return round(lag, 2)
    return 0.0
