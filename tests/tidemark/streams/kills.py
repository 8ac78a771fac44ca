"""Shifts that are killed, overlap, or stop and go on: a cell of the matrix, and what has to hold afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings, StreamBoundary
from dagster_tidemark.sources.sqs import SqsQueue
from tests.live.waiting import eventually
from tests.tidemark.streams import toy

if TYPE_CHECKING:
    from tests.tidemark.kafka import Broker

Way = Literal["alone", "overlapping", "zombie"]
POISON = "no reading"
_IDLE_SECONDS = 3.0  # longer than what a killed process had in hand is hidden


@dataclass
class Cell:
    """One transport, one boundary, one way to die."""

    boundary: StreamBoundary
    way: Way
    settings: Settings
    folder: Path
    broker: "Broker | None" = None
    """Where there is one, the messages go through a topic of it."""
    backlog: bool = False
    """Whether whatever is there is one, which Spark reads."""
    name: str = field(default_factory=toy.new_name)
    truth: dict[tuple[str, int], float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def play(self) -> list[str]:
        """Let it happen. Returns what is wrong afterwards."""
        self.make()
        self.say([("a", 1, 7), ("a", 2, 7), ("b", 1, 7)], poison=True)
        if self.way == "zombie":
            with self.worker(stop_at=f"{self.boundary}:1") as sleeper:
                eventually(lambda: _has_stopped(sleeper), seconds=150)
                self.work([("a", 2, 1), ("b", 2, 7), ("c", 5, 7), ("c", 6, 7)])
                before = self.wire()
                sleeper.send_signal(signal.SIGCONT)
                sleeper.wait(150)
                after = self.wire()
                if stale := [m for m in after if m not in before]:
                    self.faults.append(f"the zombie has sent {stale}")
                self.sent = before + after
        else:
            with self.worker(kill_at=f"{self.boundary}:1") as victim:
                if self.way == "overlapping":
                    with self.worker() as other:
                        self.say([("a", 2, 1), ("b", 2, 7), ("c", 5, 7), ("c", 6, 7)])
                        victim.wait(150)
                        other.wait(150)
                else:
                    victim.wait(150)
                    if victim.returncode != -signal.SIGKILL:
                        self.faults.append(f"it was not killed: {victim.returncode}")
            self.work([("a", 2, 1), ("b", 2, 7), ("c", 5, 7), ("c", 6, 7)] if self.way == "alone" else [])
            self.sent = self.wire()
        return [*self.faults, *self.wrong()]

    def make(self) -> None:
        """The transport."""
        if self.broker is not None:
            self.broker.create(f"topic-{self.name}", 2)
        else:
            self.queue = toy.make_queue(self.settings, f"queue-{self.name}", receives=20)
        self.out = toy.make_queue(self.settings, f"out-{self.name}", receives=1000)

    def say(self, pings: list[tuple[str, int, float]], *, poison: bool = False) -> None:
        """Send pings of a gadget, minute and strength."""
        self.truth |= {(gadget, minute): strength for gadget, minute, strength in pings}
        bodies = [toy.ping(gadget, minute=minute, strength=strength) for gadget, minute, strength in pings]
        self.send([*bodies[:1], *([POISON] if poison else []), *bodies[1:]])
        time.sleep(0.01)

    def send(self, bodies: list[str]) -> None:
        if self.broker is None:
            self.queue.send(bodies)
            return
        for partition in (0, 1):
            self.broker.send(f"topic-{self.name}", *bodies[partition::2], partition=partition)

    def work(self, pings: list[tuple[str, int, float]]) -> None:
        """Two shifts that nobody kills, until nothing comes any more."""
        self.say(pings) if pings else None
        with self.worker() as one, self.worker() as two:
            for worker in (one, two):
                if worker.wait(150):
                    self.faults.append(f"a shift failed: {(self.folder / 'log').read_text()[-2000:]}")

    @contextmanager
    def worker(self, *, kill_at: str = "", stop_at: str = "") -> Iterator["subprocess.Popen[bytes]"]:
        told = {"TIDEMARK_KILL_AT": kill_at, "TIDEMARK_STOP_AT": stop_at, **self.variables()}
        transport = "sqs" if self.broker is None else "backlog" if self.backlog else "kafka"
        command = [sys.executable, "-m", "tests.tidemark.streams.worker", self.name, transport, str(_IDLE_SECONDS)]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, env=os.environ | self.settings.exports() | told, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)

    def variables(self) -> dict[str, str]:
        return {} if self.broker is None else {"TIDEMARK_KAFKA_BOOTSTRAP_SERVERS": self.broker.servers}

    def wire(self) -> list[tuple[str, str, int]]:
        """Kind, id and sequence of what has been sent since this was last asked."""
        return drained(self.out)

    def wrong(self) -> list[str]:
        """What is lost, doubled, or sent otherwise than it is in the table."""
        lake = open_lake(self.settings)
        faults = []
        rows = Appendable(lake, toy.table(self.name)).rows().to_pylist()
        ids = [row["message_id"] for row in rows]
        if len(ids) != len(set(ids)):
            faults.append(f"{len(ids) - len(set(ids))} rows are doubled")
        newest: dict[tuple[str, int], tuple[Any, float]] = {}
        for row in rows:
            minute = round((row["at"] - toy.HOUR).total_seconds() / 60)
            mine = ((row["sent_at"], row["message_id"]), row["strength"])
            newest[row["gadget"], minute] = max(newest.get((row["gadget"], minute), mine), mine)
        if {at: strength for at, (_, strength) in newest.items()} != self.truth:
            faults.append(f"kept {newest}, sent {self.truth}")
        entries = Appendable(lake, QUARANTINE).rows().to_pylist()
        refused = [e["content"] for e in entries if e["asset"] == f"raw/{self.name}"]
        if refused != [POISON]:
            faults.append(f"in quarantine: {refused}")
        alerts = Appendable(lake, toy.alerts(self.name)).rows().to_pylist()
        standing = sorted(
            (row["gadget"], round((row["episode_started_at"] - toy.HOUR).total_seconds() / 60))
            for row in alerts
            if row["retracted_at"] is None
        )
        if standing != toy.expected(self.truth):
            faults.append(f"standing {standing}, expected {toy.expected(self.truth)}")
        told: dict[str, set[str]] = defaultdict(set)
        for kind, alert_id, _ in self.sent:
            told[alert_id].add(kind)
        wanted = {
            row["alert_id"]: {"raise", "retract"} if row["retracted_at"] is not None else {"raise"} for row in alerts
        }
        if told != wanted:
            faults.append(f"sent {dict(told)}, in the table {wanted}")
        return faults


def drained(out: SqsQueue) -> list[tuple[str, str, int]]:
    found = []
    while messages := out.receive(0):
        bodies = [json.loads(message.body) for message in messages]
        found += [(body["kind"], body["alert_id"], body["sequence"]) for body in bodies]
        out.delete(messages)
    return found


def _has_stopped(process: "subprocess.Popen[bytes]") -> None:
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
