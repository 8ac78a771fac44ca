"""Plays a world in the simulator."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dagster_tidemark.planner.decisions import State
from dagster_tidemark.simulation.simulator import CheckFate, RunFate, RunPace, Simulation
from tests.tidemark.planner.random_graphs.graphs import definitions
from tests.tidemark.planner.random_graphs.mappings import Readings
from tests.tidemark.planner.random_graphs.shapes import DYNAMIC, Event, Target, World

QUIET_HOURS = 27.0
"""After the last event: longer than the longest contract, and than the time to any tick of a cron contract."""

_MORE_HOURS = 12
"""At most so much longer, while more is asked for than can run at once."""

_IN_HAND = {State.REQUESTED, State.RUNNING, State.UNANSWERED, State.WAITING, State.THROTTLED}


def check_seconds(world: World, event: Event) -> float:
    """How long an evaluation that a person asked for takes."""
    return random.Random(f"{world.seed}/evaluation {event.at}").uniform(*world.check_seconds)


class Day:
    """A world while it is played."""

    def __init__(self, world: World, pace: RunPace | None = None) -> None:
        self.world = world
        self.now = world
        slow = {table.key: table.seconds for table in world.tables if table.seconds is not None}
        step = {table.key: 12.0 for table in world.tables} | slow if slow else 12.0
        pace = pace or RunPace(
            step=step,
            spread=0.3,
            check=world.check_seconds,
            launch=(1.0, 3.0),
            notice=(0.2, 2.0),
            at_once=world.slots,
        )
        self.simulation = Simulation(
            definitions(world),
            start=world.begin,
            seed=world.seed,
            pace=pace,
            own_every=1800.0,
            content=self._content,
            reads=self._reads,
        )
        self.readings = Readings(world, self.simulation.instance)
        self.at_the_end_of_events: dict[str, Any] = {}
        self.in_hand: frozenset[Target] = frozenset()
        """What is still to be built at the end, if that is more than this platform can: each of a year of quarters of
        an hour, a run each, whenever a table changes that all of them read."""

    def play(self) -> "Day":
        """From the first event to the end of the quiet after the last."""
        simulation = self.simulation
        with simulation.clock.frozen():
            simulation.instance.add_dynamic_partitions(DYNAMIC, list(self.world.keys))
        for event in self.world.events:
            getattr(self, event.what)(event, *event.of)
        end = simulation.time(hours=self.world.hours)
        simulation.heal(at=end)
        simulation.run_until(end)
        simulation.run(hours=QUIET_HOURS)
        for _ in range(_MORE_HOURS):
            if not self._is_overloaded():
                return self
            simulation.run(hours=1)
        if self._is_overloaded():
            self.in_hand = frozenset(t for t, of in simulation.plan().decisions.items() if of.state in _IN_HAND)
        return self

    def _is_overloaded(self) -> bool:
        states = [decision.state for decision in self.simulation.plan().decisions.values()]
        return states.count(State.REQUESTED) + states.count(State.RUNNING) > self.simulation.pace.at_once

    def moment(self) -> Any:
        """The time the platform's clock shows."""
        return self.simulation.moment()

    def _content(self, target: Target, inputs: Any, default: str) -> str:
        return "constant" if self.world.table(target[0]).constant else default

    def _reads(self, target: Target) -> Iterable[Target]:
        now = self.moment()
        return [
            (read.key, partition)
            for read in self.world.table(target[0]).reads
            for partition in self.readings.of(target[0], read, target[1], now)
        ]

    # What may happen, by the name of the event.

    def arrive(self, event: Event, source: str, partition: str | None) -> None:
        self.simulation.arrive(source, partition, at=self._at(event))

    def tell(self, event: Event, source: str, partition: str | None) -> None:
        self.simulation.tell(source, partition, None, at=self._at(event))

    def report(self, event: Event, source: str, partition: str | None) -> None:
        self.simulation.report(source, partition, at=self._at(event))

    def fail(self, event: Event, asset: str, times: int, how: str) -> None:
        at = self._at(event)
        self.simulation.at(at, lambda: self.simulation.fail(asset, times=times, how=RunFate[how]))

    def deploy(self, event: Event, asset: str, code: str | None) -> None:
        def _deploys() -> None:
            self.now = self.now.with_code({asset: code})
            self.simulation.deploy(definitions(self.now), at=self._at(event))

        self.simulation.at(self._at(event), _deploys)

    def request(self, event: Event, asset: str, partition: str | None) -> None:
        self.simulation.at(self._at(event), lambda: self._asks(asset, partition))

    def backfill(self, event: Event, asset: str, most: int) -> None:
        def _asks_for_each() -> None:
            for partition in self.readings.partitions(asset, self.moment())[-most:]:
                self._asks(asset, partition)

        self.simulation.at(self._at(event), _asks_for_each)

    def declare_key(self, event: Event, key: str) -> None:
        def _deploys() -> None:
            self.now = replace(self.now, static=(*self.now.static, key), _by_key={})
            self.readings = Readings(self.now, self.simulation.instance)
            self.simulation.deploy(definitions(self.now), at=self._at(event))

        self.simulation.at(self._at(event), _deploys)

    def _asks(self, asset: str, partition: str | None) -> None:
        table = self.world.table(asset)
        together = [t.key for t in self.world.tables if t.group and t.group == table.group] or [asset]
        if table.plannable and partition in self.readings.partitions(asset, self.moment()):
            self.simulation.request(together, [partition], at=self.simulation.clock.now)

    def cancel(self, event: Event, asset: str) -> None:
        self.simulation.cancel(asset, at=self._at(event))

    def restart(self, event: Event) -> None:
        self.simulation.restart(at=self._at(event))

    def wipe(self, event: Event, asset: str) -> None:
        self.simulation.wipe(asset, at=self._at(event))

    def delete_runs(self, event: Event, asset: str) -> None:
        self.simulation.delete_runs(asset, at=self._at(event))

    def add_key(self, event: Event, key: str) -> None:
        self.simulation.add_keys(DYNAMIC, key, at=self._at(event))

    def remove_key(self, event: Event, key: str) -> None:
        self.simulation.remove_key(DYNAMIC, key, at=self._at(event))

    def fail_check(self, event: Event, asset: str, how: str, times: int) -> None:
        self.simulation.at(
            self._at(event),
            lambda: self.simulation.fail_check(asset, "complete", how=CheckFate[how], times=times),
        )

    def evaluate_check(self, event: Event, asset: str, passed: bool) -> None:
        seconds = check_seconds(self.world, event)
        self.simulation.evaluate_check(asset, "complete", passed=passed, at=self._at(event), seconds=seconds)

    def outage(self, event: Event, until: float) -> None:
        self.simulation.outage(at=self._at(event), until=self.simulation.time(seconds=until))

    def step_clock(self, event: Event, seconds: float) -> None:
        self.simulation.step_clock(seconds, at=self._at(event))

    def switch(self, event: Event, sensor: str, on: bool) -> None:
        self.simulation.switch(sensor, on=on, at=self._at(event))

    def _at(self, event: Event) -> float:
        return self.simulation.time(seconds=event.at)
