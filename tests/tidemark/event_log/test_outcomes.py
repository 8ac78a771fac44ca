"""How a run ended, as its record and events say it: by itself, by a person, or with the platform."""

from collections.abc import Callable, Iterator

import dagster as dg
import pytest
from dagster._core.events import JobFailureData, RunFailureReason

from dagster_tidemark.event_log.run_facts import run_facts
from dagster_tidemark.event_log.standby import ReplacedCode
from dagster_tidemark.lakehouse.session import SparkLost, SparkUnreachable
from dagster_tidemark.planner.event_records import Outcome


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def raising(error: Exception) -> dg.AssetsDefinition:
    @dg.asset
    def table() -> None:
        try:
            raise error
        except Exception as inner:
            raise RuntimeError("the load failed") from inner

    return table


def run_of(instance: dg.DagsterInstance, error: Exception) -> str:
    return dg.materialize([raising(error)], instance=instance, raise_on_error=False).run_id


def outcome(instance: dg.DagsterInstance, run_id: str) -> Outcome:
    return run_facts(instance, [run_id])[run_id].outcome


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("a bad row"), Outcome.FAILED),
        (SparkLost("sc://here"), Outcome.LOST),
        (SparkUnreachable("sc://here", "refused"), Outcome.LOST),
        (ReplacedCode(), Outcome.LOST),
    ],
)
def test_step_that_lost_spark_marks_the_run_as_lost_instead_of_failed(
    instance: dg.DagsterInstance, error: Exception, expected: Outcome
) -> None:
    assert outcome(instance, run_of(instance, error)) is expected


def test_successful_run_has_the_outcome_succeeded(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def table() -> None: ...

    run_id = dg.materialize([table], instance=instance).run_id
    facts = run_facts(instance, [run_id])[run_id]
    assert facts.outcome is Outcome.SUCCEEDED


Ending = Callable[[dg.DagsterInstance, dg.DagsterRun], object]


def by_reason(reason: RunFailureReason) -> Ending:
    return lambda instance, run: instance.report_run_failed(run, "ended", JobFailureData(None, reason))


def after_too_long(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    instance.report_run_canceling(run, "Canceling due to exceeding maximum runtime of 5 seconds.")
    instance.report_run_failed(run, "Exceeded maximum runtime of 5 seconds.")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (by_reason(RunFailureReason.START_TIMEOUT), Outcome.LOST),
        (by_reason(RunFailureReason.RUN_WORKER_RESTART), Outcome.LOST),
        (by_reason(RunFailureReason.UNEXPECTED_TERMINATION), Outcome.LOST),
        (by_reason(RunFailureReason.JOB_INITIALIZATION_FAILURE), Outcome.FAILED),
        (by_reason(RunFailureReason.RUN_EXCEPTION), Outcome.FAILED),
        (lambda instance, run: instance.report_run_failed(run, "its process has ended without a word"), Outcome.LOST),
        (after_too_long, Outcome.FAILED),
        (lambda instance, run: instance.report_run_canceled(run, "a person did it"), Outcome.CANCELED),
        (lambda instance, run: instance.delete_run(run.run_id), Outcome.LOST),
    ],
)
def test_run_that_never_started_has_the_outcome_of_its_end_reason(
    instance: dg.DagsterInstance, end: Ending, expected: Outcome
) -> None:
    run = instance.create_run_for_job(
        dg.define_asset_job("job").resolve(asset_graph=dg.Definitions([raising(KeyError())]).resolve_asset_graph())
    )
    assert run_facts(instance, [run.run_id])[run.run_id].ended_at is None
    end(instance, run)
    facts = run_facts(instance, [run.run_id])[run.run_id]
    assert facts.ended_at and facts.outcome is expected
