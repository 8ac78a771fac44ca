"""How long a tick takes: with nothing to do, with one change, and the first ones after a start on a long history.

The sensors `automation` and `catch_up`, as the daemon's code server evaluates them, on an instance with SQLite files.
Idle and changed ticks are judged together and by processor time, which a busy machine distorts least; the first ones,
which Dagster ends after a minute, one by one and by the clock.
"""

import gc
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import garbage_collector
from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.engine import engine
from dagster_tidemark.event_log import checkpoint
from dagster_tidemark.event_log.checkpoint_parts import Saving
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.sensors.automation import automation_sensor
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.simulation.log import Clock, SimulatedLog
from tests.proof import big_history
from tests.proof.conftest import Report

TICKS = 10
REST: dict[str, Any] = {"catalog": {}, "unread": [], "touched": []}


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
        self.log = SimulatedLog(self.instance, self.clock, self.repository.asset_graph)
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


def test_tick_is_short_for_any_history_and_a_cold_start_is_sliced(server: Server, report: Report) -> None:
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


class Planned:
    """A plan over a history in memory, made in slices like the sensors' ticks; seconds are processor seconds."""

    def __init__(self, families: int, partitions: int, *, built: bool) -> None:
        self.partitions = partitions
        self.definitions = big_history.graph(families, every=6)
        self.graph = graph_of(dg.Definitions(assets=self.definitions).resolve_asset_graph())
        self.history = big_history.folded(self.graph, families, partitions, built=built)
        self.planner = Planner(self.graph, self.history, slots=10)
        self.now, self.open, self.frozen = self.graph.moment.now, 0, 0

    def plan(self) -> tuple[Plan, list[float]]:
        """Make a plan. Returns the seconds of each slice, too."""
        slices, self.now = [], self.now + 5
        while True:
            stop, begun = time.monotonic() + engine.SLICE_SECONDS, time.process_time()
            with garbage_collector.paused():
                plan = self.planner.plan(self.now, stop=lambda: time.monotonic() > stop)  # noqa: B023
            slices.append(time.process_time() - begun)
            if not plan.catching_up:
                self.frozen = garbage_collector.frozen(len(self.history.facts), self.frozen)
                return plan, slices

    def start(self, plan: Plan) -> None:
        """Start the requested runs."""
        for request in plan.requests:
            self.open += 1
            for target in request.targets:
                self.history.planned([target], id=10**9 + self.open, run_id=f"open {self.open}", at=self.now)

    def change(self, version: int) -> float:
        """Return the seconds of a plan after one hour of a source has changed."""
        key = big_history.keys(self.partitions)[-2]
        at = self.now
        id = 2 * 10**9 + version
        self.history.observed(("raw/s0", key), id=id, version=f"new {version}", arrived_at=at, listed_at=at, at=at)
        return sum(self.plan()[1])


def resident() -> int:
    """Return the megabytes that this process holds now."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def test_checkpoint_and_plan_of_millions_of_partitions_are_sliced(tmp_path: Path, report: Report) -> None:
    families, partitions = 222, int(os.environ.get("BUILT_PARTITIONS", "500"))
    begun = resident()
    made = Planned(families, partitions, built=True)
    plan, first = made.plan()
    figures: dict[str, Any] = {
        "assets": len(made.graph.nodes),
        "contracts": sum(node.contract is not None for node in made.graph.nodes.values()),
        "built partitions": families * partitions * 9,
        "first plan, seconds of each slice": [round(took, 2) for took in first],
        "idle, seconds": round(sum(made.plan()[1]), 3),
        "one change, seconds": round(median(made.change(n) for n in range(5)), 3),
        "megabytes of the history": resident() - begun,
    }
    assert not plan.decisions
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        figures["save, seconds of each slice"] = _sliced(saving(instance, made))
        definitions, built = made.definitions, len(made.history.facts)
        del made, plan
        garbage_collector.thaw()
        gc.collect()
        graph = graph_of(dg.Definitions(assets=definitions).resolve_asset_graph())
        figures["load, seconds of each slice"] = _sliced(loading(instance, graph, built))
    figures["load average"] = os.getloadavg()
    report(f"tick-{figures['built partitions']}-built", figures)
    slices = [*first, *figures["save, seconds of each slice"], *figures["load, seconds of each slice"]]
    assert max(slices) <= 10 and figures["idle, seconds"] <= 0.2 and figures["one change, seconds"] <= 0.3, figures


def saving(instance: dg.DagsterInstance, made: Planned) -> Iterator[None]:
    """Save a whole checkpoint, in slices like those of a tick."""
    follower = LogConsumer(made.history, checkpoint.key_of(made.graph))
    save = Saving(
        made.history, follower.key, checkpoint.head_of(made.history, follower.reader.state(), REST), {}, set()
    )
    done = False
    while not done:
        end = time.monotonic() + 1.0
        done = save.step(instance, lambda: time.monotonic() > end)  # noqa: B023
        yield


def loading(instance: dg.DagsterInstance, graph: Graph, built: int) -> Iterator[None]:
    """Load the checkpoint in slices like those of a tick."""
    follower = LogConsumer.started(instance, graph)
    yield
    while len(follower.history.facts) < built:
        end = time.monotonic() + engine.SLICE_SECONDS
        with garbage_collector.paused():
            follower.read(instance, lambda: time.monotonic() > end)  # noqa: B023
        yield


def _sliced(steps: Iterator[None]) -> list[float]:
    took, begun = [], time.process_time()
    for _ in steps:
        took.append(round(time.process_time() - begun, 2))
        begun = time.process_time()
    return took


def test_first_load_of_a_million_partitions_is_planned_in_slices(report: Report) -> None:
    families, partitions = 222, int(os.environ.get("PENDING_PARTITIONS", "500"))
    made = Planned(families, partitions, built=False)
    plan, first = made.plan()
    looks, requested = [], len(plan.requests)
    made.start(plan)
    for _ in range(5):
        more, slices = made.plan()
        looks.append(round(sum(slices), 2))
        requested += len(more.requests)
        made.start(more)
    figures = {
        "assets": len(made.graph.nodes),
        "pending partitions": len(plan.decisions) + sum(plan.deferred.values()),
        "decided on in one look": len(plan.decisions),
        "first plan, seconds of each slice": [round(took, 2) for took in first],
        "looks after it, seconds": looks,
        "one change, seconds": round(made.change(1), 2),
        "ranges requested": requested,
        "megabytes": resident(),
        "load average": os.getloadavg(),
    }
    report("tick-pending", figures)
    assert max([*first, *looks]) <= 10, figures
