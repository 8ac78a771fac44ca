"""Blocking checks whose evaluation is slow: a newer write precedes the result, which says nothing about it."""

from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.event_log.consumer import LogConsumer
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from tests.tidemark.planner.shapes.test_blocking_checks import DAY, OTHER
from tests.tidemark.toy_graph import DAYS, START, asset

DAY_1, DAY_2 = ("core/x", DAY), ("core/x", OTHER)


def graph() -> Graph:
    @dg.asset_check(asset=["core", "x"], blocking=True)
    def sane() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    table = asset("core/x", by=DAYS)
    return graph_of(dg.Definitions([table], asset_checks=[sane]).resolve_asset_graph())


@pytest.fixture
def history() -> History:
    made = History(graph())
    made.graph.moment.moves_to(START.timestamp() + 10 * 86_400)
    return made


def written(history: History, target: tuple[str, str], *, id: int, run: str, ends: bool = True) -> None:
    """Write a partition in a run, whose check raises if the run ends."""
    history.planned([target], id=id, run_id=run)
    history.materialized(target, id=id + 1, run_id=run, as_of=id, version=run, at=0.0)
    if ends:
        history.ended(run, at=0.0, outcome=Outcome.FAILED)


def test_check_run_that_began_before_a_write_does_not_pass_it(history: History) -> None:
    written(history, DAY_1, id=1, run="one")
    written(history, DAY_1, id=4, run="two")  # a run of the check alone, which began at 3, has seen the former write
    history.checked(("core/x", None), "sane", id=6, passed=True, run_id=None, evaluated_by="check", began=3)
    assert history.unchecked(DAY_1) == ("sane",)
    history.checked(("core/x", None), "sane", id=8, passed=True, run_id=None, evaluated_by="later", began=7)
    assert history.unchecked(DAY_1) == ()


def test_slow_check_of_an_overwritten_partition_passes_neither_it_nor_others(history: History) -> None:
    written(history, DAY_2, id=1, run="zero")
    written(history, DAY_1, id=3, run="one", ends=False)
    written(history, DAY_1, id=5, run="two")
    history.checked(("core/x", None), "sane", id=7, passed=True, run_id=None, evaluated_by="one")
    history.ended("one", at=0.0, outcome=Outcome.SUCCEEDED)
    assert (history.unchecked(DAY_1), history.unchecked(DAY_2)) == (("sane",), ("sane",))


def test_slow_check_hides_no_result_on_the_newer_write(history: History) -> None:
    written(history, DAY_1, id=1, run="one", ends=False)
    written(history, DAY_1, id=3, run="two", ends=False)
    history.checked(("core/x", None), "sane", id=5, passed=False, run_id="two", evaluated_by="two")
    history.checked(("core/x", None), "sane", id=6, passed=True, run_id=None, evaluated_by="one")
    assert history.blocking(DAY_1) == "sane"
    history.checked(("core/x", None), "sane", id=7, passed=True, run_id="two", evaluated_by="two")
    history.checked(("core/x", None), "sane", id=8, passed=True, run_id=None, evaluated_by="check", began=2)
    assert (history.blocking(DAY_1), history.unchecked(DAY_1)) == (None, ())


def test_result_before_a_retried_step_does_not_pass_the_second_write(history: History) -> None:
    history.planned([DAY_1], id=1, run_id="one")
    history.materialized(DAY_1, id=2, run_id="one", as_of=1, version="one", at=0.0)
    history.checked(("core/x", None), "sane", id=3, passed=True, run_id="one", evaluated_by="one")
    assert history.unchecked(DAY_1) == ()
    history.materialized(DAY_1, id=4, run_id="one", as_of=1, version="two", at=0.0)
    history.ended("one", at=0.0, outcome=Outcome.FAILED)
    assert history.unchecked(DAY_1) == ("sane",)


def test_failure_of_a_check_run_blocks_although_it_began_before_the_write(history: History) -> None:
    written(history, DAY_1, id=1, run="one")
    written(history, DAY_1, id=4, run="two")
    history.checked(("core/x", None), "sane", id=6, passed=False, run_id="two", evaluated_by="check", began=3)
    assert history.blocking(DAY_1) == "sane"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_real_check_run_during_which_its_table_is_written_again_passes_nothing(instance: dg.DagsterInstance) -> None:
    meanwhile: list[Callable[[], object]] = []

    @dg.asset
    def table() -> None: ...

    @dg.asset_check(asset=table, blocking=True)
    def sane() -> dg.AssetCheckResult:
        if meanwhile:
            meanwhile.pop()()
            return dg.AssetCheckResult(passed=True)
        raise ValueError("no result")

    definitions = dg.Definitions(
        [table],
        asset_checks=[sane],
        jobs=[
            dg.define_asset_job("check", dg.AssetSelection.checks(sane)),
            dg.define_asset_job("build", dg.AssetSelection.assets(table)),
        ],
    )

    def execute(job: str) -> None:
        definitions.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False)

    follower = LogConsumer.started(instance, graph_of(definitions.resolve_asset_graph()))
    execute("build")
    meanwhile.append(lambda: execute("build"))
    execute("check")
    follower.read(instance, lambda: False)
    assert follower.history.unchecked(("table", None)) == ("sane",)
    meanwhile.append(lambda: None)
    execute("check")
    follower.read(instance, lambda: False)
    assert follower.history.unchecked(("table", None)) == ()
