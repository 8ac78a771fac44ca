"""Decisions of the planner as plain data: one for each partition that has pending work.

The requests, the explanations in the UI, the contract check, `tidemark status` and the tests all read this data. All
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
    """State of a partition with pending work; the first that applies."""

    NO_DATA = "no data"
    NO_CONSUMER = "no consumer"
    BLOCKED = "blocked by a check"
    INCOMPLETE = "waiting for all inputs to change"
    QUEUED = "queued"
    """Requested: its run has not begun."""
    RUNNING = "running"
    WAITING = "waiting for input"
    NOT_DUE = "not due"
    BACKING_OFF = "backing off"
    THROTTLED = "throttled"
    HELD = "held"
    """The sensor that would request it is switched off."""
    UNANSWERED = "asked for, and no run came"
    LEFT = "due, if its own condition says so"
    """Left to the asset's own automation condition, which decides."""
    REQUESTED = "requested"


@dataclass(frozen=True)
class Decision:
    """Decision about a partition of an asset, with its reason.

    Args:
        reason: In data terms, stable while nothing happens.
        oldest_arrival: Arrival of the oldest data it does not contain. None: nothing arrived, only its code is newer.
        deadline: By its own contract. None: no contract, or no pending data.
        warn_at: When it starts to be at risk, by its own contract.
        latest_start: Latest time to request its run so that it ends by the deadline.
        due_at: When its run is requested. None: nothing needs it.
        due_for: The asset whose contract makes it due: itself, or a consumer that pulls it.
        start_by: Latest time to request its run, by that contract. None: no contract needs it.
        wait_for: Inputs that it waits for or lacks (a lacking input has the partition None if any partition would do).
        stale: Why it is stale without new data: another code version, or a rebuilt input. Empty: it is not.
        built: True if it was ever built.
        attempts: Failed attempts in a row.
        next_try: When the pause after the last attempt ends.
        zone: Time zone of its contract, used to show its deadline.
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
        """Return the seconds since its oldest pending data arrived; 0 if none is pending."""
        return 0.0 if self.oldest_arrival is None else max(0.0, now - self.oldest_arrival)

    def verdict(self, now: float) -> FreshnessStatus:
        """Return the status of its contract; met if it has none."""
        if self.deadline is None:
            return FreshnessStatus.MET
        return verdict(self.deadline, self.latest_start if self.warn_at is None else self.warn_at, now)


@dataclass(frozen=True)
class Request:
    """One run to request: these assets over these consecutive partitions.

    Args:
        as_range: True if the sensor `catch_up` requests it, as a range; else the condition does, as one partition.
        rebuild: True if no data arrived and only code is newer: it runs after everything that has a deadline.
        conditional: True if the asset's own condition decides: nothing else may request it.
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
    """Requests that are not in the history yet.

    Args:
        reserved: Targets whose run may just be slow to appear.
        unanswered: Requested targets that got no run, with the number of requests and the end of the pause.
        rebuilding: True if a rebuild is requested or under way: there is one at a time.
        by_people: Open runs that only a person requested.
        runs: Requests with reserved targets.
        queued: Open runs that have not begun.
        offered: Targets that their own condition may request, with the time since then (Unix seconds).
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
    """Decisions of the planner at one time.

    Args:
        decisions: For each partition with pending work, except the deferred ones. All other partitions contain
            everything that arrived.
        deferred: By asset, the number of pending partitions behind the decided ones, because there are too many.
        requests: The runs to request now.
        set_aside: Skipped items, with the reason: events about partitions that no asset has, partitions, and
            whole assets (a partitioned one has the partition None).
        checks: Needed runs that evaluate only blocking checks. The engine decides when each is tried again.
        loops: Loops through observations.
        catching_up: Progress of reading the event log. Nothing is requested until it is complete. Empty: it is.
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
        """Return the decisions about an asset."""
        return self._by_asset.get(asset, [])

    def aside(self, asset: str) -> dict[Partition, str]:
        """Return the partitions of an asset that are set aside, with the reason."""
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
        """Reasons why pending partitions are not requested."""
        return {t: f"{d.state}: {d.reason}" for t, d in self.decisions.items() if d.state is not State.REQUESTED}


@dataclass(frozen=True)
class Lack:
    """A promise about a partition that no run can keep, because sources have no data for it.

    Args:
        sources: The silent sources.
        since: Since when data waits for them; None if no data waits.
        deadline: Time that the partition was promised for.
    """

    partition: Partition
    sources: tuple[str, ...]
    since: float | None
    deadline: float


@dataclass(frozen=True)
class ContractStatus:
    """State of an asset's contract over all its partitions.

    Args:
        verdict: The worst verdict of its partitions.
        lag: The longest lag, in seconds; 0 if nothing is pending.
        partition: The partition with that verdict. None: the contract is met and nothing is pending.
        reason: In data terms.
        set_aside: Partitions and inputs of the asset that are set aside: the verdict does not cover them.
        lacks: Promises that silent sources break, now or at their deadline.
    """

    asset: str
    verdict: FreshnessStatus
    lag: float
    partition: Partition = None
    reason: str = ""
    due_at: float | None = None
    deadline: float | None = None
    set_aside: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()


RANGES = "catch_up"
"""Sensor that requests ranges, and single partitions of assets that belong to different sensors."""


def asker(graph: Graph, request: Request) -> str:
    """Return the sensor that makes a request.

    A single partition is requested by its asset's automation sensor. The landing sensor may be quicker, but requests
    nothing else: if an automation sensor is switched off, nothing requests its single partitions.
    """
    return RANGES if request.as_range else graph.nodes[request.assets[0]].sensor


def held(plan: Plan, graph: Graph, off: Collection[str]) -> Plan:
    """Return a plan without the requests that no sensor would make. Their partitions are held, and name the sensor.

    Args:
        off: Names of the sensors that are switched off.
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
