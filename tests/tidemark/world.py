"""A history that is told what happens, and the planner's answer: for tests without Dagster."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.decisions import Asked, Decision, Plan, State
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.planner import Planner

NOW = 1_790_000_000.0  # 2026-09-21


def day_of(hour: str | None) -> list[str | None]:
    return [str(hour)[:10]]


def hours_of(day: str | None) -> list[str | None]:
    return [f"{day}-{h:02}:00" for h in range(24)]


def same(partition: str | None) -> list[str | None]:
    return [partition]


def ordinal(partition: str | None) -> int:
    return int(str(partition)[8:10]) * 24 + int(str(partition)[11:13] or 0)


def hour_window(partition: str | None) -> Window:
    start = time(f"{str(partition)[:10]} {str(partition)[11:]}")
    return Window(start, start + 3600)


def day_window(partition: str | None) -> Window:
    start = time(str(partition))
    return Window(start, start + 86_400)


def time(text: str) -> float:
    """`2026-09-20 07:10` in Unix seconds."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@dataclass
class World:
    """A history that is told what happens, with ids in the order of telling."""

    graph: Graph
    now: float = NOW
    id: int = 0
    reserved: set[tuple[str, str | None]] = field(default_factory=set)
    history: History = field(init=False)
    planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.graph)
        self.planner = Planner(self.graph, self.history)

    def next(self) -> int:
        self.id += 1
        return self.id

    def arrive(
        self, partition: str | None, version: str, key: str = "raw/orders", listed_at: float | None = None
    ) -> None:
        listed = self.now if listed_at is None else listed_at
        self.history.observed((key, partition), id=self.next(), version=version, arrived_at=self.now, listed_at=listed)

    def start(self, run: str, *targets: tuple[str, str | None]) -> None:
        for target in targets:
            self.history.planned([target], id=self.next(), run_id=run, at=self.now)

    def build(self, run: str, target: tuple[str, str | None], content: str | None = None) -> None:
        as_of = self.history.as_of(run, target)
        code = self.planner.graph.nodes[target[0]].code_version
        self.history.materialized(
            target, id=self.next(), run_id=run, as_of=as_of, version=content, at=self.now, code_version=code
        )

    def made(self, asset: str, *partitions: str | None, content: str | None = None, seconds: float = 10.0) -> None:
        """A run of some partitions from its creation to its end."""
        run = f"run {self.next()}"
        self.start(run, *[(asset, partition) for partition in partitions])
        for partition in partitions:
            self.build(run, (asset, partition), content)
        self.history.ended(run, at=self.now, seconds=seconds)

    def fail(self, asset: str, partition: str | None) -> None:
        """A run that ends without building anything."""
        run = f"run {self.next()}"
        self.start(run, (asset, partition))
        self.end(run)

    def deploy(self, graph: Graph) -> None:
        """Other code from now on."""
        self.graph = graph
        self.history.adopt(graph)
        self.planner = Planner(graph, self.history)

    def of(self, asset: str, partition: str | None) -> Decision:
        """What was decided about a partition that has something pending."""
        return self.plan().decisions[(asset, partition)]

    def state(self, asset: str, partition: str | None) -> State | None:
        """Where a partition stands; None where nothing is pending."""
        found = self.plan().decisions.get((asset, partition))
        return found.state if found else None

    def end(self, run: str) -> None:
        self.history.ended(run, at=self.now)

    def plan(self) -> Plan:
        return self.planner.plan(self.now, Asked(frozenset(self.reserved)))

    def due(self) -> set[tuple[str, str | None]]:
        return {target for request in self.plan().requests for target in request.targets}

    def run_all(self, limit: int = 10) -> None:
        for n in range(limit):
            requests = self.plan().requests
            if not requests:
                return
            for i, request in enumerate(requests):
                run = f"auto-{self.id}-{n}-{i}"
                self.start(run, *request.targets)
                for target in request.targets:
                    self.build(run, target)
                self.end(run)
        pytest.fail("never came to rest")
