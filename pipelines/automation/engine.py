"""One planner a code server: reads what is new in the event log, plans, and remembers what it asked for.

The sensors that ask for runs share it, so that what one asked for is running to the others. Reports of
observations take the same lock: a plan sees all of what one look found, or nothing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dagster import DagsterInstance

from pipelines.automation import adapter, asset_graph
from pipelines.automation.decisions import Plan, Request
from pipelines.automation.follower import Follower
from pipelines.automation.graph import Graph, Target
from pipelines.automation.planner import Planner
from pipelines.settings import load_settings

SLICE_SECONDS = 8.0
"""A tick dies after 60 s, and the code server answers nothing meanwhile: more work than this waits for the next."""

_RESERVED_FOR = 60.0
_lock = threading.RLock()


@contextmanager
def reporting() -> Iterator[None]:
    """No plan is made while this is held."""
    with _lock:
        yield


@dataclass
class Engine:
    """The planner's state for one Dagster instance.

    Args:
        slots: How many runs the instance lets run at once; None where it says nothing.
    """

    follower: Follower
    slots: int | None = None
    planner: Planner = field(init=False)
    reserved: dict[Target, float] = field(default_factory=dict)
    _behind: str = "nothing read yet"
    _rebuild_asked: float = float("-inf")

    def __post_init__(self) -> None:
        self.planner = Planner(self.graph, self.follower.history, slots=self.slots)

    @property
    def graph(self) -> Graph:
        return self.follower.history.graph

    def request(self, instance: DagsterInstance, now: float, *, ranges: bool) -> tuple[list[Request], Plan]:
        """Plan, and take the requests for ranges or the others; what is taken is reserved.

        Args:
            now: Unix seconds.
        """
        with _lock:
            plan = self.look(now, instance)
            taken = [request for request in plan.requests if request.as_range is ranges]
            for request in taken:
                # An asset with a condition of its own may not be asked for after all: nothing is kept for it.
                if not request.conditional:
                    self.reserved |= dict.fromkeys(request.targets, now)
                if request.rebuild:
                    self._rebuild_asked = now
            return taken, plan

    def look(self, now: float, instance: DagsterInstance | None = None) -> Plan:
        """What the plan would be at a time (Unix seconds); nothing is taken, nothing reserved.

        Args:
            instance: Read what is new there first. Without it: by what is known.
        """
        with _lock:
            stop = _after(SLICE_SECONDS)
            if instance is not None:
                self._behind = self.follower.read(instance, stop)
            if self._behind:
                return Plan(now, catching_up=self._behind)
            # A request that led to no run is made again; until then its run may just be slow to appear.
            self.reserved = {
                target: at
                for target, at in self.reserved.items()
                if at + _RESERVED_FOR > now and target not in self.follower.planned
            }
            self.follower.planned.clear()
            rebuilding = bool(self.follower.rebuilds) or self._rebuild_asked + _RESERVED_FOR > now
            return self.planner.plan(now, self.reserved, rebuilding=rebuilding, stop=stop)

    def steady_until(self, now: float) -> float:
        """Until when looks from `now` on give the same plan if the event log has no news (Unix seconds)."""
        ends = [at + _RESERVED_FOR for at in (*self.reserved.values(), self._rebuild_asked)]
        return min([self.planner.steady_until, *(end for end in ends if end > now)])

    def adopt(self, graph: Graph) -> None:
        """Go on with another version of the code."""
        self.follower.history.adopt(graph)
        self.planner = Planner(graph, self.follower.history, slots=self.slots)


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


_engines: dict[str, tuple[asset_graph.AnyGraph, Engine]] = {}


def engine_for(instance: DagsterInstance, assets: asset_graph.AnyGraph) -> Engine:
    """The engine of this process for an instance; made when first asked for, and again when the code is another."""
    with _lock:
        identity = adapter.identity_of(instance)
        known, engine = _engines.get(identity, (None, None))
        if engine is not None and known is assets:
            return engine
        graph = asset_graph.graph_of(assets, contract_scale=load_settings().contract_scale)
        if engine is not None and set(engine.graph.nodes) == set(graph.nodes):
            engine.adopt(graph)
        else:
            engine = Engine(Follower.started(instance, graph), adapter.run_slots(instance))
        _engines[identity] = (assets, engine)
        return engine


def forget(instance: DagsterInstance) -> None:
    """Drop what this process knows of an instance, as the end of a code server does."""
    with _lock:
        _engines.pop(adapter.identity_of(instance), None)
