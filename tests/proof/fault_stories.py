"""What a real daemon does when people interfere and machines fail.

Those of `STORIES` are told beside each other, after the shapes; those of `ALONE` one after the other, because they
touch what all share. Does not belong here: shapes of graphs (`tests.proof.shape_stories`).
"""

import time
from collections.abc import Callable

import dagster as dg

from tests.live.waiting import eventually
from tests.proof.shapes_location import FAULTS
from tests.proof.shapes_platform import SECONDS_TO_START, ToyPlatform

Story = Callable[[ToyPlatform], None]
STORIES: list[Story] = []
ALONE: list[Story] = []
DAY = "2026-10-05"
"""Some stories have a day of their own, so that what they count is theirs alone."""

TWELVE = [f"2026-10-{day:02}" for day in range(2, 14)]


def story(play: Story) -> Story:
    """One that may be told beside others."""
    STORIES.append(play)
    return play


def alone(play: Story) -> Story:
    """One that touches what all share."""
    ALONE.append(play)
    return play


@story
def a_canceled_run_is_made_up_for(toy: ToyPlatform) -> None:
    day = "2026-10-06"
    closed = toy.order("closed", "core/canceled", day)
    toy.land("raw/canceled", day)
    (first,) = toy.wait_asked("core/canceled")
    toy.ui.terminate(first.run)
    assert toy.ui.ended(first.run).status == "CANCELED"
    closed.unlink()
    toy.wait("core/canceled", day)
    toy.nothing_more("core/canceled")
    assert len(toy.asked("core/canceled")) == 2


@story
def a_run_whose_process_died_is_asked_for_again_at_once(toy: ToyPlatform) -> None:
    day = "2026-10-08"
    toy.order("killed", "core/killed", day)
    toy.land("raw/killed", day)
    (first,) = toy.wait_asked("core/killed")
    assert toy.ui.ended(first.run).status == "FAILURE"
    ended = time.time()
    second = toy.wait_asked("core/killed", 2, seconds=60)[1]
    toy.wait("core/killed", day)
    toy.nothing_more("core/killed")
    assert len(toy.asked("core/killed")) == 2
    assert second.at < ended + 15, f"{second.at - ended:.0f} s after its end was noticed"


@story
def a_run_that_never_starts_is_given_up_and_asked_for_again(toy: ToyPlatform) -> None:
    day = "2026-10-10"
    order = toy.room / "unlaunched" / "unstarted"
    order.touch()
    toy.land("raw/unstarted", day)
    begun = time.time()
    toy.wait("core/unstarted", day, seconds=180)
    assert not order.exists()
    first, second = toy.runs_of("core/unstarted")
    assert first.status.value == "FAILURE"
    toy.ui.succeeded(second.run_id)
    took = time.time() - begun
    assert took < SECONDS_TO_START + 45, f"{took:.0f} s"
    toy.nothing_more("core/unstarted")


@story
def a_backfill_that_overlaps_automation_ends_in_one_state(toy: ToyPlatform) -> None:
    days = [f"2026-11-{day:02}" for day in range(2, 14)]
    for day in days:
        toy.land("raw/overlapped", day, day)
    toy.ui.backfill("core/overlapped", partitions=days)
    for day in days:
        toy.land("raw/overlapped", day, f"{day} again")
    for day in days:
        toy.wait("core/overlapped", day, f"{day} again")
    toy.ui.backfilled(toy.ui.backfill("core/overlapped", partitions=days[:3]))
    toy.nothing_more("core/overlapped", seconds=30)
    assert {run.status.value for run in toy.runs_of("core/overlapped")} == {"SUCCESS"}, "also its checks, run along"
    assert max(toy.times_built("core/overlapped").values()) <= 4, toy.times_built("core/overlapped")


@story
def a_wiped_asset_is_built_again_within_a_minute(toy: ToyPlatform) -> None:
    days = ["2026-10-20", "2026-10-21", "2026-10-22"]
    for day in days:
        toy.land("raw/wiped", day, day)
    for day in days:
        toy.wait("core/wiped", day, day)
    toy.nothing_more("core/wiped", seconds=10)
    wiped = time.time()
    toy.wipe("core/wiped")

    def again() -> None:
        assert toy.times_built("core/wiped") == dict.fromkeys(days, 2), toy.asked("core/wiped")

    eventually(again, seconds=120)
    took = toy.built("core/wiped")[-1].at - wiped
    assert took < 60, f"{took:.0f} s"
    toy.nothing_more("core/wiped")


@alone
def with_catch_up_switched_off_what_waits_for_it_says_so(toy: ToyPlatform) -> None:
    toy.stop_sensor("catch_up")
    time.sleep(5)
    for day in TWELVE:
        toy.land("raw/held", day, day)
    toy.wait_row("core/held", "catch_up")
    toy.nothing_more("core/held", seconds=10)
    toy.start_sensor("catch_up")
    for day in TWELVE:
        toy.wait("core/held", day, day)
    toy.nothing_more("core/held")
    assert max(toy.times_built("core/held").values()) == 1, toy.asked("core/held")


@alone
def a_run_that_stays_in_the_queue_is_not_asked_for_again(toy: ToyPlatform) -> None:
    days = TWELVE[::3]  # no two in a row, which would share a run; as many as there are places
    closed = [toy.order("closed", "core/queued", day) for day in days]
    for day in days:
        toy.land("raw/queued", day)
    toy.wait_asked("core/queued", len(days))
    toy.land("raw/restarted", DAY)
    time.sleep(90)  # a request counts as unanswered after a minute
    waiting = toy.runs_of("core/restarted")
    assert [run.status.value for run in waiting] == ["QUEUED"], waiting
    for path in closed:
        path.unlink()
    toy.wait("core/restarted", DAY)
    toy.nothing_more("core/restarted")
    assert toy.times_built("core/restarted") == {DAY: 1}


@alone
def deleted_runs_and_a_restart_change_nothing(toy: ToyPlatform) -> None:
    built = [f"core/{name}" for name in FAULTS] + ["core/total", "marts/visits", "core/sales", "other/table"]
    toy.nothing_more(*built, seconds=10)
    before = {asset: len(toy.asked(asset)) for asset in built}
    for run in toy.instance.get_runs():
        toy.instance.delete_run(run.run_id)
    toy.nothing_more(*built, seconds=20)
    toy.stop()
    toy.start()
    toy.land("raw/restarted", TWELVE[0])
    toy.wait("core/restarted", TWELVE[0])
    toy.nothing_more(*(set(built) - {"core/restarted"}), seconds=40)
    after = {asset: len(toy.asked(asset)) for asset in built}
    assert after == before | {"core/restarted": before["core/restarted"] + 1}
    assert not toy.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
