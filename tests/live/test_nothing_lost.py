"""On the real daemon: what lands during a run, or before and during one that fails, is in the tables in the end.

The code location is `tests.live.toy`; Spark and S3 have no part in this. Stories take long and do little, so all are
played at once, each on a day of its own (no two consecutive: those would share runs), and each test tells how its story
ended.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from dagster_tidemark.local.host import process_tree
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, LISTED_AT
from tests.checkout import CHECKOUT
from tests.live.waiting import eventually, holds_for

CORE, DAYS = "core.numbers", "marts.days"
_PARTITION_TAGS = ("dagster/partition", "dagster/asset_partition_range_start")
STORIES: "list[Callable[[Toy], None]]" = []


def story(play: "Callable[[Toy], None]") -> "Callable[[Toy], None]":
    """Something that happens on a day of its own."""
    STORIES.append(play)
    return play


class Toy:
    """The toy location under a daemon: what lands, what its runs are to do, and what they made."""

    def __init__(self, room: Path, instance: dg.DagsterInstance) -> None:
        self._room = room
        self._instance = instance
        for folder in ("landed", "inside", "closed", "broken", "made"):
            (room / folder).mkdir()

    def land(self, hour: str, value: str) -> None:
        """A number lands, and is observed as the landing sensor does it."""
        (self._room / "landed" / hour).write_text(value)
        now = f"{time.time():.3f}"
        tags = {DATA_VERSION: value, LISTED_AT: now, ARRIVED_AT: now}
        observation = dg.AssetObservation(asset_key=["raw", "numbers"], partition=hour, tags=tags)
        self._instance.report_runless_asset_event(observation)

    def close(self, asset: str, partition: str) -> None:
        """The next run of this waits once it has read its input."""
        (self._room / "closed" / f"{asset}@{partition}").touch()

    def open(self, asset: str, partition: str) -> None:
        """It goes on."""
        (self._room / "closed" / f"{asset}@{partition}").unlink()

    def break_(self, asset: str, partition: str) -> None:
        """Runs of this fail from now on."""
        (self._room / "broken" / f"{asset}@{partition}").touch()

    def mend(self, asset: str, partition: str) -> None:
        """Runs of this succeed again."""
        (self._room / "broken" / f"{asset}@{partition}").unlink()

    def wait_inside(self, asset: str, partition: str, value: str) -> None:
        """Wait until a run has read its input, and found this."""
        self._wait("inside", f"{asset}@{partition}", value, seconds=90)

    def wait_made(self, asset: str, partition: str, value: str) -> None:
        """Wait until the table holds this."""
        self._wait("made", f"{asset}@{partition}", value, seconds=90)

    def made(self, asset: str, partition: str) -> bool:
        """Whether this was ever made."""
        return (self._room / "made" / f"{asset}@{partition}").exists()

    def failed_runs(self, partition: str) -> int:
        """How many runs of a partition failed; a single one may be asked for as a range too."""
        failed = self._instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        return sum(partition in (run.tags.get(tag) for tag in _PARTITION_TAGS) for run in failed)

    def wait_failed(self, partition: str, count: int = 1) -> None:
        """Wait until so many runs of a partition have failed."""

        def check() -> None:
            assert self.failed_runs(partition) >= count, f"{partition}: {self.failed_runs(partition)} failed runs"

        eventually(check, seconds=120, every=0.2)

    def _wait(self, folder: str, name: str, value: str, *, seconds: float) -> None:
        def check() -> None:
            path = self._room / folder / name
            found = path.read_text() if path.exists() else None
            assert found == value, f"{folder} {name}: {found}, expected {value}"

        eventually(check, seconds=seconds, every=0.1)


@story
def what_lands_during_the_run_of_its_partition_is_taken_over_afterwards(toy: Toy) -> None:
    day, hour = "2026-11-02", "2026-11-02-07:00"
    toy.close(CORE, hour)
    toy.land(hour, "1")
    toy.wait_inside(CORE, hour, "1")
    toy.land(hour, "2")
    # Nothing starts a second run beside the first.
    holds_for(lambda: toy.wait_inside(CORE, hour, "1"), seconds=7)
    toy.open(CORE, hour)
    toy.wait_made(CORE, hour, "2")
    toy.wait_made(DAYS, day, "2")


@story
def what_is_built_while_its_reader_runs_reaches_the_reader(toy: Toy) -> None:
    day, early, late = "2026-11-04", "2026-11-04-07:00", "2026-11-04-08:00"
    toy.close(DAYS, day)
    toy.land(early, "1")
    toy.wait_inside(DAYS, day, "1")
    toy.land(late, "2")
    toy.wait_made(CORE, late, "2")
    toy.open(DAYS, day)
    toy.wait_made(DAYS, day, "1 2")


@story
def a_failed_run_is_made_up_for_though_nothing_new_lands(toy: Toy) -> None:
    day, hour, other = "2026-11-06", "2026-11-06-07:00", "2026-11-06-08:00"
    toy.break_(CORE, hour)
    toy.land(hour, "1")
    toy.wait_failed(hour)
    # A good run of the next hour does not make the failed one forgotten.
    toy.land(other, "2")
    toy.wait_made(DAYS, day, "2")
    assert not toy.made(CORE, hour)
    toy.mend(CORE, hour)
    toy.wait_made(CORE, hour, "1")
    toy.wait_made(DAYS, day, "1 2")


@story
def what_lands_during_a_run_that_fails_is_in_the_good_run_that_follows(toy: Toy) -> None:
    day, hour = "2026-11-08", "2026-11-08-07:00"
    toy.close(CORE, hour)
    toy.break_(CORE, hour)
    toy.land(hour, "1")
    toy.wait_inside(CORE, hour, "1")
    toy.land(hour, "2")
    toy.open(CORE, hour)
    toy.wait_failed(hour)
    toy.mend(CORE, hour)
    toy.wait_made(CORE, hour, "2")
    toy.wait_made(DAYS, day, "2")


@story
def a_reader_that_failed_is_made_up_for(toy: Toy) -> None:
    day, hour = "2026-11-10", "2026-11-10-07:00"
    toy.break_(DAYS, day)
    toy.land(hour, "1")
    toy.wait_failed(day)
    toy.land(hour, "2")
    toy.wait_failed(day, 2)
    toy.mend(DAYS, day)
    toy.wait_made(DAYS, day, "2")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """The stories, under way on a daemon with a home of its own and the project's instance configuration."""
    folder = tmp_path_factory.mktemp("toy")
    home, room = folder / "home", folder / "room"
    home.mkdir(), room.mkdir()
    (home / "dagster.yaml").symlink_to(CHECKOUT / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        made = Toy(room, instance)
        environment = os.environ | {"DAGSTER_HOME": str(home), "TOY_ROOM": str(room)}
        command = [sys.executable, "-m", "dagster._daemon", "run", "-f", str(Path(__file__).with_name("toy.py"))]
        with (folder / "daemon.log").open("wb") as log:
            daemon = subprocess.Popen(
                command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            # The time that a daemon takes to start, on a busy machine more than a minute, is no part of any story.
            eventually(lambda: _looks(instance), seconds=240)
            with ThreadPoolExecutor(len(STORIES)) as pool:
                yield {play.__name__: pool.submit(play, made) for play in STORIES}
        finally:
            process_tree.end_group(daemon, seconds=8)


def _looks(instance: dg.DagsterInstance) -> None:
    """Both sensors of the location have ticked."""
    ticks = {state.name for state in instance.all_instigator_state() if state.instigator_data.last_tick_timestamp}
    assert len(ticks) == 2, f"sensors that ticked: {sorted(ticks)}"


@pytest.mark.parametrize("name", [play.__name__ for play in STORIES])
def test_live_story_loses_no_landed_data(played: dict[str, Future[None]], name: str) -> None:
    played[name].result()
