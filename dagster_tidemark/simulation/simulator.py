"""Simulator of arrivals, failures, deploys and outages, which runs a day in seconds. For tests of automation.

    simulation = Simulation([raw_orders, orders, sales_hourly], start=datetime(2026, 10, 1, tzinfo=UTC))
    simulation.arrive("raw/orders", "2026-10-01-07:00", at=simulation.time(hours=7, minutes=12))
    simulation.run(hours=10)
    assert [run.assets for run in simulation.runs] == [("orders", "sales_hourly")]

The sensors are the real ones, on a real (ephemeral) instance whose clock is the simulation's. Runs are not executed:
they wait, last and fail according to `RunPace`, and write the events of a real run.

Belongs here: the methods that tests call. Does not belong here: their effects (`simulation.platform`), the lifecycle of
a run (`simulation.runs`), its events (`simulation.log`), and the contents of tables (`simulation.simulated_tables`).
"""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from dagster_tidemark.engine.overview import overview
from dagster_tidemark.event_log import event_rows
from dagster_tidemark.event_log.event_rows import EventKind
from dagster_tidemark.planner.decisions import ContractStatus
from dagster_tidemark.planner.overrides import OverrideKind
from dagster_tidemark.simulation.daemon import FailedTick
from dagster_tidemark.simulation.partitions import partition_tags
from dagster_tidemark.simulation.platform import Assets, Platform
from dagster_tidemark.simulation.run import CheckFate, Run, RunFate, RunPace
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import ARRIVED_AT

__all__ = ["Assets", "CheckFate", "Run", "RunFate", "RunPace", "Simulation"]


class Simulation(Platform):
    """A platform in simulated time.

    Args:
        assets: Definitions, or a list of assets, which need `automation_condition=derived()`. Other assets of a list
            run only if a test requests them; they are logged.
        start: The first moment, with a time zone.
        seed: Seed of all random numbers. The same seed gives the same days.
        every_tick: True to evaluate each tick of the sensors. Otherwise only ticks whose plan requests a run are
            evaluated, which gives the same runs. A graph with user-defined conditions is evaluated at each tick, or
            every `own_every` seconds.
        content: Content version of a partition, if it is not a hash of the versions of its inputs and code.
        reads: Inputs of a partition, if they differ from the planner's graph.
        settings: Settings of the code location, for their `contract_scale`. Without them, contracts are not scaled.
    """

    @property
    def failed_ticks(self) -> list[FailedTick]:
        """Every tick that raised."""
        return self._daemon.failed_ticks

    @property
    def for_nothing(self) -> list[tuple[float, str, Partition]]:
        """Requests of sensors for partitions that did not exist, each with time, asset and partition."""
        return self._daemon.for_nothing

    def observed(self, source: str) -> list[tuple[Partition, float]]:
        """Return every observation of a source so far: its partition, and the arrival of its data (Unix seconds)."""
        rows = event_rows.rows_of_assets(self.instance, [source], [EventKind.OBSERVED], since=0.0)
        events = [event for row in rows if (event := event_rows.event_of(row, row.id)) is not None]
        return [(event.partitions[0], float(event.tags.get(ARRIVED_AT, event.at))) for event in events]

    def time(self, **since_start: float) -> float:
        """Return a moment after the start, in Unix seconds: `time(days=1, hours=9)`."""
        return self.start.timestamp() + timedelta(**since_start).total_seconds()

    def moment(self) -> datetime:
        """Return the time that the platform's clock shows."""
        return datetime.fromtimestamp(self.clock.shown, UTC)

    def standings(self) -> dict[str, ContractStatus]:
        """Return the present state of each contract."""
        with self.clock.frozen():
            return overview(self.instance, self.asset_graph, self._settings)[1]

    # Events to schedule.

    def arrive(self, source: str, partition: Partition = None, *, at: float, version: str | None = None) -> None:
        """Schedule an arrival of data in a source partition, by default with a new version."""
        notice = self._chance.uniform(*self.pace.notice)
        self.at(at, lambda: self._arrives((source, partition), version))
        self.at(at + notice, lambda: self._noticed((source, partition)))

    def observe(
        self, source: str, partition: Partition, version: str, *, at: float, listed_at: float | None = None
    ) -> None:
        """Report an observation of a listing made at `listed_at` (Unix seconds), by default at `at`."""
        listed = at if listed_at is None else listed_at
        self.at(at, lambda: self._observed((source, partition), version, listed))

    def tell(self, source: str, partition: Partition = None, version: str | None = None, *, at: float) -> None:
        """Report an observation without a listing, as REST or an operator does, with or without a data version."""
        self.at(at, lambda: self._told((source, partition), version))

    def add_keys(self, name: str, *keys: str, at: float) -> None:
        """Add keys to a dynamic partitions definition."""
        self.at(at, lambda: self._keys_added(name, keys))

    def remove_key(self, name: str, key: str, *, at: float) -> None:
        """Delete a key of a dynamic partitions definition. Its events stay."""
        self.at(at, lambda: self._key_removed(name, key))

    def fail(self, asset: str, partition: Partition = None, *, times: int = 1, how: RunFate = RunFate.FAILS) -> None:
        """Make the next runs of an asset, for any partition by default, fail at it or end as `how` says."""
        left = itertools.repeat(how, times)
        if how is RunFate.NEVER_BEGINS:
            self._runs.stalling.append(
                lambda run: asset in run.assets and _meant(run, asset, asset, partition) and bool(next(left, None))
            )
        else:
            self._runs.meeting.append(lambda run, at: next(left, None) if _meant(run, at, asset, partition) else None)

    def fail_check(self, asset: str, check: str, *, times: int = 1, how: CheckFate = CheckFate.FAILS) -> None:
        """Make a check of an asset fail, or end as `how` says, in the next runs that evaluate it."""
        key, left = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), check), itertools.repeat(how, times)
        self._runs.failing.append(lambda run, evaluated: next(left, None) if evaluated == key else None)

    def evaluate_check(
        self,
        asset: str,
        check: str,
        *,
        passed: bool,
        at: float,
        by_run: bool = True,
        blocking: bool | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Evaluate a check on the present data, by a run of only this check or by a report without a run.

        Args:
            seconds: Time that the run takes. Its result comes later, and is about the data at its beginning.
            blocking: True if a report without a run reports a blocking check; by default as the check is declared.
        """
        key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), check)
        if by_run:
            self.at(at, lambda: self._check_alone(key, passed, seconds))
        else:
            self.at(at, lambda: self._evaluated(key, passed, blocking))

    def heal(self, *, at: float) -> None:
        """End all scheduled failures of runs and checks."""
        self.at(at, self._healed)

    def hold_in_queue(self, asset: str, *, at: float, until: float) -> None:
        """Keep the runs of an asset in the queue."""
        self._runs.holding.append(lambda run: asset in run.assets and at <= self.clock.now < until)
        self.at(until, self._runs.resume)

    def slow(self, asset: str, partition: Partition = None, *, seconds: float, times: int = 1) -> None:
        """Make the next runs of an asset, for any partition by default, take `seconds` at it."""
        left = itertools.repeat(seconds, times)
        self._runs.lasting.append(lambda run, at: next(left, None) if _meant(run, at, asset, partition) else None)

    def request(self, assets: Sequence[str], partitions: Sequence[Partition] = (None,), *, at: float) -> None:
        """Request a run over consecutive partitions, as a person does in the UI."""
        self.at(at, lambda: self._create(assets, partition_tags(partitions)))

    def report(
        self,
        asset: str,
        partition: Partition = None,
        *,
        at: float,
        content: str | None = None,
        version: str | None = None,
    ) -> None:
        """Report a materialization that no run made, as a person or another system does."""
        self.at(at, lambda: self._reported((asset, partition), content, version))

    def cancel(self, asset: str, *, at: float) -> None:
        """Cancel the runs of an asset that have not ended, as a person does."""
        self.at(at, lambda: self._canceled(asset))

    def delete_runs(self, asset: str, *, at: float) -> None:
        """Delete the ended runs of an asset with their events, as an operator does."""
        self.at(at, lambda: self._runs_deleted(asset))

    def wipe(self, asset: str, *, at: float) -> None:
        """Wipe an asset, as a person does in the UI: all events of its builds are deleted."""
        self.at(at, lambda: self._wiped(asset))

    def step_clock(self, seconds: float, *, at: float) -> None:
        """Set the platform's clock ahead, or back if the seconds are negative."""
        self.at(at, lambda: self._clock_stepped(seconds))

    def switch(self, sensor: str, *, on: bool, at: float) -> None:
        """Start or stop a sensor, as a person does: `automation`, `catch_up` or `landing`."""
        self.at(at, lambda: self._switched(sensor, on=on))

    def pause(self, *assets: str, at: float, until: float | None = None) -> None:
        """Pause assets until a time (Unix seconds) or until they are resumed, as `tidemark pause` does."""
        self.at(at, lambda: self._overridden(OverrideKind.PAUSE, assets, until))

    def resume(self, *, at: float) -> None:
        """End all pauses, as `tidemark resume` does."""
        self.at(at, self._resumed)

    def skip(self, *assets: str, at: float) -> None:
        """Leave out what is pending for assets at a time, as `tidemark skip` does."""
        self.at(at, lambda: self._overridden(OverrideKind.SKIP, assets))

    def rebuild(self, *assets: str, at: float) -> None:
        """Build up-to-date partitions of assets again, as `tidemark rebuild` does."""
        self.at(at, lambda: self._overridden(OverrideKind.REBUILD, assets))

    def deploy(self, assets: Assets, *, at: float) -> None:
        """Deploy different code. The code server loses its memory."""
        self.at(at, lambda: self._load(assets))

    def restart(self, *, at: float) -> None:
        """Restart the code server, which loses its memory. Runs continue."""
        self.at(at, lambda: self._load(None))

    def outage(self, *, at: float, until: float) -> None:
        """Stop the platform for a period: there are no ticks and no observations, and the runs in progress die."""
        self.at(at, self._go_down)
        self.at(until, self._come_up)


def _meant(run: Run, at: str, asset: str, partition: Partition) -> bool:
    return at == asset and (partition is None or partition in run.partitions)
