"""A platform in simulated time: its events, their effects, and the ticks of its sensors.

Belongs here: the agenda, the ticks, and the effects of each event on tables, event log and runs. Does not belong here:
the vocabulary of tests (`simulation.simulator`).
"""

import heapq
import itertools
import logging
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.engine import engine
from dagster_tidemark.engine.condition import Derived
from dagster_tidemark.engine.guarded_conditions import ASKS_FOR_NOTHING
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.overrides import Override, OverrideKind, without
from dagster_tidemark.planner.wording import names
from dagster_tidemark.settings import Settings
from dagster_tidemark.simulation.daemon import Daemon
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.log import Clock, SimulatedLog
from dagster_tidemark.simulation.run import Run, RunPace
from dagster_tidemark.simulation.runs import Runs
from dagster_tidemark.simulation.simulated_tables import Content, Reads, Tables
from dagster_tidemark.sources.feed import Partition

_LOOKS_FOR_NEWS = 2
"""Reads of the event log after each change. If a run has ended before its first read, the second read closes it."""

_AFTER_A_FAILED_TICK = 60.0
"""Seconds. Dagster ticks again at once, which would give 17,000 failing ticks a day."""

_Listed = Sequence[dg.AssetsDefinition | dg.SourceAsset | dg.AssetSpec]
Assets = dg.Definitions | _Listed

logger = logging.getLogger(__name__)


class Platform:
    """A code location, its daemon and its runs. `simulation.simulator.Simulation` documents the arguments."""

    def __init__(
        self,
        assets: Assets,
        *,
        start: datetime,
        seed: int = 0,
        pace: RunPace | None = None,
        every_tick: bool = False,
        own_every: float = 0.0,
        content: Content | None = None,
        reads: Reads | None = None,
        instance: DagsterInstance | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.pace = pace or RunPace()
        self.start = start
        self.clock = Clock(start.timestamp())
        self.instance = instance or simulated_instance(self.pace.at_once)
        self.tables = Tables(content, reads)
        self.arrivals: list[tuple[float, Target]] = []
        self.versions: list[tuple[float, Target, str]] = []
        self.ticks = 0
        self._seed = seed
        self._every_tick, self._own_every = every_tick, own_every
        self._chance = random.Random(f"{seed}/arrivals")
        self._phase = random.Random(f"{seed}/ticks").uniform(0.0, self.pace.tick)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._runs = Runs(self.pace, seed, self.clock, self.tables, self.at, self._stir)
        self._settings = settings
        self._daemon = Daemon(self.instance, self._create, settings)
        self._next_tick = 0
        self._rests_until = self._tries_again = self._ticked_at = float("-inf")
        self._looks_owed = _LOOKS_FOR_NEWS
        self._new_code = 0
        self._down = False
        self._load(assets)

    @property
    def runs(self) -> list[Run]:
        """Every run so far, in the order of their creation."""
        return self._runs.all

    def runs_of(self, asset: str, partition: Partition = None) -> list[Run]:
        """Return the runs that build an asset, or one of its partitions."""
        return [r for r in self.runs if asset in r.assets and (partition is None or partition in r.partitions)]

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action at a time (Unix seconds)."""
        heapq.heappush(self._agenda, (when, next(self._order), action))

    def run(self, **period: float) -> None:
        """Run the simulation for a period: `run(hours=3)`."""
        self.run_until(self.clock.now + timedelta(**period).total_seconds())

    def run_until(self, until: float) -> None:
        """Run the simulation until a time (Unix seconds)."""
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
        """Return the planner's present plan, without requesting runs."""
        with self.clock.frozen():
            return self._engine().look(self.clock.shown, self.instance)

    def _load(self, assets: Assets | None) -> None:
        if assets is not None:
            loaded = assets if isinstance(assets, dg.Definitions) else _definitions_of(assets)
            self._repository = loaded.get_repository_def()
            self.asset_graph = self._repository.asset_graph
            self._log = self._runs.log = SimulatedLog(self.instance, self.clock, self.asset_graph)
            self._daemon.load(self._repository, self._log)
            self.tables.graph = self.graph = self._graph()
            self.tables.code_versions = self._log.code_versions()
            checks = (self.asset_graph.get(key).automation_condition for key in self.asset_graph.asset_check_keys)
            conditions = [*(node.automation_condition for node in self.asset_graph.asset_nodes), *checks]
            self._own_conditions = any(
                not (isinstance(found, Derived | None) or getattr(found, ASKS_FOR_NOTHING, False))
                for found in conditions
            )
        engine.forget(self.instance)
        self._new_code = _LOOKS_FOR_NEWS  # the first ticks read the whole log, and their plans differ
        self._stir()

    def _graph(self) -> Graph:
        try:
            return graph_of(self.asset_graph)
        except Exception:  # every tick fails then, and reports the error
            return Graph({})

    def _engine(self) -> engine.Engine:
        return engine.engine_for(self.instance, self.asset_graph, self._settings)

    def _stir(self) -> None:
        self._looks_owed = _LOOKS_FOR_NEWS

    def _reported(self, target: Target, content: str | None, version: str | None) -> None:
        held = content or version or f"reported at {self.clock.now}"
        if not self.asset_graph.get(dg.AssetKey.from_user_string(target[0])).is_materializable:
            self._arrives(target, held)
        else:
            self.tables.write(target[0], {target[1]: held})
        self._log.reported(*target, content, version)
        self._stir()

    def _arrives(self, target: Target, version: str | None) -> None:
        self.arrivals.append((self.clock.now, target))
        self.tables.arrived(target, version, self.clock.now)
        self.versions.append((self.clock.now, target, self.tables.sources[target].version))

    def _told(self, target: Target, version: str | None) -> None:
        self._arrives(target, version)
        self._log.told(*target, version)
        self._stir()

    def _switched(self, sensor: str, *, on: bool) -> None:
        self._daemon.switch(sensor, on=on)
        self._stir()

    def _overridden(self, kind: OverrideKind, assets: Sequence[str], until: float | None = None) -> None:
        codes = {key: node.code_version for key, node in self.graph.nodes.items() if key in assets}
        last, at = event_storage.last_event_id(self.instance), self.clock.shown
        made = Override(
            f"o-{next(self._order)}", kind, ", ".join(assets), tuple(assets), "a person", "simulated", at, last, until
        )
        OverrideStore(self.instance).change(lambda before: [*before, replace(made, codes=codes)])
        self._stir()

    def _resumed(self) -> None:
        at = self.clock.shown
        pauses = [each.id for each in OverrideStore(self.instance).read() if each.kind is OverrideKind.PAUSE]
        OverrideStore(self.instance).change(lambda before: without(before, pauses, at=at, by="a person"))
        self._stir()

    def _keys_added(self, name: str, keys: Sequence[str]) -> None:
        self.instance.add_dynamic_partitions(name, list(keys))
        self._stir()

    def _key_removed(self, name: str, key: str) -> None:
        self.instance.delete_dynamic_partition(name, key)
        self._stir()

    def _check_alone(self, key: dg.AssetCheckKey, passed: bool, seconds: float) -> None:
        run_id, log = f"{self._chance.getrandbits(128):032x}", self._log

        def _ends() -> None:
            log.check_ends(run_id, key, passed=passed)
            self._stir()

        log.check_begins(run_id, key)
        self._stir()
        if seconds:
            self.at(self.clock.now + seconds, _ends)
        else:
            _ends()

    def _evaluated(self, key: dg.AssetCheckKey, passed: bool, blocking: bool | None) -> None:
        self._log.checked(None, key, passed=passed, blocking=blocking)
        self._stir()

    def _healed(self) -> None:
        for told in (self._runs.meeting, self._runs.failing, self._runs.stalling):
            told.clear()

    def _canceled(self, asset: str) -> None:
        for run in self.runs_of(asset):
            self._runs.cancel(run)

    def _runs_deleted(self, asset: str) -> None:
        for run in self.runs_of(asset):
            if run.ended_at is not None:
                self.instance.delete_run(run.id)
        self._stir()

    def _clock_stepped(self, seconds: float) -> None:
        # Dagster does not tick a sensor until the clock is past its last tick.
        self._rests_until = max(self._rests_until, self.clock.now - seconds)
        self.clock.skew += seconds
        self._stir()

    def _look(self, target: Target) -> bool:
        found = None if self._down else self.tables.look(target, self.clock.now)
        if found is not None:
            version, arrived_at = found
            self._log.observed(*target, version, listed_at=self.clock.now, arrived_at=arrived_at)
            self._stir()
        return found is not None

    def _noticed(self, target: Target) -> None:
        if self.clock.now < self._rests_until:
            self.at(self._rests_until, lambda: self._noticed(target))
        elif self._look(target):
            self._daemon.ask_for_news()

    def _observed(self, target: Target, version: str, listed_at: float) -> None:
        self._log.observed(*target, version, listed_at=listed_at, arrived_at=listed_at)
        self._stir()
        self._daemon.ask_for_news()

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
        """Return the time of the next evaluation of the sensors, or None if another event happens before.

        Between two events, partitions become due only by time. So plans that do not read the event log find the tick.
        """
        if self._down:
            return None
        origin = self.start.timestamp() + self._phase
        begin = max(self.clock.now, self._rests_until, self._tries_again)
        self._next_tick = max(self._next_tick, math.ceil((begin - origin) / self.pace.tick))
        while (moment := origin + self._next_tick * self.pace.tick) < before:
            own = self._own_conditions and moment >= self._ticked_at + self._own_every
            if self._every_tick or own or self._new_code or self._would_ask(moment):
                return moment
            steady_until = moment if self._looks_owed else min(self._steady_until(moment), before)
            if self._own_conditions:
                steady_until = min(steady_until, self._ticked_at + self._own_every)
            self._next_tick = max(self._next_tick + 1, math.ceil((steady_until - origin) / self.pace.tick))
        return None

    def _steady_until(self, moment: float) -> float:
        return self._engine().steady_until(moment + self.clock.skew) - self.clock.skew

    def _would_ask(self, moment: float) -> bool:
        news = self._looks_owed > 0
        self._looks_owed -= news
        now, self.clock.now = self.clock.now, moment
        try:
            plan = self._engine().look(self.clock.shown, self.instance if news else None)
            checks = self._engine().checks.due(plan)
            return bool(checks) or any(not request.conditional for request in plan.requests)
        except Exception:  # the tick will report the error
            return True
        finally:
            self.clock.now = now

    def _tick(self) -> None:
        self.ticks += 1
        self._next_tick += 1
        self._ticked_at = self.clock.now
        self._new_code -= self._new_code > 0
        if not self._daemon.tick(random.Random(f"{self._seed}/tick {self._next_tick}")):
            self._tries_again = self.clock.now + _AFTER_A_FAILED_TICK
            self._stir()

    def _create(
        self,
        assets: Collection[str],
        tags: Mapping[str, str],
        checks: Collection[dg.AssetCheckKey] | None = None,
    ) -> None:
        ordered = [key.to_user_string() for key in self.asset_graph.toposorted_asset_keys]
        self._runs.create([key for key in ordered if key in assets], tags, checks)


def _definitions_of(assets: _Listed) -> dg.Definitions:
    """Return definitions of listed assets. Log the assets that no sensor will request."""
    built = (each for each in assets if isinstance(each, dg.AssetsDefinition) and each.is_materializable)
    idle = sorted(spec.key.to_user_string() for each in built for spec in each.specs if not spec.automation_condition)
    if idle:
        logger.warning(
            f"the simulation requests no run of {names(idle)}, because a plain list keeps assets without an automation "
            "condition as they are: set automation_condition=derived(), or pass the definitions of build_definitions"
        )
    return dg.Definitions(assets=assets)
