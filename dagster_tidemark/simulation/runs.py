"""The lifecycle of simulated runs: they wait in the queue, start, last, fail, and write their partitions.

Belongs here: the lifecycle of a run. Does not belong here: requests for runs (`simulation.simulator`), and the form of
events (`simulation.log`).
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence

import dagster as dg
from dagster import DagsterEventType
from dagster._core.events import RunFailureReason

from dagster_tidemark.simulation.log import Clock, SimulatedLog
from dagster_tidemark.simulation.run import CheckFate, Failing, Lasting, Meeting, Run, RunFate, RunPace, Stalling
from dagster_tidemark.simulation.simulated_tables import Tables

_PRIORITY = "dagster/priority"
_DEQUEUE_SECONDS = 1.0
_START_TIMEOUT = 120.0
_RUN_TIMEOUT = 600.0
_PROCESS_GONE = "The platform stopped while this run was in progress."


At = Callable[[float, Callable[[], None]], None]
"""Schedules an action at a time (Unix seconds)."""


_Outcomes = dict[dg.AssetCheckKey, CheckFate | None]
"""Outcomes of evaluated checks; None if a check passed."""


class Runs:
    """The run queue and the runs in progress.

    Args:
        at: Schedules an action.
        stir: Notifies the simulation of new events in the log.
    """

    def __init__(
        self, pace: RunPace, seed: int, clock: Clock, tables: Tables, at: At, stir: Callable[[], None]
    ) -> None:
        self.all: list[Run] = []
        self.meeting: list[Meeting] = []
        self.failing: list[Failing] = []
        self.stalling: list[Stalling] = []
        self.holding: list[Stalling] = []
        self.lasting: list[Lasting] = []
        self.paused = False
        self.log: SimulatedLog
        self._pace, self._seed, self._clock, self._tables = pace, seed, clock, tables
        self._at, self._stir = at, stir
        self._queue: list[Run] = []
        self._under_way: list[Run] = []
        self._gone: list[Run] = []

    def create(
        self, assets: Sequence[str], tags: Mapping[str, str], checks: Collection[dg.AssetCheckKey] | None = None
    ) -> Run:
        """Create and queue a run.

        Args:
            assets: Its assets in topological order.
            tags: Its tags, which name its partitions.

        Raises:
            Exception: as `SimulatedLog.created`.
        """
        # Each run has its own random numbers, so that an additional run does not change the fate of later ones.
        chance = random.Random(f"{self._seed}/run {len(self.all)}")
        run_id = f"{chance.getrandbits(128):032x}"
        run = Run(run_id, tuple(assets), {}, tags, self._clock.now, chance, self.log, checks)
        self._stir()
        run.of = self.log.created(run_id, assets, tags, checks)
        self.all.append(run)
        self._queue.append(run)
        self._after(_DEQUEUE_SECONDS, self._dequeue)
        return run

    def kill_all(self) -> None:
        """Kill the processes of all runs in progress, without an event."""
        for run in list(self._under_way):
            self._gone.append(run)
            self._leave(run, why=RunFate.DIES)

    def resume(self) -> None:
        """After the platform is up again, cancel the runs whose process is gone, and start queued runs."""
        for run in self._gone:
            self.log.canceled(run.id, _PROCESS_GONE)
        self._gone.clear()
        self.paused = False
        self._stir()
        self._dequeue()

    def cancel(self, run: Run) -> None:
        """Cancel a run, as a person does."""
        if run.ended_at is None:
            self.log.canceled(run.id)
            self._leave(run, why="canceled")

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
                self._stir()  # a run that has left the queue frees writers of its inputs
                if any(stalls(run) for stalls in self.stalling):
                    self._after(_START_TIMEOUT, lambda run=run: self._fail(run, RunFate.NEVER_BEGINS))  # type: ignore[misc]
                else:
                    self._after(run.chance.uniform(*self._pace.launch), lambda run=run: self._start(run))  # type: ignore[misc]

    def _admitted(self, run: Run) -> bool:
        return not any(holds(run) for holds in self.holding) and all(
            sum(tag in other.tags for other in self._under_way) < limit
            for tag, limit in self._pace.limits.items()
            if tag in run.tags
        )

    def _start(self, run: Run) -> None:
        if run.ended_at is not None:
            return
        run.started_at, run.code = self._clock.now, self._tables.code_versions
        self.log.state(run.id, DagsterEventType.RUN_START)
        if not run.assets:
            self._after(self._pace.duration("", 1, run.chance), lambda: self._checks_alone(run))
            return
        fails_at = run.chance.choice(run.assets) if run.chance.random() < self._pace.failing else None
        self._step(run, 0, fails_at)

    def _step(self, run: Run, number: int, fails_at: str | None) -> None:
        asset = run.assets[number]
        run.began[asset] = self._clock.now
        saw = {partition: self._tables.inputs((asset, partition)) for partition in run.of[asset]}
        contents = {p: self._tables.content((asset, p), inputs, run.code) for p, inputs in saw.items()}
        run.saw |= {(asset, partition): inputs for partition, inputs in saw.items()}
        told = (found for meets in self.meeting if (found := meets(run, asset)) is not None)
        fate = RunFate.FAILS if asset == fails_at else next(told, None)

        def _ends() -> None:
            if run.ended_at is not None:
                return
            wrong = run.log.existing.why_it_raises(asset, run.of[asset])
            if wrong or fate in (RunFate.FAILS, RunFate.DIES):
                self._fail(run, fate if fate and not wrong else RunFate.FAILS, wrong)
                return
            if fate is RunFate.YIELDS_NOTHING:
                run.empty[asset] = self._clock.now
            else:
                self._tables.write(asset, contents)
                run.wrote |= {(asset, partition): content for partition, content in contents.items()}
                run.committed[asset] = self._clock.now
                run.log.materialized(run.id, asset, contents, run.code.get(asset))
            self._stir()
            checks = run.log.checks_of([asset], run.checks) if asset in run.committed else []
            self._check(run, checks, lambda found: _goes_on(_stopping(run, found)))

        def _goes_on(found: CheckFate | None) -> None:
            if found is CheckFate.TIMES_OUT:
                self._after(_RUN_TIMEOUT, lambda: self._fail(run, RunFate.FAILS, CheckFate.TIMES_OUT))
            elif found:
                self._fail(run, RunFate.FAILS, f"a blocking check: {found}")
            elif number + 1 < len(run.assets):
                self._step(run, number + 1, fails_at)
            else:
                self._ends_well(run)

        by_chance = self._pace.duration(asset, len(run.of[asset]), run.chance)
        lasting = (seconds for lasts in self.lasting if (seconds := lasts(run, asset)) is not None)
        self._after(next(lasting, by_chance), _ends)

    def _checks_alone(self, run: Run) -> None:
        """Evaluate the checks of a run that evaluates only checks, and end it."""

        def _ends(found: _Outcomes) -> None:
            if any(fate in (CheckFate.RAISES, CheckFate.TIMES_OUT) for fate in found.values()):
                self._fail(run, RunFate.FAILS, CheckFate.RAISES)
            else:
                self._ends_well(run)

        self._check(run, sorted(run.checks or ()), _ends)

    def _check(self, run: Run, checks: Sequence[dg.AssetCheckKey], then: Callable[[_Outcomes], None]) -> None:
        """Evaluate checks in a run, one after the other, and pass their outcomes on, unless the run ends before."""
        left, found = list(checks), _Outcomes()

        def _next() -> None:
            if run.ended_at is not None:
                return
            if not left:
                then(found)
                return
            check = left.pop(0)
            run.evaluating[check] = self._clock.now
            found[check] = fate = next((f for failing in self.failing if (f := failing(run, check)) is not None), None)
            seconds = self._pace.check_seconds(run.chance)
            if seconds:
                self._after(seconds, lambda: _reports(check, fate))
            else:
                _reports(check, fate)

        def _reports(check: dg.AssetCheckKey, fate: CheckFate | None) -> None:
            if run.ended_at is None and fate in (None, CheckFate.FAILS):
                run.log.checked(run.id, check, passed=fate is None)
                run.results[check] = self._clock.now, fate is None
                self._stir()
            _next()

        _next()

    def _ends_well(self, run: Run) -> None:
        if run.raised:  # a check that is not blocking raised; readers of its asset were built
            self._fail(run, RunFate.FAILS, CheckFate.RAISES)
            return
        self.log.state(run.id, DagsterEventType.RUN_SUCCESS)
        self._leave(run)

    def _fail(self, run: Run, fate: RunFate, why: str = "") -> None:
        if run.ended_at is not None:
            return
        if fate is RunFate.FAILS:
            self.log.failed(run.id, RunFailureReason.STEP_FAILURE)
        elif fate is RunFate.NEVER_BEGINS:
            message = f"Run timed out due to taking longer than {_START_TIMEOUT:.0f} seconds to start."
            self.log.failed(run.id, RunFailureReason.START_TIMEOUT, message)
        else:
            message = f"Detected run worker status FAILED. Marking run {run.id} as failed."
            self.log.failed(run.id, None, message)
        self._leave(run, why=why or fate)

    def _leave(self, run: Run, why: str = "") -> None:
        run.ended_at, run.succeeded, run.why = self._clock.now, not why, why
        self._stir()
        for held in (self._under_way, self._queue):
            if run in held:
                held.remove(run)
        self._after(_DEQUEUE_SECONDS, self._dequeue)


def _stopping(run: Run, found: _Outcomes) -> CheckFate | None:
    """Return the outcome of an asset's checks that stops a run before the readers of the asset, or None."""
    run.raised |= {check for check, fate in found.items() if fate is CheckFate.RAISES}
    stopping = [
        fate
        for check, fate in found.items()
        if fate is CheckFate.TIMES_OUT or (run.log.blocks(check) and fate not in (None, CheckFate.SKIPPED))
    ]
    return stopping[-1] if stopping else None
