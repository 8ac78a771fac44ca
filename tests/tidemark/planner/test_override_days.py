"""Pauses, skips and rebuilds on simulated days: real sensors on a real instance, and incidents about a pause."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.engine.guarded_conditions import guarded
from dagster_tidemark.engine.override_store import OverrideStore
from dagster_tidemark.incidents.incident import CauseKind
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.overrides import Override, OverrideKind
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.incidents.test_causes import HOUR_1, Location
from tests.tidemark.toy_graph import DAYS, HOURS, START, asset, small, source


def simulation(assets: Any = None, **more: Any) -> Simulation:
    made = Simulation(assets or small(), start=START, **more)
    for hour in range(6):
        made.arrive("raw/orders", f"2026-10-05-{hour:02}:00", at=made.time(hours=hour, minutes=10))
    return made


def built(made: Simulation, asset: str) -> list[float]:
    return [(run.created_at - made.time()) / 3600 for run in made.runs_of(asset)]


def test_nothing_is_requested_during_a_pause_also_after_a_restart_and_all_is_caught_up() -> None:
    made = simulation()
    made.pause("core/orders", at=made.time(hours=1), until=made.time(hours=4))
    made.restart(at=made.time(hours=2))
    made.run(hours=8)
    assert not [at for at in built(made, "core/orders") if 1.01 < at < 4.0]
    partitions = {partition for run in made.runs_of("core/orders") for partition in run.partitions}
    assert partitions == {f"2026-10-05-{hour:02}:00" for hour in range(6)}
    assert made.standings()["core/orders"].verdict is FreshnessStatus.MET


def test_skip_leaves_out_the_past_and_a_rebuild_runs_each_built_partition_once() -> None:
    made = simulation()
    made.pause("core/orders", at=made.time(hours=1))
    made.skip("core/orders", at=made.time(hours=3))
    made.resume(at=made.time(hours=3, minutes=1))
    made.run(hours=8)
    before = {partition for run in made.runs_of("core/orders") for partition in run.partitions}
    assert before == {f"2026-10-05-{hour:02}:00" for hour in (0, 3, 4, 5)}
    made.rebuild("core/orders", at=made.time(hours=9))
    made.run(hours=4)
    again = [p for run in made.runs_of("core/orders") if run.created_at > made.time(hours=9) for p in run.partitions]
    assert sorted(again) == sorted({*before, "2026-10-05-01:00", "2026-10-05-02:00"})


def test_skip_of_a_range_exempts_what_was_over_but_no_window_that_is_silent_afterwards() -> None:
    nine = dg.FreshnessPolicy.cron("0 9 * * *", timedelta(minutes=30))
    orders = asset("core/orders", "raw/orders", by=DAYS, freshness_policy=nine)
    made = Simulation([source("orders", DAYS), orders], start=START)
    made.arrive("raw/orders", "2026-10-04", at=made.time(hours=1))
    made.run(days=1, hours=8)  # 6 October at eight: nothing came for the 5th, which was promised for nine
    assert f"{made.moment():%m-%d %H}" == "10-06 08"
    skip = Override("o-1", OverrideKind.SKIP, "core/orders", ("core/orders",), "anna", "x", made.clock.shown)
    skip = replace(skip, as_of=event_storage.last_event_id(made.instance), first="2026-10-05", last="2026-10-07")
    OverrideStore(made.instance).change(lambda _: [skip])
    made.run(hours=4)
    assert made.standings()["core/orders"].verdict is FreshnessStatus.MET
    made.run(days=2)
    standing = made.standings()["core/orders"]
    assert standing.verdict is FreshnessStatus.BREACHED and standing.partition == "2026-10-06", standing


def test_asset_with_its_own_condition_is_paused_and_catches_up() -> None:
    eager = asset("core/own", "raw/orders", by=HOURS, automation_condition=guarded(dg.AutomationCondition.eager()))
    made = simulation(dg.Definitions([source("orders", HOURS), eager]), own_every=120.0)
    made.pause("core/own", at=made.time(hours=1), until=made.time(hours=2, minutes=30))
    made.run(hours=3)
    times = built(made, "core/own")
    assert not [at for at in times if 1.01 < at < 2.5] and [at for at in times if 2.5 < at < 3.0]


def _paused(until: float | None) -> Location:
    """A location that is paused before data of an hour's contract arrives."""
    place = Location()
    made = place.simulation
    made.pause("core/orders", at=made.time(hours=1, minutes=1), until=None if until is None else made.time(hours=until))
    made.arrive("raw/orders", HOUR_1, at=made.time(hours=1, minutes=10))
    return place


def test_pause_with_an_end_opens_an_incident_only_when_a_deadline_has_passed_and_closes_it_after_the_end() -> None:
    place = _paused(until=2.0)
    place.until(hours=1, minutes=15)
    assert place.all == []
    place.until(hours=1, minutes=16)
    (opened,) = place.book.open
    assert (opened.cause.kind, opened.cause.subject) == (CauseKind.PAUSED, "core/orders") and opened.is_late
    assert "core/orders is paused by a person until 2026-10-05 02:00:00 UTC: simulated" in opened.cause.said
    place.every = 60.0
    place.until(hours=3)
    assert not place.book.open and {each.cause.kind for each in place.all} == {CauseKind.PAUSED}


def test_pause_without_an_end_opens_an_incident_before_the_deadline() -> None:
    place = _paused(until=None)
    place.until(hours=1, minutes=14, seconds=50)
    (opened,) = place.book.open
    assert opened.cause.kind is CauseKind.PAUSED and not opened.is_late
    assert opened.cause.remedy == "end the pause: tidemark resume core/orders"
