"""Days of arrivals, failures, deploys and outages in seconds: how automation is tested, yours included.

    simulation = Simulation([raw_orders, orders, sales_hourly], start=datetime(2026, 10, 1, tzinfo=UTC))
    simulation.arrive("raw/orders", "2026-10-01-07:00", at=simulation.time(hours=7, minutes=12))
    simulation.run(hours=10)
    assert [run.assets for run in simulation.runs] == [("orders", "sales_hourly")]

The sensors are the real ones, on a real (ephemeral) instance whose clock is the simulation's. Runs are not executed:
they wait, last and fail as `Pace` says, and write the events a real run writes. Belongs here: what happens when, and
the ticks of the sensors. Does not belong here: the life of a run (`automation.simulated_runs`), how it is written down
(`automation.simulated_log`), what a table then holds (`automation.simulated_tables`).

Longer than 250 lines, because a third is the vocabulary of tests: a method of two or three lines for each thing that
can happen.
"""

import heapq
import itertools
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import dagster as dg
from dagster import DagsterInstance, RunRequest

from pipelines.automation import adapter, engine
from pipelines.automation.asset_graph import graph_of
from pipelines.automation.catch_up import automation_sensor, catch_up_sensor, due_now
from pipelines.automation.condition import Derived
from pipelines.automation.decisions import Plan
from pipelines.automation.graph import Target
from pipelines.automation.simulated_instance import simulated_instance
from pipelines.automation.simulated_log import Clock, Log, partition_tags
from pipelines.automation.simulated_runs import Pace, Run, Runs
from pipelines.automation.simulated_tables import Content, Tables
from pipelines.sources.feed import Partition

_LOOKS_FOR_NEWS = 2
"""A run that is new to a look and has ended already is closed by the next look."""

Assets = dg.Definitions | Sequence[dg.AssetsDefinition | dg.SourceAsset | dg.AssetSpec]


class Simulation:
    """A platform in simulated time.

    Args:
        assets: A list of assets, or definitions (of which the assets are taken).
        start: The first moment, with a time zone.
        seed: The same seed gives the same days.
        every_tick: Evaluate each tick of the sensors. Otherwise only those at which a plan asks for something, which
            gives the same runs; a graph with conditions of your own is always ticked.
        content: What the content version of a partition becomes, if not a hash of its inputs' and its code's.
    """

    def __init__(
        self,
        assets: Assets,
        *,
        start: datetime,
        seed: int = 0,
        pace: Pace | None = None,
        every_tick: bool = False,
        content: Content | None = None,
        instance: DagsterInstance | None = None,
    ) -> None:
        self.pace = pace or Pace()
        self.start = start
        self.clock = Clock(start.timestamp())
        self.instance = instance or simulated_instance(self.pace.at_once)
        self.tables = Tables(content)
        self.arrivals: list[tuple[float, Target]] = []
        self.ticks = 0
        self._seed = seed
        self._every_tick = every_tick
        self._chance = random.Random(f"{seed}/arrivals")
        self._phase = random.Random(f"{seed}/ticks").uniform(0.0, self.pace.tick)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._runs = Runs(self.pace, seed, self.clock, self.tables, self.at, self._stir)
        self._sensors = [automation_sensor(), catch_up_sensor()]
        self._cursors: dict[str, str | None] = {}
        self._next_tick = 0
        self._looks_owed = _LOOKS_FOR_NEWS
        self._down = False
        self._load(assets)

    @property
    def runs(self) -> list[Run]:
        """Every run so far, in the order of their creation."""
        return self._runs.all

    def runs_of(self, asset: str, partition: Partition = None) -> list[Run]:
        """The runs that build an asset (or one partition of it)."""
        return [r for r in self.runs if asset in r.assets and (partition is None or partition in r.partitions)]

    def observed(self, source: str) -> list[tuple[Partition, float]]:
        """Every observation of a source so far: partition, and when the data arrived (Unix seconds)."""
        events = adapter.events_after(self.instance.fetch_observations, source, 0)
        return [(e.partition_key, float(adapter.observation_tags(e)[adapter.ARRIVED_AT])) for e in events]

    def time(self, **since_start: float) -> float:
        """A moment after the start, in Unix seconds: `time(days=1, hours=9)`."""
        return self.start.timestamp() + timedelta(**since_start).total_seconds()

    # What is to happen.

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time (Unix seconds)."""
        heapq.heappush(self._agenda, (when, next(self._order), action))

    def arrive(self, source: str, partition: Partition = None, *, at: float, version: str | None = None) -> None:
        """Data arrives in a partition of a source; by default its version is a new one."""
        notice = self._chance.uniform(*self.pace.notice)
        self.at(at, lambda: self._arrived((source, partition), version))
        self.at(at + notice, lambda: self._noticed((source, partition)))

    def observe(
        self, source: str, partition: Partition, version: str, *, at: float, listed_at: float | None = None
    ) -> None:
        """Somebody reports an observation: of a listing of that time (Unix seconds), by default of just now."""
        listed = at if listed_at is None else listed_at
        self.at(at, lambda: self._observed((source, partition), version, listed))

    def fail(self, asset: str, partition: Partition = None, *, times: int = 1) -> None:
        """The next runs that build this (any partition, if none is given) fail at it."""
        left = itertools.repeat(True, times)
        self._runs.failing.append(lambda run, at: _meant(run, at, asset, partition) and next(left, False))

    def slow(self, asset: str, partition: Partition = None, *, seconds: float, times: int = 1) -> None:
        """The next runs that build this (any partition, if none is given) take so long at it."""
        left = itertools.repeat(seconds, times)
        self._runs.lasting.append(lambda run, at: next(left, None) if _meant(run, at, asset, partition) else None)

    def request(self, assets: Sequence[str], partitions: Sequence[Partition] = (None,), *, at: float) -> None:
        """A person asks for a run over consecutive partitions, in the UI."""
        self.at(at, lambda: self._create(assets, partition_tags(partitions)))

    def report(self, asset: str, partition: Partition = None, *, at: float, content: str | None = None) -> None:
        """A person, or another system, reports a materialization that no run made."""
        self.at(at, lambda: self._reported((asset, partition), content))

    def wipe(self, asset: str, *, at: float) -> None:
        """A person wipes an asset in the UI: nothing says any more that it was ever built."""
        self.at(at, lambda: self._wiped(asset))

    def deploy(self, assets: Assets, *, at: float) -> None:
        """Other code from a time on; what the code server knew is gone."""
        self.at(at, lambda: self._load(assets))

    def restart(self, *, at: float) -> None:
        """The code server forgets everything; runs go on."""
        self.at(at, lambda: self._load(None))

    def outage(self, *, at: float, until: float) -> None:
        """Nothing ticks, nothing is observed, and the runs under way die."""
        self.at(at, self._go_down)
        self.at(until, self._come_up)

    # What happens.

    def run(self, **period: float) -> None:
        """Let time pass: `run(hours=3)`."""
        self.run_until(self.clock.now + timedelta(**period).total_seconds())

    def run_until(self, until: float) -> None:
        """Let time pass until a moment (Unix seconds)."""
        with self.clock.frozen():
            while True:
                happens_at = min(self._agenda[0][0], until) if self._agenda else until
                tick_at = self._time_of_tick(before=happens_at)
                if tick_at is not None:
                    self.clock.now = tick_at
                    self._tick()
                elif happens_at < until:
                    self.clock.now, _, action = heapq.heappop(self._agenda)
                    action()
                else:
                    break
            self.clock.now = until

    def plan(self) -> Plan:
        """What the planner says now; nothing is asked for by looking."""
        with self.clock.frozen():
            return self._engine().look(self.clock.now, self.instance)

    def _load(self, assets: Assets | None) -> None:
        if assets is not None:
            loaded = assets if isinstance(assets, dg.Definitions) else dg.Definitions(assets=assets)
            self._repository = loaded.get_repository_def()
            asset_graph = self._repository.asset_graph
            self._log = self._runs.log = Log(self.instance, self.clock, asset_graph)
            self.tables.graph = self.graph = graph_of(asset_graph)
            self.tables.code_versions = self._log.code_versions()
            conditions = (node.automation_condition for node in asset_graph.asset_nodes)
            self._own_conditions = any(not isinstance(found, Derived | None) for found in conditions)
        engine.forget(self.instance)
        self._stir()

    def _engine(self) -> engine.Engine:
        return engine.engine_for(self.instance, self._repository.asset_graph)

    def _stir(self) -> None:
        self._looks_owed = _LOOKS_FOR_NEWS

    def _reported(self, target: Target, content: str | None) -> None:
        self._log.reported(*target, content)
        self._stir()

    def _arrived(self, target: Target, version: str | None) -> None:
        self.arrivals.append((self.clock.now, target))
        self.tables.arrived(target, version, self.clock.now)

    def _look(self, target: Target) -> bool:
        found = None if self._down else self.tables.look(target, self.clock.now)
        if found is not None:
            version, arrived_at = found
            self._log.observed(*target, version, listed_at=self.clock.now, arrived_at=arrived_at)
            self._stir()
        return found is not None

    def _noticed(self, target: Target) -> None:
        if self._look(target):
            self._ask_for_news()

    def _observed(self, target: Target, version: str, listed_at: float) -> None:
        self._log.observed(*target, version, listed_at=listed_at, arrived_at=listed_at)
        self._stir()
        self._ask_for_news()

    def _ask_for_news(self) -> None:
        # As the landing sensor does with what it found.
        with self._context("landing") as context:
            self._ask(due_now(context))

    def _wiped(self, asset: str) -> None:
        self.instance.wipe_assets([dg.AssetKey.from_user_string(asset)])
        self._stir()

    def _go_down(self) -> None:
        self._down = self._runs.paused = True
        self._runs.kill_all()

    def _come_up(self) -> None:
        self._down = False
        self._load(None)
        self._runs.resume()
        for target in list(self.tables.sources):
            self._look(target)

    def _time_of_tick(self, *, before: float) -> float | None:
        """When the sensors are evaluated next, if that is before something else happens.

        Between two happenings, time alone makes something due: a plan without the event log tells at which tick.
        """
        if self._down:
            return None
        origin = self.start.timestamp() + self._phase
        self._next_tick = max(self._next_tick, math.ceil((self.clock.now - origin) / self.pace.tick))
        while (moment := origin + self._next_tick * self.pace.tick) < before:
            if self._every_tick or self._own_conditions or self._would_ask(moment):
                return moment
            steady_until = moment if self._looks_owed else min(self._engine().steady_until(moment), before)
            self._next_tick = max(self._next_tick + 1, math.ceil((steady_until - origin) / self.pace.tick))
        return None

    def _would_ask(self, moment: float) -> bool:
        news = self._looks_owed > 0
        self._looks_owed -= news
        return bool(self._engine().look(moment, self.instance if news else None).requests)

    def _tick(self) -> None:
        self.ticks += 1
        self._next_tick += 1
        one_first = random.Random(f"{self._seed}/tick {self._next_tick}").random() < 0.5
        for sensor in self._sensors if one_first else reversed(self._sensors):
            with self._context(sensor.name) as context:
                result = sensor.evaluate_tick(context)
            self._cursors[sensor.name] = result.cursor
            self._ask(result.run_requests or [])

    def _context(self, sensor: str) -> dg.SensorEvaluationContext:
        cursor = self._cursors.get(sensor)
        context = dg.build_sensor_context(self.instance, cursor, repository_def=self._repository, sensor_name=sensor)
        context.log.setLevel(logging.WARNING)  # Dagster tells five lines a tick
        return context

    def _ask(self, requests: Sequence[RunRequest]) -> None:
        for request in requests:
            keys = [key.to_user_string() for key in request.asset_selection or []]
            own = {} if request.partition_key is None else partition_tags([request.partition_key])
            self._create(keys, {**request.tags, **own})

    def _create(self, assets: Sequence[str], tags: Mapping[str, str]) -> None:
        self._runs.create([key for key in self.graph.nodes if key in assets], tags)


def _meant(run: Run, at: str, asset: str, partition: Partition) -> bool:
    return at == asset and (partition is None or partition in run.partitions)
