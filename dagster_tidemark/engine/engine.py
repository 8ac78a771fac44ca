"""The planner of a code server: reads new events of the log, plans, and remembers its requests.

All sensors that request runs share one engine, so that each sensor treats requests of the others as running. Reports of
observations take the same lock: a plan sees either all observations of a listing or none.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dagster import AssetCheckKey, AssetKey, DagsterInstance, RepositoryDefinition, SensorEvaluationContext

from dagster_tidemark import garbage_collector
from dagster_tidemark.asset_graph import planner_graph
from dagster_tidemark.asset_graph.run_plans import EntityKey, RunPlans
from dagster_tidemark.dagster_internals import event_storage, event_time, instance_store, run_storage, sensor_states
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine.check_attempts import CheckAttempts
from dagster_tidemark.engine.override_store import OverrideStore, OverridesUnreadable
from dagster_tidemark.event_log import checkpoint, deployed
from dagster_tidemark.event_log.consumer import LogConsumer, after
from dagster_tidemark.event_log.deployed import code_texts
from dagster_tidemark.event_log.redefined import PartitionsDefinitions
from dagster_tidemark.event_log.standby import standby_of
from dagster_tidemark.planner import run_retries
from dagster_tidemark.planner.decisions import Asked, CheckRequest, Plan, Request, held
from dagster_tidemark.planner.evaluate import Bound
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.overrides import Overrides
from dagster_tidemark.planner.planner import Planner
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Partition

K = TypeVar("K")

SLICE_SECONDS = 8.0
"""Longest work in one tick. The next tick continues it. Dagster ends a tick after 60 s, and the code server answers no
other request during a tick."""

BOUND = Bound()
"""Limits on the decisions in one plan. A first load may have a million pending partitions."""

_RESERVED_FOR = 60.0
_SLOTS_HOLD_FOR = 30.0
"""Seconds until the number of free slots is read again. Stream runs (shifts) take slots while they run."""

_lock = threading.RLock()
_told_lock = threading.Lock()
"""Lock of the logged reasons. With `_lock`, a condition would wait for a sensor that reads the event log."""


@contextmanager
def reporting() -> Iterator[None]:
    """Make no plans during the block."""
    with _lock:
        yield


@dataclass
class Engine:
    """The planner's state for one Dagster instance.

    Args:
        slots: Number of runs that the instance runs at once; None if it sets no limit.
        reserved: Requested partitions whose run has not appeared yet, with the time of the request.
        asked_for: Requests with reserved targets.
        home: The code location whose sensors request runs, and its repository. None means any name.
        off: Names of the location's sensors that are switched off.
        unanswered: Requested partitions that got no run: the number of requests, and the end of the pause.
        plans: Runs that Dagster can plan; None if no sensor of this process has requested runs yet.
        declared: The graph as declared, including assets without a run that Dagster can plan.
        latest: The last plan that was made.
        loaded_after: Storage id of the last event when this process loaded the code; None if no process runs the code.
        partitions: Start of each asset's present partitions definition and required inputs.
        contract_scale: Scale of the lag contracts in the graph.
        checks: Requested runs of blocking checks.
        overrides: Pauses, skips and rebuilds at the last look at the instance.
    """

    follower: LogConsumer
    slots: int | None = None
    planner: Planner = field(init=False)
    reserved: dict[Target, float] = field(default_factory=dict)
    asked_for: list[Request] = field(default_factory=list)
    unanswered: dict[Target, tuple[int, float]] = field(default_factory=dict)
    home: tuple[str | None, str | None] = (None, None)
    off: frozenset[str] = frozenset()
    plans: RunPlans | None = None
    declared: Graph = field(init=False)
    latest: Plan = field(default_factory=lambda: Plan(0.0))
    loaded_after: int | None = None
    partitions: PartitionsDefinitions | None = None
    contract_scale: float = 1.0
    checks: CheckAttempts = field(default_factory=CheckAttempts)
    overrides: Overrides = field(default_factory=Overrides)
    _unreadable: str = ""
    _rejected: dict[Target, str] = field(default_factory=dict)
    _raising: dict[str, str] = field(default_factory=dict)
    _told: dict[Target, str] = field(default_factory=dict)
    _told_of_code: dict[str, str] = field(default_factory=dict)
    _told_of_loops: dict[str, str] = field(default_factory=dict)
    _of_others: dict[Target, str] = field(default_factory=dict)
    _told_others: dict[Target, str] | None = None
    _unplannable: dict[str, str] = field(default_factory=dict)
    _behind: str = "no event read yet"
    _rebuild: frozenset[Target] = frozenset()
    _offered: dict[Target, float] = field(default_factory=dict)
    _slots_until: float = float("-inf")
    _frozen: int = 0

    def __post_init__(self) -> None:
        self.planner = Planner(self.graph, self.follower.history, slots=self.slots, bound=BOUND)
        self.declared = self.graph

    @property
    def graph(self) -> Graph:
        return self.follower.history.graph

    def request(self, instance: DagsterInstance, now: float, *, ranges: bool) -> tuple[list[Request], Plan]:
        """Make a plan, and reserve and return either its requests for ranges or its other requests.

        Args:
            now: Unix seconds.
        """
        with _lock:
            plan = self.look(now, instance)
            taken = [request for request in plan.requests if request.as_range is ranges]
            for request in taken:
                # An asset's own condition may still refuse the run: nothing is reserved for it.
                if not request.conditional:
                    self.reserved |= dict.fromkeys(request.targets, now)
                    self.asked_for.append(request)
                if request.rebuild:
                    self._rebuild = frozenset(request.targets)
            return taken, plan

    def request_checks(self, plan: Plan) -> list[CheckRequest]:
        """Return the required runs of blocking checks whose pause is over, and count an attempt for each."""
        with _lock:
            return self.checks.take(plan)

    def take(self, targets: Collection[Target], now: float) -> list[Target]:
        """Reserve and return the targets that no other sensor has requested since the plan."""
        with _lock:
            running = self.follower.history.running
            free = [target for target in targets if target not in self.reserved and target not in running]
            self.reserved |= dict.fromkeys(free, now)
            singles = [one for one in self.latest.requests if not (one.as_range or one in self.asked_for)]
            self.asked_for += [one for one in singles if not set(one.targets).isdisjoint(free)]
            return free

    def release(self, targets: Collection[Target]) -> None:
        """Drop the reservations of targets that were not requested after all."""
        with _lock:
            self.reserved = {target: at for target, at in self.reserved.items() if target not in set(targets)}

    def reject(self, targets: Collection[Target], reason: str, now: float) -> None:
        """Set aside targets without a possible run, so that they are not requested again at every tick."""
        with _lock:
            self.reserved |= dict.fromkeys(targets, now)
            self._rejected |= dict.fromkeys(targets, reason)

    def asks_for(self, repository: RepositoryDefinition) -> bool:
        """Note that sensors in this process request runs of a repository, and exclude runs that Dagster cannot plan.

        Returns:
            True if the sensors did not request runs of this repository before.
        """
        is_new = self.plans is None or self.plans.repository is not repository
        if is_new:
            with _lock:
                self.plans, self._of_others, self._told_others = RunPlans(repository), {}, None
                nodes = self.declared.nodes.values()
                self._leave_to_people(self.plans.problems(node.key for node in nodes if node.automated))
        return is_new

    def no_run_of(self, key: EntityKey) -> str:
        """Return the reason why the daemon cannot plan a run of an asset or a check; empty if it can."""
        return self.plans.problem(key) if self.plans else ""

    def no_run_of_all(self, assets: Collection[AssetKey], checks: Collection[AssetCheckKey]) -> str:
        """Return the reason why the daemon cannot plan a run of exactly these assets and checks; empty if it can."""
        return self.plans.problem_of(assets, checks) if self.plans else ""

    def not_asked_for(self, asset: str, why: str | None) -> None:
        """Record the logged reason why an asset's own condition cannot request it; None if it can again."""
        with _told_lock:
            if why is not None:
                self._raising[asset] = self._told[(asset, None)] = why
            else:
                self._raising.pop(asset, None)

    def untold(self, plan: Plan) -> dict[Target, str]:
        """Return the targets that were set aside since the last call, with reasons: each is logged once."""
        with _told_lock:
            new = _news(plan.set_aside, self._told)
            self._told = dict(plan.set_aside)
            return new

    def newly_not_loaded(self) -> dict[str, str]:
        """Return code versions of runs that this location has not loaded, by asset: each is logged once."""
        with _told_lock:
            found = self.planner.backlog.not_loaded
            new = _news(found, self._told_of_code)
            self._told_of_code = dict(found)
            return new

    def new_loops(self, plan: Plan) -> list[str]:
        """Return the loops through observations that were found since the last call: each is logged once."""
        with _told_lock:
            found = {
                str(loop.tables): loop.reason for loop in plan.loops if str(loop.tables) not in self._told_of_loops
            }
            self._told_of_loops |= found
            return list(found.values())

    def newly_former(self, instance: DagsterInstance) -> dict[str, list[str]]:
        """Return partitions of former definitions, by asset. Each asset is returned once per changed definition."""
        with _told_lock:
            if self.partitions is None or self._behind or not self.follower.history.former:
                return {}
            found: dict[str, list[str]] = {}
            for asset, partition in self.follower.history.former:
                if asset not in self.partitions.reported:
                    found.setdefault(asset, []).append(str(partition))
            if found:
                self.partitions.reported |= found.keys()
                self.partitions.keep(instance)
            return {asset: sorted(keys) for asset, keys in found.items()}

    def look(self, now: float, instance: DagsterInstance | None = None) -> Plan:
        """Return the plan at a time (Unix seconds), without reserving its requests.

        Args:
            instance: Instance whose new events are read first; None to plan with the events read so far.
        """
        # Only one sensor reads the log at a time: together, the sensors would take longer than a tick may.
        if not _lock.acquire(timeout=SLICE_SECONDS):
            return Plan(now, catching_up="another sensor is reading the event log")
        try:
            stop = after(SLICE_SECONDS)
            if not self.planner.deciding:  # new events must not change an unfinished plan
                self._hear_of_others(instance)
                with garbage_collector.paused():
                    self._read(instance, now, stop)
                self._look_after_requests(now)
            if self._behind:
                return Plan(now, catching_up=self._behind)
            rebuilding = bool(self.follower.rebuilds) or not self._rebuild.isdisjoint(self.reserved)
            self.asked_for = [one for one in self.asked_for if not self.reserved.keys().isdisjoint(one.targets)]
            asked = Asked(
                frozenset(self.reserved),
                dict(self.unanswered),
                rebuilding,
                frozenset(self.follower.by_people),
                tuple(self.asked_for),
                frozenset(self.follower.history.open_runs.keys() - self.follower.begun),
                self._offered,
                self.off,
            )
            with garbage_collector.paused():
                found = self.planner.plan(now, asked, stop=stop)
            if not found.catching_up:
                self._frozen = garbage_collector.frozen(len(self.follower.history.facts), self._frozen)
                conditional = (target for one in found.requests if one.conditional for target in one.targets)
                self._offered = {target: min(self._offered.get(target, now), now) for target in conditional}
            self.latest = self._as_asked_for(found, instance)
            return self.latest
        finally:
            _lock.release()

    def _hear_of_others(self, instance: DagsterInstance | None) -> None:
        """Read the failed requests of the code server's process, unless this process requests runs itself."""
        if instance is not None and self.plans is None:
            self._of_others, unplannable = deployed.failed_requests(instance, self.graph)
            self._leave_to_people(unplannable)

    def _leave_to_people(self, unplannable: dict[str, str]) -> None:
        if unplannable != self._unplannable:
            self._use(self.declared.without_runs_of(unplannable))
            self._unplannable = unplannable

    def _read(self, instance: DagsterInstance | None, now: float, stop: Callable[[], bool]) -> None:
        """Read the present time, the dynamic partitions, the sensors that are switched off, and the new events."""
        if instance is None:
            self.graph.moment.moves_to(now)
            return
        names = self.graph.dynamic
        self.graph.moment.moves_to(now, event_storage.dynamic_partitions(instance, names) if names else None)
        location, repository = self.home
        self.off = sensor_states.stopped_sensors(instance, location=location, repository=repository)
        self.read_overrides(instance)
        self.follower.history.overrides = self.overrides
        self._behind = self.follower.read(instance, stop) or self._unreadable
        if (
            self.loaded_after is not None and not self._behind
        ):  # only then does the reader know which ids were assigned again
            self.graph.moment.loaded_after = self.follower.reader.place(self.loaded_after)
        if not now < self._slots_until <= now + _SLOTS_HOLD_FOR:  # later only if the clock was set back
            self.slots = self.planner.slots = run_storage.run_slots(instance)
            self._slots_until = now + _SLOTS_HOLD_FOR

    def read_overrides(self, instance: DagsterInstance) -> None:
        """Read what people have asked for. If that is impossible, nothing is requested: something may be paused."""
        try:
            found = Overrides.of(OverrideStore(instance).read(), self.follower.reader.place)
        except OverridesUnreadable as error:
            self._unreadable = str(error)
            return
        self._unreadable = ""
        if found != self.overrides:
            self.overrides = found

    def paused(self, asset: str, partitions: Collection[Partition]) -> tuple[set[Partition], str]:
        """Return the given partitions of an asset that are paused, and the reason of one pause."""
        node = self.graph.nodes.get(asset)
        if self._unreadable or node is None:
            return (set(partitions), self._unreadable) if self._unreadable else (set(), "")
        found = {p: called(self.overrides.pause_of, node, p, event_time.now()) for p in partitions}
        paused = {partition: pause for partition, pause in found.items() if pause is not None}
        why = next((str(one) if isinstance(one, Raised) else one.told() for one in paused.values()), "")
        return set(paused), why

    def _look_after_requests(self, now: float) -> None:
        """Release requests that led to no run, so that they are repeated: at once first, then after growing pauses."""
        # Times after `now` were noted before the clock was set back. Their waits must not last longer because of that.
        self.reserved = {target: min(at, now) for target, at in self.reserved.items()}
        self.unanswered = {
            target: (asked, min(until, now + _pause_after(asked))) for target, (asked, until) in self.unanswered.items()
        }
        for target, at in list(self.reserved.items()):
            if target in self.follower.planned:
                self.unanswered.pop(target, None)
            elif at + _RESERVED_FOR > now:
                continue  # its run may just be slow to appear
            else:
                asked = self.unanswered.get(target, (0, now))[0] + 1
                self.unanswered[target] = (asked, now + _pause_after(asked))
            del self.reserved[target]
        for target in self.unanswered.keys() & self.follower.planned:
            del self.unanswered[target]
        self.follower.planned.clear()

    def _as_asked_for(self, plan: Plan, instance: DagsterInstance | None) -> Plan:
        """Return the plan without requests of stopped sensors. Failed requests are set aside until they are retried."""
        aside = self._asked_in_vain(instance)
        found = replace(plan, set_aside=aside | plan.set_aside) if aside else plan
        return held(found, self.graph, self.off) if self.off else found

    def _asked_in_vain(self, instance: DagsterInstance | None) -> dict[Target, str]:
        """Return failed requests with reasons. If this process's sensors tick, save its own for other processes."""
        asked = self.reserved.keys() | self.unanswered.keys()
        self._rejected = {target: why for target, why in self._rejected.items() if target in asked}
        with _told_lock:
            own = self._rejected | {(asset, None): why for asset, why in self._raising.items()}
        if instance is not None and self.plans and own != self._told_others:
            ours = [key for key, node in self.declared.nodes.items() if not node.source]
            deployed.keep_failed_requests(instance, self.home, own, self._unplannable, ours)
            self._told_others = own
        return self._of_others | own

    def steady_until(self, now: float) -> float:
        """Return the time until which plans stay the same if no event is logged (Unix seconds)."""
        ends = [at + _RESERVED_FOR for at in self.reserved.values()]
        tries = self.checks.next_tries(self.latest)
        return min([self.planner.steady_until, *(at for at in (*ends, *tries) if at > now)])

    def adopt(self, graph: Graph) -> None:
        """Continue with another version of the code."""
        self.follower.history.replaced = {key: node.code_version for key, node in self.declared.nodes.items()}
        self.declared, self._unplannable = graph, {}
        self._use(graph)

    def _use(self, graph: Graph) -> None:
        self.follower.adopt(graph)
        self.planner = Planner(graph, self.follower.history, slots=self.slots, bound=BOUND)


def _pause_after(asked: int) -> float:
    """Return the pause after a number of requests that led to no run (seconds)."""
    return 0.0 if asked == 1 else run_retries.backoff(asked - 1)


def _news(now: Mapping[K, str], before: Mapping[K, str]) -> dict[K, str]:
    """Return the entries that are new or changed."""
    return {key: said for key, said in now.items() if before.get(key) != said}


_engines: dict[str, list[tuple[AnyGraph, Engine]]] = {}
"""Engines of each instance, one per code location in this process. Most processes have one location."""


def engine_for(instance: DagsterInstance, assets: AnyGraph, settings: Settings | None = None) -> Engine:
    """Return the engine of this process for an instance. It is made on the first call, and when the code has changed.

    Args:
        settings: Settings of the code location, with the scale of its contracts. A condition has no settings and passes
            None: it gets the engine that a sensor made, or a new engine with unscaled contracts.
    """
    identity, scale = instance_store.identity_of(instance), settings.contract_scale if settings else None
    # Without the lock: a mere lookup must not wait until another sensor has read the log.
    if (found := _made_for(identity, assets, scale)) is not None:
        return found
    with _lock:
        if (found := _made_for(identity, assets, scale)) is not None:
            return found
        graph = planner_graph.graph_of(assets, contract_scale=scale or 1.0)
        loaded_after = event_storage.last_event_id(instance)
        definitions = PartitionsDefinitions.of(instance, checkpoint.key_of(graph), graph)
        definitions.date(graph)
        others = _engines.get(identity, [])
        same = next((e for _, e in others if e.follower.key == checkpoint.key_of(graph)), None)
        if same is not None and set(same.graph.nodes) == set(graph.nodes):
            engine = same
            engine.adopt(graph)
        else:
            if same is not None:
                same.follower.save(instance)
                garbage_collector.thaw()
            engine = Engine(LogConsumer.started(instance, graph), run_storage.run_slots(instance))
        engine.loaded_after, engine.partitions, engine.contract_scale = loaded_after, definitions, scale or 1.0
        _engines[identity] = [*((of, e) for of, e in others if e is not same), (assets, engine)]
        return engine


def _made_for(identity: str, assets: AnyGraph, scale: float | None) -> Engine | None:
    made = (engine for known, engine in _engines.get(identity, ()) if known is assets)
    return next((engine for engine in made if scale in (None, engine.contract_scale)), None)


def engine_of(context: SensorEvaluationContext, assets: AnyGraph, settings: Settings | None = None) -> Engine:
    """Return the engine for a sensor's instance, and let it know the sensor's code location."""
    found, origin = engine_for(context.instance, assets, settings), context.code_location_origin
    if origin is not None:
        found.home = (origin.location_name, context.repository_name)
    standby = standby_of(context, settings)
    if standby is not None and standby.is_settling():
        # Runs of the replaced code server may still appear. Their code is known to be older, not newer.
        found.loaded_after = event_storage.last_event_id(context.instance)
    if context.repository_def is not None and found.asks_for(context.repository_def):
        deployed.keep(context.instance, found.home, found.declared)
        code = code_texts(settings.code_root, settings.code_location) if settings and settings.project else {}
        deployed.keep_code(context.instance, found.home, found.declared, code)
        if found.partitions is not None:
            found.partitions.keep(context.instance)
    return found


def forget(instance: DagsterInstance) -> None:
    """Drop the engines of an instance, as if its code server had ended."""
    with _lock:
        if _engines.pop(instance_store.identity_of(instance), None):
            garbage_collector.thaw()
