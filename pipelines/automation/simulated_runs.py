"""How simulated runs go: they wait in the queue, start, take their time, fail, and write what they built.

Belongs here: the platform's pace and the life of a run. Does not belong here: who asks for one
(`automation.simulator`), and how its events look (`automation.simulated_log`).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dagster import DagsterEventType

from pipelines.automation.graph import Target
from pipelines.automation.simulated_log import Clock, Log
from pipelines.automation.simulated_tables import Tables
from pipelines.sources.feed import Partition

_PRIORITY = "dagster/priority"
_DEQUEUE_SECONDS = 1.0


@dataclass(frozen=True)
class Pace:
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
        """How long a step takes."""
        median = self.step.get(asset, 20.0) if isinstance(self.step, Mapping) else self.step
        factor = min(chance.lognormvariate(0.0, self.spread), 4.0) if self.spread else 1.0
        return median * factor * (1 + self.each_more * (partitions - 1))


@dataclass
class Run:
    """A simulated run. `committed` holds for each of its assets when its partitions were written."""

    id: str
    assets: tuple[str, ...]
    partitions: tuple[Partition, ...]
    tags: Mapping[str, str]
    created_at: float
    chance: random.Random = field(repr=False)
    started_at: float | None = None
    ended_at: float | None = None
    succeeded: bool | None = None
    committed: dict[str, float] = field(default_factory=dict)

    @property
    def targets(self) -> list[Target]:
        """What it builds."""
        return [(asset, partition) for asset in self.assets for partition in self.partitions]


Failing = Callable[[Run, str], bool]
"""Whether a run fails at this asset."""

Lasting = Callable[[Run, str], float | None]
"""How long a run takes at this asset, where that is said."""

At = Callable[[float, Callable[[], None]], None]
"""Do something at a time."""


class Runs:
    """The run queue and the runs under way.

    Args:
        at: Puts something on the simulation's agenda.
        stir: Says that the event log has news.
    """

    def __init__(self, pace: Pace, seed: int, clock: Clock, tables: Tables, at: At, stir: Callable[[], None]) -> None:
        self.all: list[Run] = []
        self.failing: list[Failing] = []
        self.lasting: list[Lasting] = []
        self.paused = False
        self.log: Log
        self._pace, self._seed, self._clock, self._tables = pace, seed, clock, tables
        self._at, self._stir = at, stir
        self._queue: list[Run] = []
        self._under_way: list[Run] = []

    def create(self, assets: Sequence[str], tags: Mapping[str, str]) -> Run:
        """A run is created and queued. `assets` in topological order; its partitions are in the tags."""
        # Its own dice, so that one run more does not change the fate of all that follow.
        chance = random.Random(f"{self._seed}/run {len(self.all)}")
        run_id = f"{chance.getrandbits(128):032x}"
        partitions = self.log.created(run_id, assets, tags)
        run = Run(run_id, tuple(assets), tuple(partitions), tags, self._clock.now, chance)
        self.all.append(run)
        self._queue.append(run)
        self._after(_DEQUEUE_SECONDS, self._dequeue)
        self._stir()
        return run

    def kill_all(self) -> None:
        """Every run that has not ended fails."""
        for run in [*self._under_way, *self._queue]:
            self._end(run, succeeded=False)

    def resume(self) -> None:
        """The queue is served again."""
        self.paused = False
        self._dequeue()

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(self._clock.now + seconds, action)

    def _dequeue(self) -> None:
        if self.paused:
            return
        for run in sorted(self._queue, key=lambda run: -int(run.tags.get(_PRIORITY, "0"))):
            if len(self._under_way) < self._pace.at_once and self._admitted(run):
                self._queue.remove(run)
                self._under_way.append(run)
                self.log.state(run.id, DagsterEventType.RUN_STARTING)
                self._after(run.chance.uniform(*self._pace.launch), lambda run=run: self._start(run))  # type: ignore[misc]

    def _admitted(self, run: Run) -> bool:
        return all(
            sum(tag in other.tags for other in self._under_way) < limit
            for tag, limit in self._pace.limits.items()
            if tag in run.tags
        )

    def _start(self, run: Run) -> None:
        if run.ended_at is not None:
            return
        run.started_at = self._clock.now
        self.log.state(run.id, DagsterEventType.RUN_START)
        fails_at = run.chance.choice(run.assets) if run.chance.random() < self._pace.failing else None
        self._step(run, 0, fails_at)

    def _step(self, run: Run, number: int, fails_at: str | None) -> None:
        asset = run.assets[number]
        contents = {partition: self._tables.content((asset, partition)) for partition in run.partitions}
        fails = asset == fails_at or any(failing(run, asset) for failing in self.failing)

        def _ends() -> None:
            if run.ended_at is not None:
                return
            if fails:
                self._end(run, succeeded=False)
                return
            self._tables.write(asset, contents)
            run.committed[asset] = self._clock.now
            self.log.materialized(run.id, asset, contents)
            self._stir()
            if number + 1 < len(run.assets):
                self._step(run, number + 1, fails_at)
            else:
                self._end(run, succeeded=True)

        by_chance = self._pace.duration(asset, len(run.partitions), run.chance)
        self._after(next((told for lasts in self.lasting if (told := lasts(run, asset)) is not None), by_chance), _ends)

    def _end(self, run: Run, *, succeeded: bool) -> None:
        run.ended_at, run.succeeded = self._clock.now, succeeded
        self.log.state(run.id, DagsterEventType.RUN_SUCCESS if succeeded else DagsterEventType.RUN_FAILURE)
        self._stir()
        for held in (self._under_way, self._queue):
            if run in held:
                held.remove(run)
        self._after(_DEQUEUE_SECONDS, self._dequeue)
