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
from dagster_tidemark.planner.overrides import Override
from dagster_tidemark.sources.feed import Partition


class State(StrEnum):
    """State of a partition with pending work."""

    NO_DATA = "no data"
    NO_CONSUMER = "no consumer"
    BLOCKED = "blocked by a check"
    INCOMPLETE = "waiting for all inputs to change"
    AWAITED = "waiting for a delivery"
    """An input that declares `on_missing="wait"` lacks an expected delivery."""
    QUEUED = "queued"
    """Requested, but the run has not started."""
    RUNNING = "running"
    WAITING = "waiting for input"
    NOT_DUE = "not due"
    BACKING_OFF = "backing off"
    THROTTLED = "throttled"
    PAUSED = "paused"
    """A person has paused it."""
    HELD = "held"
    """The sensor that would request it is switched off."""
    UNANSWERED = "asked for, and no run came"
    LEFT = "due, if its own condition says so"
    """The asset's own automation condition decides."""
    REQUESTED = "requested"


@dataclass(frozen=True)
class Decision:
    """Decision about a partition of an asset, with its reason.

    Args:
        reason: Reason in terms of data. The text changes only if something happens.
        oldest_arrival: Arrival of the oldest data that the partition does not contain; None if no data is pending.
        deadline: Deadline by the asset's own contract; None without a contract or pending data.
        warn_at: Time when the asset's own contract starts to be at risk.
        latest_start: Latest time to request the run so that it ends by the deadline.
        due_at: Time to request the run; None if nothing needs it.
        due_for: Asset whose contract makes the partition due: its own asset, or a consumer.
        start_by: Latest time to request the run by the contract of `due_for`; None if no contract needs it.
        wait_for: Inputs that the partition waits for. An input without any data has the partition None.
        stale: Reason for a rebuild without new data: another code version, or a rebuilt input. Empty if there is none.
        built: True if it was ever built.
        attempts: Failed attempts in a row.
        next_try: End of the pause after the last attempt, or of a person's pause.
        zone: Time zone of the contract, used to show the deadline.
        without: Missing deliveries that the run is built without, in words.
        withheld_since: Time since when a built partition owes data that no run can build; see `Pending`.
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
    without: tuple[str, ...] = ()
    withheld_since: float | None = None

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
        as_range: True if the sensor `catch_up` requests it. Otherwise the asset's condition requests one partition.
        rebuild: True if it is a rebuild without new data. It runs after everything that has a deadline.
        conditional: True if only the asset's own condition may request it.
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
    """A run that evaluates only a blocking check, because a due partition waits for the result.

    Args:
        partition: None if the check has no partitions and evaluates the whole asset.
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
        reserved: Requested targets whose run has not appeared yet.
        unanswered: Requested targets that got no run, with the number of requests and the end of the pause.
        rebuilding: True if a rebuild is requested or under way. Only one is requested at a time.
        by_people: Open runs that a person requested, and no sensor.
        runs: Requests whose run has not appeared yet; `reserved` are their targets.
        queued: Open runs that have not started.
        offered: Targets that wait for their asset's own condition, each with the start of the wait (Unix seconds).
        off: Names of the sensors that are switched off, and request no run.
    """

    reserved: frozenset[Target] = frozenset()
    unanswered: Mapping[Target, tuple[int, float]] = field(default_factory=dict)
    rebuilding: bool = False
    by_people: frozenset[str] = frozenset()
    runs: tuple[Request, ...] = ()
    queued: frozenset[str] = frozenset()
    offered: Mapping[Target, float] = field(default_factory=dict)
    off: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Plan:
    """Decisions of the planner at one time.

    Args:
        decisions: Decision on each partition with pending work, except deferred partitions. All other partitions
            contain all data that arrived.
        deferred: Number of pending partitions of an asset without a decision, because there are too many.
        requests: The runs to request now.
        set_aside: Skipped partitions and assets, each with the reason. A whole asset has the partition None. Events may
            name partitions that the asset does not have.
        checks: Required runs that evaluate only blocking checks. The engine decides when each is tried again.
        loops: Loops through observations.
        skipped: Partitions that lack something because a person skipped it, by asset.
        left: Number of partitions that a rebuild has not reached yet, or that a skip leaves out, by its id.
        catching_up: Progress of reading the event log; empty if it is complete. Before that, nothing is requested.
    """

    now: float
    decisions: dict[Target, Decision] = field(default_factory=dict)
    requests: Sequence[Request] = ()
    set_aside: dict[Target, str] = field(default_factory=dict)
    catching_up: str = ""
    checks: Sequence[CheckRequest] = ()
    loops: Sequence[Loop] = ()
    deferred: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, Mapping[Partition, Override]] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)

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

    def left_out(self, asset: str) -> Mapping[Partition, Override]:
        """Return the partitions of an asset that lack something, with the skip."""
        return self.skipped.get(asset, {})

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
        sources: Sources without data for the partition.
        since: Arrival of the data that waits for these sources; None if no data waits.
        deadline: Promised time of the partition.
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
        partition: The partition with that verdict; None if the contract is met and nothing is pending.
        reason: Reason in terms of data.
        set_aside: Partitions and inputs of the asset that are set aside. The verdict does not cover them.
        lacks: Contracts that are breached, or will be at the deadline, because sources have no data.
        overridden: Pauses of the asset or its inputs, and skipped partitions, in words.
        promised_lag: Longest lag without a breach, in seconds; None if the promise is a time of day.
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
    overridden: tuple[str, ...] = ()
    promised_lag: float | None = None


RANGES = "catch_up"
"""Sensor that requests ranges, and runs of one partition over assets of several sensors."""


def asker(graph: Graph, request: Request) -> str:
    """Return the sensor that makes a request.

    The automation sensor of an asset requests its single partitions. The sensor `landing` may make the same requests
    earlier, but no others. If an automation sensor is switched off, no sensor requests these partitions.
    """
    return RANGES if request.as_range else graph.nodes[request.assets[0]].sensor


def held(plan: Plan, graph: Graph, off: Collection[str]) -> Plan:
    """Return a plan with only the requests that a sensor would make.

    The other requests' partitions get the state `HELD`, and the reason names the sensor that is switched off.

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
