"""A run whose process has code that a newer code server has replaced builds nothing."""

import dagster as dg
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.event_log.executor import executor_of
from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.event_log.standby import Record, key_of
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.settings import Settings

SETTINGS = Settings()
# Quick tests may not start the two processes that mirror a run's output.
WITHOUT_OUTPUT = {
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}


@dg.asset
def table() -> None: ...


def job() -> dg.JobDefinition:
    """A job that builds the table with the executor of a code location."""
    made = dg.define_asset_job("job", [table], executor_def=executor_of(SETTINGS))
    return dg.Definitions([table], jobs=[made]).resolve_job_def("job")


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        (Record(), Outcome.SUCCEEDED),
        (Record(code=code_of(SETTINGS), replaced=("older",)), Outcome.SUCCEEDED),
        (Record(code="deployed", replaced=("older",)), Outcome.SUCCEEDED),
        (Record(code="deployed", replaced=("older", code_of(SETTINGS))), Outcome.LOST),
    ],
    ids=["no record", "deployed code", "code that no server has loaded", "replaced code"],
)
def test_run_with_replaced_code_builds_nothing_and_is_requested_again(
    record: Record, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Dagster notes for the whole process that definitions are loaded for a run: later tests would skip their checks.
    monkeypatch.setattr(DefinitionsLoadContext, "_instance", DefinitionsLoadContext._instance)
    with dg.instance_for_test(overrides=WITHOUT_OUTPUT) as instance:
        instance_store.save(instance, key_of(SETTINGS, ""), str(record))
        with dg.execute_job(dg.reconstructable(job), instance) as done:
            found = run_facts(instance, [done.run_id])[done.run_id].outcome
        assert found is outcome
        assert bool(instance.get_latest_materialization_event(table.key)) is (outcome is Outcome.SUCCEEDED)
