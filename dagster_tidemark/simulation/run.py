"""A simulated run, and what may befall it: the vocabulary of a simulated platform.

Belongs here: the platform's pace, a run as tests look at it. Does not belong here: the life of a run
(`simulation.runs`).
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import dagster as dg

from dagster_tidemark.planner.graph import Target
from dagster_tidemark.simulation.log import Log
from dagster_tidemark.sources.feed import Partition


class RunFate(StrEnum):
    """Simulated outcome of a run at an asset."""

    FAILS = "its code raises"
    YIELDS_NOTHING = "it succeeds and writes nothing: its output is not required"
    DIES = "its process dies, and the daemon's run monitoring finds out"
    NEVER_BEGINS = "its process does not start in time"


class CheckFate(StrEnum):
    """Simulated outcome of a check in a run."""

    FAILS = "it does not pass"
    RAISES = "its code raises: it has no result, and its run fails"
    SKIPPED = "the run does not evaluate it"
    TIMES_OUT = "its run is ended while it is evaluated"


@dataclass(frozen=True)
class RunPace:
    """How fast and how reliable the simulated platform is. Times in seconds.

    Args:
        step: Median time one asset takes in a run; one for all, or by asset.
        spread: Sigma of the lognormal distribution of these times, which ends at four medians.
        each_more: What every further partition of a run adds, as a share of the first.
        failing: Share of runs that fail, at a random step.
        launch: From leaving the queue to the start, at least and at most.
        tick: Between two ticks of the sensors.
        notice: From an arrival to its observation, at least and at most.
        at_once: Runs that may be under way at the same time.
        limits: How many runs with a tag may be under way at the same time.
    """

    step: float | Mapping[str, float] = 20.0
    spread: float = 0.0
    each_more: float = 0.02
    failing: float = 0.0
    launch: tuple[float, float] = (1.0, 1.0)
    tick: float = 5.0
    notice: tuple[float, float] = (1.0, 1.0)
    at_once: int = 3
    limits: Mapping[str, int] = field(default_factory=lambda: {"tidemark/rebuild": 1})

    def duration(self, asset: str, partitions: int, chance: random.Random) -> float:
        """Return the seconds that a step takes."""
        median = self.step.get(asset, 20.0) if isinstance(self.step, Mapping) else self.step
        factor = min(chance.lognormvariate(0.0, self.spread), 4.0) if self.spread else 1.0
        return median * factor * (1 + self.each_more * (partitions - 1))


@dataclass
class Run:
    """A simulated run.

    Args:
        of: From each of its assets to its partitions.
        checks: The checks it evaluates; None: all checks of its assets.
        log: Writes its events for assets as its own code declares them. A deployment during the run changes nothing.
        code: The version of each asset's code that its process has loaded. A deployment during the run changes nothing.
        began: By asset the time at which the run began with it.
        saw: By begun partition the contents of its inputs at that time.
        committed: By asset the time at which its partitions were written.
        wrote: By written partition its content.
        empty: By asset without anything to write, the time at which the run found that.
        raised: The checks that raised in it.
        results: By evaluated check the time, and True if it passed.
        why: The reason why it did not succeed.
    """

    id: str
    assets: tuple[str, ...]
    of: Mapping[str, Sequence[Partition]]
    tags: Mapping[str, str]
    created_at: float
    chance: random.Random = field(repr=False)
    log: Log = field(repr=False)
    checks: Collection[dg.AssetCheckKey] | None = None
    started_at: float | None = None
    ended_at: float | None = None
    succeeded: bool | None = None
    code: Mapping[str, str | None] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    saw: dict[Target, Mapping[Target, str]] = field(default_factory=dict)
    committed: dict[str, float] = field(default_factory=dict)
    wrote: dict[Target, str] = field(default_factory=dict)
    empty: dict[str, float] = field(default_factory=dict)
    raised: set[dg.AssetCheckKey] = field(default_factory=set)
    results: dict[dg.AssetCheckKey, tuple[float, bool]] = field(default_factory=dict)
    why: str = ""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Its partitions; of an unpartitioned asset that shares the run, only if there are no others."""
        each = [self.of.get(asset, ()) for asset in self.assets]
        return tuple(next((some for some in each if list(some) != [None]), (None,) if each else ()))

    @property
    def targets(self) -> list[Target]:
        """What it builds."""
        return [(asset, partition) for asset in self.assets for partition in self.of.get(asset, ())]


Meeting = Callable[[Run, str], RunFate | None]
"""Returns the fate of a run at an asset, or None to leave it to the simulation."""

Failing = Callable[[Run, dg.AssetCheckKey], CheckFate | None]
"""Returns the fate of a check in a run, or None. A check without a fate passes."""

Stalling = Callable[[Run], bool]
"""Returns True if a run's process does not start."""

Lasting = Callable[[Run, str], float | None]
"""Returns the seconds that a run takes at an asset, or None to leave it to the simulation."""
