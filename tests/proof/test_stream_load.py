"""Fifty readings a second for ten minutes on a whole platform: from reading to alert, and whether that is steady."""

import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest

from bench.messages import reading
from dagster_tidemark.sources.sqs import SqsQueue
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


@dataclass
class Post:
    """Sends readings by the second, and hears the alerts. Each second one device has been warm for ten minutes."""

    readings: SqsQueue
    alerts: SqsQueue
    due: dict[str, float] = field(default_factory=dict)
    lags: dict[str, float] = field(default_factory=dict)
    sent: int = 0
    poison: int = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """The first shift has started; alerts are heard until the block ends, those still due among them."""
        over = threading.Event()
        listener = threading.Thread(target=self._listen, args=[over])
        listener.start()
        try:
            start = datetime.now(UTC) - timedelta(minutes=30)
            self._say("first", [reading("first", start + timedelta(minutes=m), 9.0) for m in (0, 6, 12)])
            eventually(self._all_there, seconds=120)
            yield
            eventually(self._all_there, seconds=60)
        finally:
            over.set()
            listener.join()

    def send_for(self, seconds: int, name: str, *, poison: bool = False) -> None:
        """Send at the rate; with poison one of a hundred messages is none. Lags are kept as `<name>-<second>`."""
        began = time.monotonic()
        for second in range(seconds):
            now = datetime.now(UTC)
            device = f"{name}-{second}"
            bodies = [reading(f"cold-{n}", now, 3.0) for n in range(RATE - 3)]
            bodies += [reading(device, now - timedelta(minutes=m), 9.0) for m in (11, 6, 0)]
            if poison and second % (100 // RATE) == 0:
                bodies[0] = "no reading"
                self.poison += 1
            self._say(device, bodies)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))

    def lags_of(self, name: str) -> list[float]:
        """Seconds from a reading's send to its alert, in the order they were sent."""
        return [self.lags[device] for device in self.due if device.startswith(f"{name}-")]

    def _say(self, device: str, bodies: list[str]) -> None:
        self.due[device] = time.time()
        self.readings.send(bodies)
        self.sent += len(bodies)

    def _listen(self, over: threading.Event) -> None:
        while not over.is_set():
            messages = self.alerts.receive(1)
            now = time.time()
            self.alerts.delete(messages)
            for message in messages:
                body = json.loads(message.body)
                if body["kind"] == "raise":
                    self.lags.setdefault(body["device_id"], now - self.due[body["device_id"]])

    def _all_there(self) -> None:
        missing = self.due.keys() - self.lags.keys()
        assert not missing, f"{len(missing)} alerts are missing"


@pytest.fixture
def post(platform: Platform) -> Post:
    return Post(*(SqsQueue(platform.sqs, name) for name in ("cold-chain-readings", "alerts")))


def test_fifty_readings_a_second_are_alerted_within_the_limit(platform: Platform, post: Post, report: Report) -> None:
    with post.listening():
        post.send_for(SECONDS, "warm")
    platform.quiet(seconds=300)
    table = platform.table("raw.readings")
    lags, third = post.lags_of("warm"), SECONDS // 3
    figures = {
        "what": f"{RATE} readings a second for {SECONDS} s; seconds from a reading's send to its alert on the queue",
        "readings": post.sent,
        "rows": table.num_rows,
        **_figures(lags),
        "median of the first third": round(statistics.median(lags[:third]), 2),
        "median of the last third": round(statistics.median(lags[-third:]), 2),
        "load after": os.getloadavg()[0],
    }
    report("stream-load", figures)
    assert len(pc.unique(table["message_id"])) == table.num_rows == post.sent
    assert figures["p95"] <= LIMIT_P95
    assert figures["median of the last third"] <= figures["median of the first third"] + 1.0


def test_one_percent_of_poison_messages_does_not_delay_the_others(
    platform: Platform, post: Post, report: Report
) -> None:
    with post.listening():
        for turn in range(4):
            post.send_for(SECONDS // 10, f"good{turn}")
            post.send_for(SECONDS // 10, f"bad{turn}", poison=True)
    good, bad = ([lag for turn in range(4) for lag in post.lags_of(f"{name}{turn}")] for name in ("good", "bad"))
    platform.quiet(seconds=300)
    table, refused = platform.table("raw.readings"), platform.table("ops.quarantine")
    figures = {
        "what": f"{RATE} readings a second, without and with one poison message of a hundred, in turns",
        "without": _figures(good),
        "with": _figures(bad),
        "poison": post.poison,
        "load after": os.getloadavg()[0],
    }
    report("stream-poison", figures)
    assert len(pc.unique(table["message_id"])) == table.num_rows == post.sent - post.poison
    assert refused.num_rows == post.poison
    assert statistics.median(bad) <= statistics.median(good) + 0.2
    assert figures["with"]["p95"] <= max(LIMIT_P95 / 5, figures["without"]["p95"] * 1.5)


def _figures(lags: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(lags), 2),
        "p95": round(statistics.quantiles(lags, n=20)[-1], 2),
        "longest": round(max(lags), 2),
    }
