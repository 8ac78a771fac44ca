"""What the planner decides, as plain data: one decision for each partition that has something pending.

The requests, the explanations in the UI, the contract check, `tidemark status` and the tests all read this. All
times are Unix seconds. Reasons hold only stable values (an arrival, a latest start), never an age: the UI stores an
explanation again whenever its text changes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from dagster_tidemark.planner.contracts import FreshnessStatus, verdict
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.loops import Loop
from dagster_tidemark.sources.feed import Partition


class State(StrEnum):
    """Where a partition with something pending stands; the first that applies."""

    NO_DATA = "no data"
    NO_CONSUMER = "no consumer"
    BLOCKED = "blocked by a check"
    INCOMPLETE = "waiting for all inputs to change"
    QUEUED = "queued"
    """Asked for: its run has not begun."""
    RUNNING = "running"
    WAITING = "waiting for input"
    NOT_DUE = "not due"
    BACKING_OFF = "backing off"
    THROTTLED = "throttled"
    HELD = "held"
    """The sensor that would ask for it is switched off."""
    UNANSWERED = "asked for, and no run came"
    LEFT = "due, if its own condition says so"
    """An asset with an automation condition of its own, which has the last word."""
    REQUESTED = "requested"


@dataclass(frozen=True)
class Decision:
    """What was decided about a partition of an asset, and why.

    Args:
        reason: In data terms, stable while nothing happens.
        oldest_arrival: Of the data it does not contain. None: nothing arrived, it is stale by code alone.
        deadline: By its own contract; None where it has none, or nothing pending with an arrival.
        warn_at: From when on it is at risk, by its own contract.
        latest_start: When its run has to be asked for at the latest to be done by the deadline.
        due_at: When its run is asked for. None: nothing and nobody needs it.
        due_for: The asset whose contract makes it due: itself, or a consumer that pulls it.
        start_by: Latest time to request its run, by that contract. None: no contract needs it.
        wait_for: The inputs it waits for, or lacks (then with the partition None if any would do).
        stale: Why it is stale whatever arrived: another code version, or an input that was rebuilt. Empty: it is not.
        built: Whether it was ever built.
        attempts: Failed attempts in a row.
        next_try: When the pause after the last of them ends.
        zone: The time zone of its contract, in which its deadline is shown.
    """

    asset: str
    partition: Partition
    state: State
    reason: str
    oldest_arrival: float | None = None
    deadline: float | None = None
    warn_at: float | None = None
    latest_start: float | None = None
    due_at: float | None = None
    due_for: str | None = None
    start_by: float | None = None
    wait_for: tuple[Target, ...] = ()
    stale: str = ""
    built: bool = False
    attempts: int = 0
    next_try: float | None = None
    zone: str = "UTC"

    @property
    def target(self) -> Target:
        return self.asset, self.partition

    def but(self, **changes: Any) -> "Decision":
        """Return the same decision with other values. `dataclasses.replace` takes ten times as long."""
        made = object.__new__(Decision)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(changes)
        return made

    def lag(self, now: float) -> float:
        """Seconds since the oldest data arrived that it does not contain; 0 where none is pending."""
        return 0.0 if self.oldest_arrival is None else max(0.0, now - self.oldest_arrival)

    def verdict(self, now: float) -> FreshnessStatus:
        """How its contract stands; met where it has none."""
        if self.deadline is None:
            return FreshnessStatus.MET
        return verdict(self.deadline, self.latest_start if self.warn_at is None else self.warn_at, now)


@dataclass(frozen=True)
class Request:
    """One run to ask for: these assets over these consecutive partitions.

    Args:
        as_range: By the sensor `catch_up`, as a range; else by the condition, a single partition.
        rebuild: Nothing arrived, only code is newer: behind everything that has a deadline.
        conditional: Of an asset whose own condition has the last word; nobody else may ask for it.
    """

    assets: tuple[str, ...]
    partitions: tuple[Partition, ...]
    as_range: bool = False
    rebuild: bool = False
    conditional: bool = False

    @property
    def targets(self) -> list[Target]:
        return [(asset, partition) for asset in self.assets for partition in self.partitions]


@dataclass(frozen=True)
class CheckRequest:
    """A run that evaluates only a blocking check, because a due partition waits for its result.

    Args:
        partition: None if the check has no partitions: it evaluates the whole asset.
        written: Storage id of the latest write that has no result.
    """

    asset: str
    check: str
    partition: Partition = None
    written: int = 0


@dataclass(frozen=True)
class Asked:
    """What was asked for and is not in the history yet.

    Args:
        reserved: Targets whose run may just be slow to appear.
        unanswered: Targets that were asked for without a run coming of it, to how often and until when they pause.
        rebuilding: A run of the class rebuild is asked for or under way: there is one at a time.
        by_people: Open runs that nobody but a person asked for.
        runs: Requests with reserved targets.
        queued: Open runs that have not begun.
        offered: Targets whose own condition may request them, with since when (Unix seconds).
    """

    reserved: frozenset[Target] = frozenset()
    unanswered: Mapping[Target, tuple[int, float]] = field(default_factory=dict)
    rebuilding: bool = False
    by_people: frozenset[str] = frozenset()
    runs: tuple[Request, ...] = ()
    queued: frozenset[str] = frozenset()
    offered: Mapping[Target, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Everything the planner decided at a time.

    Args:
        decisions: For each partition with something pending, except the deferred ones. All other partitions contain
            everything that arrived.
        deferred: By asset, the number of pending partitions that wait behind those decided on: there are too many.
        requests: The runs to ask for now.
        set_aside: What nobody looks after, with the reason: events about partitions that no asset has, partitions,
            and whole assets (of a partitioned one: with the partition None).
        checks: Needed runs that evaluate only blocking checks. The engine decides when each is tried again.
        loops: Loops through observations.
        catching_up: Not empty: how far the event log has been read; nothing is requested until it is read whole.
    """

    now: float
    decisions: dict[Target, Decision] = field(default_factory=dict)
    requests: Sequence[Request] = ()
    set_aside: dict[Target, str] = field(default_factory=dict)
    catching_up: str = ""
    checks: Sequence[CheckRequest] = ()
    loops: Sequence[Loop] = ()
    deferred: Mapping[str, int] = field(default_factory=dict)

    def of(self, asset: str) -> list[Decision]:
        """The decisions about an asset."""
        return self._by_asset.get(asset, [])

    def aside(self, asset: str) -> dict[Partition, str]:
        """What of an asset is set aside, with the reason."""
        return self._aside_by_asset.get(asset, {})

    @cached_property
    def _aside_by_asset(self) -> dict[str, dict[Partition, str]]:
        found: dict[str, dict[Partition, str]] = {}
        for (asset, partition), reason in self.set_aside.items():
            found.setdefault(asset, {})[partition] = reason
        return found

    @cached_property
    def _by_asset(self) -> dict[str, list[Decision]]:
        found: dict[str, list[Decision]] = {}
        for decision in self.decisions.values():
            found.setdefault(decision.asset, []).append(decision)
        return found

    @property
    def waiting(self) -> dict[Target, str]:
        """Why what is pending is not asked for."""
        return {t: f"{d.state}: {d.reason}" for t, d in self.decisions.items() if d.state is not State.REQUESTED}


@dataclass(frozen=True)
class Standing:
    """How an asset's contract stands, over all its partitions.

    Args:
        verdict: The worst of its partitions.
        lag: The longest, in seconds; 0 where nothing is pending.
        partition: The one the verdict is about, None where all is met and nothing pending.
        reason: Why, in data terms.
        set_aside: What of the asset, or of what it reads, is set aside: the verdict says nothing of it.
    """

    asset: str
    verdict: FreshnessStatus
    lag: float
    partition: Partition = None
    reason: str = ""
    due_at: float | None = None
    deadline: float | None = None
    set_aside: tuple[str, ...] = ()


RANGES = "catch_up"
"""The sensor that asks for ranges, and for single partitions of assets that different sensors look after."""


def asker(graph: Graph, request: Request) -> str:
    """The sensor whose business a request is.

    A single partition is asked for by the automation sensor of its asset. The landing sensor may be quicker, and asks
    for nothing that one would not: with an automation sensor switched off, nobody asks for single partitions.
    """
    return RANGES if request.as_range else graph.nodes[request.assets[0]].sensor


def held(plan: Plan, graph: Graph, off: Collection[str]) -> Plan:
    """A plan without the requests that nobody would make: what they are about waits, and says for which sensor.

    Args:
        off: The names of the sensors that are switched off.
    """
    kept: list[Request] = []
    waiting: dict[Target, Decision] = {}
    for request in plan.requests:
        sensor = asker(graph, request)
        if sensor not in off:
            kept.append(request)
            continue
        reason = f"its sensor {sensor} is switched off"
        asked = [plan.decisions[target] for target in request.targets if target in plan.decisions]
        behind = [d for asset in request.assets for d in plan.of(asset) if d.state is State.THROTTLED]
        waiting |= {d.target: replace(d, state=State.HELD, reason=reason) for d in (*asked, *behind)}
    return replace(plan, decisions=plan.decisions | waiting, requests=kept) if waiting else plan
