"""How long a tick takes: with nothing to do, with one change, and the first ones after a start on a long history.

The sensors `automation` and `catch_up`, as the daemon's code server evaluates them, on an instance with SQLite files.
Idle and changed ticks are judged together and by processor time, which a busy machine distorts least; the first ones,
which Dagster ends after a minute, one by one and by the clock.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import dagster as dg
import pytest

from pipelines.tidemark.engine import engine
from pipelines.tidemark.sensors.catch_up import automation_sensor, catch_up_sensor
from pipelines.tidemark.simulation.log import Clock, Log
from tests.proof import big_history
from tests.proof.conftest import Report

TICKS = 10


@dataclass(frozen=True)
class Ticked:
    """Both sensors evaluated: processor seconds, seconds in all, of the longer one, and runs asked for."""

    processor: float
    seconds: float
    longest: float
    asked: int


def told(ticks: Sequence[Ticked]) -> dict[str, float]:
    """What a report keeps of many ticks."""
    return {
        "processor, median": round(median(t.processor for t in ticks), 3),
        "processor, most": round(max(t.processor for t in ticks), 3),
        "clock, median": round(median(t.seconds for t in ticks), 3),
    }


class Server:
    """A code server's two sensors on an instance with a past, under a frozen clock."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.repository = dg.Definitions(assets=big_history.graph()).get_repository_def()
        self.instance = dg.DagsterInstance.local_temp(str(folder))
        self.events = big_history.fill(self.instance, self.repository, rounds=rounds)
        self.clock = Clock(big_history.END.timestamp())
        self.log = Log(self.instance, self.clock, self.repository.asset_graph)
        self._sensors = [automation_sensor(), catch_up_sensor()]
        self._cursors: dict[str, str | None] = {}

    def tick(self) -> "Ticked":
        """Evaluate both sensors."""
        asked, took = 0, []
        with self.clock.frozen():
            begun = time.process_time()
            for sensor in self._sensors:
                since = time.perf_counter()
                cursor = self._cursors.get(sensor.name)
                with dg.build_sensor_context(
                    self.instance, cursor, repository_def=self.repository, sensor_name=sensor.name
                ) as context:
                    context.log.setLevel(logging.WARNING)
                    result = sensor.evaluate_tick(context)
                self._cursors[sensor.name] = result.cursor
                asked += len(result.run_requests or [])
                took.append(time.perf_counter() - since)
            processor = time.process_time() - begun
        self.clock.now += 5
        return Ticked(processor, sum(took), max(took), asked)

    def change(self, family: int, hour: int, version: str) -> None:
        """New data in an hour of a source."""
        with self.clock.frozen():
            now = self.clock.now
            partition = big_history.PARTITIONS[hour]
            self.log.observed(f"raw/s{family}", partition, version, listed_at=now, arrived_at=now)

    def caught_up(self) -> bool:
        """Whether the event log has been read to its end."""
        plan = engine.engine_for(self.instance, self.repository.asset_graph).look(self.clock.now)
        return not getattr(plan, "catching_up", "")

    def start(self) -> list[float]:
        """Tick until the event log has been read; how long the longer of the two took each time."""
        engine.forget(self.instance)
        took = [self.tick().longest]
        while not self.caught_up():
            took.append(self.tick().longest)
        return took


@pytest.fixture(scope="module", params=[1, 6], ids=["190,000 events", "1,140,000 events"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("home"), rounds=request.param)
    with made.instance:
        yield made


def test_a_tick_is_short_whatever_the_history_and_a_cold_start_comes_in_slices(server: Server, report: Report) -> None:
    cold = server.start()
    idle = [server.tick() for _ in range(TICKS)]
    changed = []
    for n in range(TICKS):
        server.change(family=n % big_history.FAMILIES, hour=-2 - n, version=f"new {n}")
        changed.append(server.tick())
    again = server.start()
    figures = {
        "events": server.events,
        "assets": big_history.FAMILIES * big_history.FAMILY,
        "partitions": len(big_history.PARTITIONS),
        "cold start, seconds of each tick": [round(took, 2) for took in cold],
        "second start, seconds of each tick": [round(took, 2) for took in again],
        "idle tick, seconds": told(idle),
        "one change, seconds": told(changed),
        "load average": os.getloadavg(),
    }
    report(f"tick-{server.events}-events", figures)
    assert not any(tick.asked for tick in idle), "everything is built"
    assert max([*cold, *again]) <= 20, figures
    assert median(tick.processor for tick in idle) <= 0.2, figures
    assert median(tick.processor for tick in changed) <= 0.25, figures
