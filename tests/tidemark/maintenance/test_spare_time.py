"""Maintenance yields: to queued runs, to the last free slot, and to contracts that become due meanwhile."""

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from dagster_tidemark.maintenance.spare_time import OpenRuns, open_runs, why_not_now
from dagster_tidemark.planner.decisions import Decision, Plan, Request, State
from dagster_tidemark.tags import MAINTENANCE, STREAM
from tests.tidemark.maintenance.conftest import queued_run

NOW = 1_800_000_000.0


def plan(state: State, due_at: float | None = None) -> Plan:
    return Plan(NOW, {("marts/x", "2026-10-01"): Decision("marts/x", "2026-10-01", state, "", due_at=due_at)})


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (Plan(NOW), ""),
        (Plan(NOW, catching_up="3 of 9 events"), "the planner is reading the event log: 3 of 9 events"),
        (Plan(NOW, requests=[Request(("marts/x",), (None,))]), "1 runs are requested now"),
        (plan(State.THROTTLED), "marts/x 2026-10-01 is throttled"),
        (plan(State.QUEUED), "marts/x 2026-10-01 is queued"),
        (plan(State.NOT_DUE, NOW + 59), "marts/x 2026-10-01 is due at 2027-01-15 08:00:59 UTC, and the maintenance "
         "may take 60 s"),
        (plan(State.NOT_DUE, NOW + 61), ""),
        (plan(State.BACKING_OFF, NOW - 100), ""),  # overdue for a reason that no slot resolves
        (plan(State.WAITING, NOW + 5), ""),
        (plan(State.RUNNING), ""),  # a slot is free beside it
    ],
)  # fmt: skip
def test_plan_says_whether_there_is_spare_time(of: Plan, why: str) -> None:
    assert why_not_now(of, 60) == why


@pytest.mark.parametrize(
    ("queued", "running", "slots", "is_busy"),
    [(0, 0, None, False), (1, 0, None, True), (0, 2, 4, False), (0, 3, 4, True), (0, 0, 1, False), (0, 1, 1, True)],
)
def test_one_slot_stays_free_for_loads(queued: int, running: int, slots: int | None, is_busy: bool) -> None:
    assert bool(OpenRuns(queued, running, slots, 0.0, {}, ()).why_busy()) is is_busy


def test_open_runs_tell_what_they_build_and_since_when_they_read(instance: DagsterInstance) -> None:
    def run(status: DagsterRunStatus, *assets: str, **tags: str) -> dg.DagsterRun:
        keys = frozenset(map(dg.AssetKey.from_user_string, assets))
        return create_run_for_test(instance, status=status, tags=tags, asset_selection=keys or None)

    run(DagsterRunStatus.SUCCESS, "core/a")
    loading = run(DagsterRunStatus.STARTED, "core/orders")
    queued_run(instance, "marts/x")
    run(DagsterRunStatus.STARTED, **{STREAM: "readings"})
    by_hand = run(DagsterRunStatus.STARTED, **{MAINTENANCE: "tests.toys"})
    found = open_runs(instance, NOW)
    assert (found.queued, found.running, found.slots) == (1, 1, None)
    assert found.builds["core/orders"] == loading.run_id[:8] and set(found.builds) == {"core/orders", "marts/x"}
    assert found.maintenance == (by_hand.run_id,)
    assert found.why_busy() == f"run {by_hand.run_id[:8]} maintains tables"
    began = instance.get_run_record_by_id(loading.run_id)
    assert began is not None
    at = began.create_timestamp.timestamp()
    assert open_runs(instance, at + 60).since == at
    assert open_runs(instance, at + 8 * 86_400).since == float("inf"), "its process is long gone"
