"""Contracts on freshness as arithmetic: from the arrival of data to its deadline, and when to start for it.

Belongs here: what `FreshnessPolicy.time_window` (a lag contract) and `FreshnessPolicy.cron` (a cron contract) mean,
in plain numbers. Does not belong here: a clock, Dagster, or what is pending. All times are Unix seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

SHORTEST_WINDOW = 60.0
"""A lag contract is never scaled below this."""

LAUNCH_SECONDS = 2.0
"""From a request to the body of its run on a laptop: at most 1.5 s in `proof/live-lag.json`.

Where launches take longer that is learned: the lead counts from the creation of a run.
"""

_RESERVE_BEYOND_LEAD = 60.0  # the first pause after a failure


@dataclass(frozen=True)
class LagContract:
    """What arrived is incorporated within `fail` seconds; after `warn` it is at risk."""

    fail: float
    warn: float | None = None

    def scaled(self, scale: float) -> "LagContract":
        """The same contract on a faster clock (`TIDEMARK_CONTRACT_SCALE`)."""
        warn = None if self.warn is None else max(self.warn * scale, SHORTEST_WINDOW)
        return replace(self, fail=max(self.fail * scale, SHORTEST_WINDOW), warn=warn)


@dataclass(frozen=True)
class CronContract:
    """At each tick of a schedule, what arrived up to `bound` seconds before it is incorporated."""

    schedule: str
    bound: float
    timezone: str = "UTC"

    def scaled(self, scale: float) -> "CronContract":
        """Itself: a time of day means what it says."""
        return self


Contract = LagContract | CronContract


@dataclass(frozen=True)
class Window:
    """The time a partition is about, from `start` until before `end`."""

    start: float
    end: float


@dataclass(frozen=True)
class Pace:
    """How long things take.

    Args:
        lead: A run, from its creation to its end.
        margin: From being due to the creation of the run; see `margin_of`.
    """

    lead: float
    margin: float


class FreshnessStatus(StrEnum):
    """How a promise stands."""

    MET = "met"
    AT_RISK = "at risk"
    NOT_JUDGED = "not judged"
    """No sensor looks after the asset: it is set aside."""
    UNKNOWN = "unknown"
    """No sensor or shift has looked lately, or the asset cannot be built: `engine.doubts` gives the reason."""
    BREACHED = "breached"


def margin_of(tick_seconds: float, launch_seconds: float = LAUNCH_SECONDS) -> float:
    """The longest time from being due to running: a tick just missed, the tick itself, and the launch."""
    return 2 * tick_seconds + launch_seconds


def tick_at_or_after(contract: CronContract, at: float) -> float:
    """The first tick of a cron contract that is not before a time."""
    return _tick(contract.schedule, contract.timezone, at)


def tick_before(contract: CronContract, at: float) -> float:
    """The last tick of a cron contract before a time."""
    ticks = CronSim(contract.schedule, _local(at, contract.timezone), reverse=True)
    return next(tick for tick in _times(ticks) if tick < at)


def first_tick(contract: Contract, window: Window | None) -> float | None:
    """T0: by when a window is to be there at all. None for a lag contract, and where there are no windows."""
    if isinstance(contract, LagContract) or window is None:
        return None
    return tick_at_or_after(contract, window.end)


def deadline(
    contract: Contract, arrival: float, window: Window | None, *, built: bool = True, own_tick: float | None = None
) -> float:
    """By when what arrived at a time is to be incorporated.

    Cron: the first tick, from the window's own on, up to whose bound it arrived. A window that was never built is
    promised for its own tick, however late its data came.

    Args:
        own_tick: The window's first tick, where it is known: the window is not needed then.
    """
    if isinstance(contract, LagContract):
        return arrival + contract.fail
    own = first_tick(contract, window) if own_tick is None else own_tick
    if own is not None and not built:
        return own
    after = arrival + contract.bound
    return tick_at_or_after(contract, after if own is None else max(own, after))


def warn_at(contract: Contract, arrival: float) -> float | None:
    """From when on what arrived at a time and is not incorporated is at risk, where the contract says so."""
    return arrival + contract.warn if isinstance(contract, LagContract) and contract.warn is not None else None


def reserve(contract: Contract, pace: Pace) -> float:
    """Time kept free for a second attempt, where the window is long enough to afford it.

    None in a cron contract: its runs are requested as soon as nothing later is required.
    """
    if isinstance(contract, CronContract):
        return 0.0
    wanted = pace.lead + _RESERVE_BEYOND_LEAD
    return wanted if pace.lead + wanted + pace.margin <= contract.fail / 4 else 0.0


@dataclass(frozen=True, slots=True)
class Due:
    """When to ask for a run.

    Args:
        opens: From then on waiting brings nothing: nothing later is required. Infinite: as late as possible.
        latest: When it has to be asked for, with time for a second attempt where there is any.
        start_by: When it has to be asked for at the very latest.
        deadline: By when it has to be done.
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
    """When to ask for the run that incorporates what arrived at a time: so late that the fewest runs do.

    Cron: when nothing later is required; earlier only if the run takes longer than the bound. A partition that was
    never built is due as soon as its inputs are present once its window has ended (cron: once its own tick is past).

    Args:
        arrival: Of the oldest pending data; of a partition never built, when the last required input had data.
        own_tick: The window's first tick, see `deadline`.
    """
    promised = deadline(contract, arrival, window, built=built, own_tick=own_tick)
    start_by = promised - pace.lead - pace.margin
    latest = start_by - reserve(contract, pace)
    opens = promised - contract.bound if isinstance(contract, CronContract) else float("inf")
    if not built:
        ended = float("-inf") if window is None else window.end
        opens = max(arrival, ended if isinstance(contract, LagContract) or window is None else opens)
        latest = max(arrival, latest)
    return Due(opens, latest, start_by, promised)


def feasible(contract: Contract, pace: Pace) -> bool:
    """Whether a run takes less time than the contract gives it."""
    given = contract.fail if isinstance(contract, LagContract) else contract.bound
    return pace.lead + pace.margin < given


def verdict(promised: float, at_risk_from: float | None, now: float) -> FreshnessStatus:
    """How a promise stands while what it is about is not incorporated."""
    if now > promised:
        return FreshnessStatus.BREACHED
    return FreshnessStatus.AT_RISK if at_risk_from is not None and now > at_risk_from else FreshnessStatus.MET


@lru_cache(maxsize=100_000)
def _tick(schedule: str, timezone: str, at: float) -> float:
    # CronSim gives ticks after a time; a tick at the time itself counts. In the hour that a night has twice it may give
    # the first one of two again.
    ticks = CronSim(schedule, _local(at - 0.001, timezone))
    return next(tick for tick in _times(ticks) if tick >= at)


def _local(at: float, timezone: str) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(timezone))


def _times(ticks: Iterator[datetime]) -> Iterator[float]:
    return (tick.timestamp() for tick in ticks)
