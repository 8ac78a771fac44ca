"""Freshness contracts as arithmetic: from the arrival of data to its deadline, and to the start of its run.

Belongs here: the meaning of `FreshnessPolicy.time_window` (a lag contract) and `FreshnessPolicy.cron` (a cron
contract), in plain numbers. Does not belong here: a clock, Dagster, or pending work. All times are Unix seconds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from dagster_tidemark.sources.layout import Partition

SHORTEST_WINDOW = 60.0
"""Seconds of the shortest lag contract after scaling."""

LAUNCH_SECONDS = 2.0
"""Seconds from a request until the run executes the asset: at most 1.5 s on a laptop (`proof/live-lag.json`).

Longer launches are part of the measured durations of runs, which count from the creation of the run.
"""

_RESERVE_BEYOND_RUN = 60.0  # the first pause after a failure


@dataclass(frozen=True)
class LagContract:
    """Promise to incorporate data within `fail` seconds of its arrival. After `warn` seconds the promise is at risk."""

    fail: float
    warn: float | None = None

    @property
    def promised_lag(self) -> float | None:
        """Longest lag without a breach, in seconds."""
        return self.fail

    def scaled(self, scale: float) -> "LagContract":
        """Return the same contract on a faster clock (`TIDEMARK_CONTRACT_SCALE`)."""
        warn = None if self.warn is None else max(self.warn * scale, SHORTEST_WINDOW)
        return replace(self, fail=max(self.fail * scale, SHORTEST_WINDOW), warn=warn)


@dataclass(frozen=True)
class CronContract:
    """Promise that at each tick of a schedule, data that arrived up to `bound` seconds earlier is incorporated."""

    schedule: str
    bound: float
    timezone: str = "UTC"

    @property
    def promised_lag(self) -> float | None:
        """None: the promise is a time of day, and the lag may be as long as the time between two ticks."""
        return None

    def scaled(self, scale: float) -> "CronContract":
        """Return the contract unchanged: a time of day is not scaled."""
        return self


Contract = LagContract | CronContract


@dataclass(frozen=True)
class Window:
    """Time that a partition covers: from `start` up to `end`, which is excluded."""

    start: float
    end: float


@dataclass(frozen=True)
class InputPromise:
    """Promise about a source that no run of this code location can keep.

    Args:
        source: Key of the source.
        said: The promise in words.
        due_at: Returns when data of a window is promised (Unix seconds); None if the window has no promise.
        longest: Longest time from the end of a window to the promised time, in seconds.
        is_about: Returns True for a partition with the promise.
    """

    source: str
    said: str
    due_at: Callable[[Window], float | None]
    longest: float = 7 * 86_400.0
    is_about: Callable[[Partition], bool] = lambda _: True


@dataclass(frozen=True)
class Pace:
    """Durations that due times depend on, in seconds.

    Args:
        run_duration: Seconds from the creation of a run to its end.
        margin: Seconds from the due time of a run to its creation; see `margin_of`.
    """

    run_duration: float
    margin: float


class FreshnessStatus(StrEnum):
    """Status of a promise."""

    MET = "met"
    AT_RISK = "at risk"
    NOT_JUDGED = "not judged"
    """The contract is not evaluated, for example because the planner has set the asset aside."""
    UNKNOWN = "unknown"
    """No sensor or shift has reported lately, or a service that runs need is unreachable; see `engine.doubts`."""
    BREACHED = "breached"


def margin_of(tick_seconds: float) -> float:
    """Return the longest time from the due time of a run to its start: a missed tick, the next tick, and the launch."""
    return 2 * tick_seconds + LAUNCH_SECONDS


def tick_at_or_after(contract: CronContract, at: float) -> float:
    """Return the first tick of a cron contract at or after a time."""
    return _tick(contract.schedule, contract.timezone, at)


def tick_before(contract: CronContract, at: float) -> float:
    """Return the last tick of a cron contract before a time."""
    ticks = CronSim(contract.schedule, _local(at, contract.timezone), reverse=True)
    found = next(tick for tick in _times(ticks) if tick < at)
    # In an hour that a zone repeats, the way back skips ticks that the way forward has.
    while (later := _tick(contract.schedule, contract.timezone, found + 1)) < at:
        found = later
    return found


def first_tick(contract: Contract, window: Window | None) -> float | None:
    """Return the promised time of a window, which is its first tick; None for a lag contract or without a window."""
    if isinstance(contract, LagContract) or window is None:
        return None
    return tick_at_or_after(contract, window.end)


def deadline(
    contract: Contract, arrival: float, window: Window | None, *, built: bool = True, own_tick: float | None = None
) -> float:
    """Return the deadline for data that arrived at a time.

    For a cron contract, this is the first tick, starting with the window's own, at least `bound` seconds after the
    arrival. A window that was never built is promised for its own tick, however late its data arrived.

    Args:
        own_tick: First tick of the window, if known; the window is then not needed.
    """
    if isinstance(contract, LagContract):
        return arrival + contract.fail
    own = first_tick(contract, window) if own_tick is None else own_tick
    if own is not None and not built:
        return own
    after = arrival + contract.bound
    return tick_at_or_after(contract, after if own is None else max(own, after))


def warn_at(contract: Contract, arrival: float) -> float | None:
    """Return when the promise for pending data becomes at risk, or None if the contract sets no such time."""
    return arrival + contract.warn if isinstance(contract, LagContract) and contract.warn is not None else None


def reserve(contract: Contract, pace: Pace) -> float:
    """Return the seconds kept free for a second attempt, if the contract is long enough for one.

    A cron contract has no reserve: its runs are requested as soon as nothing later is required.
    """
    if isinstance(contract, CronContract):
        return 0.0
    wanted = pace.run_duration + _RESERVE_BEYOND_RUN
    return wanted if pace.run_duration + wanted + pace.margin <= contract.fail / 4 else 0.0


@dataclass(frozen=True, slots=True)
class Due:
    """Times of a run's request and deadline.

    Args:
        opens: Time after which waiting saves no run, because later data is not required. Infinite if the run should be
            requested as late as possible.
        latest: Latest time to request the run and still have time for a second attempt.
        start_by: Latest time to request the run, without time for a second attempt.
        deadline: Time when the run has to be done.
    """

    opens: float
    latest: float
    start_by: float
    deadline: float

    @property
    def at(self) -> float:
        return min(self.opens, self.latest)


def due(
    contract: Contract,
    arrival: float,
    window: Window | None,
    pace: Pace,
    *,
    built: bool = True,
    own_tick: float | None = None,
) -> Due:
    """Return when to request the run for data with this arrival. Late requests need the fewest runs.

    With a cron contract, the run is due when no later data is required, or earlier if it takes longer than the bound. A
    partition that was never built is due as soon as its inputs are present and its window has ended; with a cron
    contract, from `bound` seconds before its own tick.

    Args:
        arrival: Arrival of the oldest pending data. For a partition that was never built, the time when its last
            required input had data.
        own_tick: First tick of the window, see `deadline`.
    """
    promised = deadline(contract, arrival, window, built=built, own_tick=own_tick)
    start_by = promised - pace.run_duration - pace.margin
    latest = start_by - reserve(contract, pace)
    opens = promised - contract.bound if isinstance(contract, CronContract) else float("inf")
    if not built:
        ended = float("-inf") if window is None else window.end
        opens = max(arrival, ended if isinstance(contract, LagContract) or window is None else opens)
        latest = max(arrival, latest)
    return Due(opens, latest, start_by, promised)


def verdict(promised: float, at_risk_from: float | None, now: float) -> FreshnessStatus:
    """Return the status of a promise while its data is not incorporated."""
    if now > promised:
        return FreshnessStatus.BREACHED
    return FreshnessStatus.AT_RISK if at_risk_from is not None and now > at_risk_from else FreshnessStatus.MET


@lru_cache(maxsize=100_000)
def _tick(schedule: str, timezone: str, at: float) -> float:
    # CronSim returns ticks after a time, but a tick at the time itself counts too. When a clock change repeats an hour,
    # CronSim may also return the first of two ticks again.
    ticks = CronSim(schedule, _local(at - 0.001, timezone))
    return next(tick for tick in _times(ticks) if tick >= at)


def _local(at: float, timezone: str) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(timezone))


def _times(ticks: Iterator[datetime]) -> Iterator[float]:
    return (tick.timestamp() for tick in ticks)
