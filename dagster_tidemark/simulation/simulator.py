"""Days of arrivals, failures, deploys and outages in seconds: how automation is tested, yours included.

    simulation = Simulation([raw_orders, orders, sales_hourly], start=datetime(2026, 10, 1, tzinfo=UTC))
    simulation.arrive("raw/orders", "2026-10-01-07:00", at=simulation.time(hours=7, minutes=12))
    simulation.run(hours=10)
    assert [run.assets for run in simulation.runs] == [("orders", "sales_hourly")]

The sensors are the real ones, on a real (ephemeral) instance whose clock is the simulation's. Runs are not executed:
they wait, last and fail as `Pace` says, and write the events a real run writes.

Belongs here: the vocabulary of tests. Does not belong here: what then happens (`simulation.platform`), the
life of a run (`simulation.runs`), how it is written down (`simulation.log`), what a table then
holds (`simulation.simulated_tables`).
"""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from dagster_tidemark.engine.overview import overview
from dagster_tidemark.event_log import adapter
from dagster_tidemark.planner.decisions import Standing
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
        assets: A list of assets, or definitions (of which the assets are taken).
        start: The first moment, with a time zone.
        seed: The same seed gives the same days.
        every_tick: Evaluate each tick of the sensors. Otherwise only those at which a plan asks for something, which
            gives the same runs; a graph with conditions of your own is always ticked, or every `own_every` seconds.
        content: What the content version of a partition becomes, if not a hash of its inputs' and its code's.
        reads: What a partition is made from, if not what the planner's graph says.
        settings: Of the code location: contracts run at its `contract_scale`. None: as they are written.
    """

    @property
    def failed_ticks(self) -> list[FailedTick]:
        """Every tick of a sensor that raised."""
        return self._daemon.failed_ticks

    @property
    def for_nothing(self) -> list[tuple[float, str, Partition]]:
        """What sensors asked for though there was no such partition: when, asset, partition."""
        return self._daemon.for_nothing

    def observed(self, source: str) -> list[tuple[Partition, float]]:
        """Every observation of a source so far: partition, and when the data arrived (Unix seconds)."""
        events = adapter.events_after(self.instance.fetch_observations, source, 0)
        tags = [(event, adapter.observation_tags(event)) for event in events]
        return [(event.partition_key, float(of.get(ARRIVED_AT, event.timestamp))) for event, of in tags]

    def time(self, **since_start: float) -> float:
        """A moment after the start, in Unix seconds: `time(days=1, hours=9)`."""
        return self.start.timestamp() + timedelta(**since_start).total_seconds()

    def moment(self) -> datetime:
        """What the platform's clock shows."""
        return datetime.fromtimestamp(self.clock.shown, UTC)

    def standings(self) -> dict[str, Standing]:
        """How each contract stands now."""
        with self.clock.frozen():
            return overview(self.instance, self.asset_graph, self._settings)[1]

    # What is to happen.

    def arrive(self, source: str, partition: Partition = None, *, at: float, version: str | None = None) -> None:
        """Data arrives in a partition of a source; by default its version is a new one."""
        notice = self._chance.uniform(*self.pace.notice)
        self.at(at, lambda: self._arrived((source, partition), version))
        self.at(at + notice, lambda: self._noticed((source, partition)))

    def observe(
        self, source: str, partition: Partition, version: str, *, at: float, listed_at: float | None = None
    ) -> None:
        """Somebody reports an observation: of a listing of that time (Unix seconds), by default of just now."""
        listed = at if listed_at is None else listed_at
        self.at(at, lambda: self._observed((source, partition), version, listed))

    def tell(self, source: str, partition: Partition = None, version: str | None = None, *, at: float) -> None:
        """Somebody who lists nothing reports an observation: with a data version, or without."""
        self.at(at, lambda: self._told((source, partition), version))

    def add_keys(self, name: str, *keys: str, at: float) -> None:
        """Keys of a dynamic partitions definition come into being."""
        self.at(at, lambda: self._keys_added(name, keys))

    def remove_key(self, name: str, key: str, *, at: float) -> None:
        """A key of a dynamic partitions definition is deleted; the events about it stay."""
        self.at(at, lambda: self._key_removed(name, key))

    def fail(self, asset: str, partition: Partition = None, *, times: int = 1, how: RunFate = RunFate.FAILS) -> None:
        """The next runs that build this (any partition, if none is given) fail at it, or whatever befalls them."""
        left = itertools.repeat(how, times)
        if how is RunFate.NEVER_BEGINS:
            self._runs.stalling.append(
                lambda run: asset in run.assets and _meant(run, asset, asset, partition) and bool(next(left, None))
            )
        else:
            self._runs.meeting.append(lambda run, at: next(left, None) if _meant(run, at, asset, partition) else None)

    def fail_check(self, asset: str, check: str, *, times: int = 1, how: CheckFate = CheckFate.FAILS) -> None:
        """Let a check of an asset fail, or meet another fate, in the next runs that evaluate it."""
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
    ) -> None:
        """A check is evaluated on what is there: by a run of nothing else, or reported by somebody.

        Args:
            blocking: What a report without a run says of the check; by default what its declaration says.
        """
        key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), check)
        self.at(at, lambda: self._evaluated(key, passed, by_run, blocking))

    def heal(self, *, at: float) -> None:
        """From a time on nothing fails any more of what was told to fail."""
        self.at(at, self._healed)

    def hold_in_queue(self, asset: str, *, at: float, until: float) -> None:
        """Runs of an asset do not leave the queue."""
        self._runs.holding.append(lambda run: asset in run.assets and at <= self.clock.now < until)
        self.at(until, self._runs.resume)

    def slow(self, asset: str, partition: Partition = None, *, seconds: float, times: int = 1) -> None:
        """The next runs that build this (any partition, if none is given) take so long at it."""
        left = itertools.repeat(seconds, times)
        self._runs.lasting.append(lambda run, at: next(left, None) if _meant(run, at, asset, partition) else None)

    def request(self, assets: Sequence[str], partitions: Sequence[Partition] = (None,), *, at: float) -> None:
        """A person asks for a run over consecutive partitions, in the UI."""
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
        """A person, or another system, reports a materialization that no run made."""
        self.at(at, lambda: self._reported((asset, partition), content, version))

    def cancel(self, asset: str, *, at: float) -> None:
        """A person cancels the runs of an asset that have not ended."""
        self.at(at, lambda: self._canceled(asset))

    def delete_runs(self, asset: str, *, at: float) -> None:
        """An operator deletes the runs of an asset that have ended, and with them their events."""
        self.at(at, lambda: self._runs_deleted(asset))

    def wipe(self, asset: str, *, at: float) -> None:
        """A person wipes an asset in the UI: nothing says any more that it was ever built."""
        self.at(at, lambda: self._wiped(asset))

    def step_clock(self, seconds: float, *, at: float) -> None:
        """The platform's clock is set: ahead, or back where the seconds are negative."""
        self.at(at, lambda: self._clock_stepped(seconds))

    def switch(self, sensor: str, *, on: bool, at: float) -> None:
        """A person starts or stops a sensor: `automation`, `catch_up` or `landing`."""
        self.at(at, lambda: self._switched(sensor, on=on))

    def deploy(self, assets: Assets, *, at: float) -> None:
        """Other code from a time on; what the code server knew is gone."""
        self.at(at, lambda: self._load(assets))

    def restart(self, *, at: float) -> None:
        """The code server forgets everything; runs go on."""
        self.at(at, lambda: self._load(None))

    def outage(self, *, at: float, until: float) -> None:
        """Nothing ticks, nothing is observed, and the runs under way die."""
        self.at(at, self._go_down)
        self.at(until, self._come_up)


def _meant(run: Run, at: str, asset: str, partition: Partition) -> bool:
    return at == asset and (partition is None or partition in run.partitions)
