"""A simulated run and its possible outcomes.

Belongs here: the platform's pace, and the attributes of a run that tests read. Does not belong here: the lifecycle of
a run (`simulation.runs`).
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import dagster as dg

from dagster_tidemark.planner.graph import Target
from dagster_tidemark.simulation.log import SimulatedLog
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
    """Speed and reliability of the simulated platform. Times in seconds.

    Args:
        step: Median time of an asset in a run, for all assets or by asset.
        spread: Sigma of the lognormal distribution of step times, which is cut at four medians.
        each_more: Time of each further partition of a run, as a share of the time of the first.
        failing: Share of runs that fail, at a random step.
        check: Shortest and longest evaluation of a check. Other runs may write its table in that time.
        launch: Shortest and longest time from leaving the queue to the start.
        tick: Time between two ticks of the sensors.
        notice: Shortest and longest time from an arrival to its observation.
        at_once: Maximum number of runs in progress.
        limits: Maximum number of runs in progress with a tag, by tag.
    """

    step: float | Mapping[str, float] = 20.0
    spread: float = 0.0
    each_more: float = 0.02
    failing: float = 0.0
    check: tuple[float, float] = (0.0, 0.0)
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

    def check_seconds(self, chance: random.Random) -> float:
        """Return the seconds that the evaluation of a check takes."""
        return chance.uniform(*self.check) if self.check[1] else 0.0


@dataclass
class Run:
    """A simulated run.

    Args:
        of: The partitions of each of its assets.
        checks: The checks it evaluates; None: all checks of its assets.
        log: Log for its events. A deployment during the run does not change it.
        code: Code version of each asset in its process. A deployment during the run does not change them.
        began: Time when the run began with each asset.
        saw: Contents of the inputs of each partition when the run began with it.
        committed: Time when each asset's partitions were written.
        wrote: Content of each written partition.
        empty: Time of the end of each step that had nothing to write, by asset.
        raised: The checks that raised in it.
        results: Time of each check's result, and True if it passed.
        evaluating: Time when the run began to evaluate each check. It has not seen later writes.
        why: The reason why it did not succeed.
    """

    id: str
    assets: tuple[str, ...]
    of: Mapping[str, Sequence[Partition]]
    tags: Mapping[str, str]
    created_at: float
    chance: random.Random = field(repr=False)
    log: SimulatedLog = field(repr=False)
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
    evaluating: dict[dg.AssetCheckKey, float] = field(default_factory=dict)
    why: str = ""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Partitions of the first partitioned asset; `(None,)` if all its assets are unpartitioned."""
        each = [self.of.get(asset, ()) for asset in self.assets]
        return tuple(next((some for some in each if list(some) != [None]), (None,) if each else ()))

    @property
    def targets(self) -> list[Target]:
        """The partitions of assets that it builds."""
        return [(asset, partition) for asset in self.assets for partition in self.of.get(asset, ())]


Meeting = Callable[[Run, str], RunFate | None]
"""Returns the fate of a run at an asset, or None to leave it to the simulation."""

Failing = Callable[[Run, dg.AssetCheckKey], CheckFate | None]
"""Returns the fate of a check in a run, or None. A check without a fate passes."""

Stalling = Callable[[Run], bool]
"""Returns True if a run's process does not start."""

Lasting = Callable[[Run, str], float | None]
"""Returns the seconds that a run takes at an asset, or None to leave it to the simulation."""
