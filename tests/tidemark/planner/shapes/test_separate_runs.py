"""Tables that share a run, and tables that run one after the other: due times and requests follow one rule."""

from itertools import pairwise
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.engine.condition import derived, with_automation
from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.sampling import sample
from tests.tidemark.toy_graph import DAYS, START, asset, lag, source

DAY = "2026-10-05"
FIVE_MINUTES = RunPace(step=300.0, at_once=8)


def own() -> dg.AutomationCondition[Any]:
    return derived() & ~dg.AutomationCondition.in_progress()


def lags(assets: list[Any], last: str, *, rounds: int = 2, pace: RunPace = FIVE_MINUTES) -> list[float]:
    """Return the minutes from each arrival to the end of the run that adds it to the last table."""
    found = dg.Definitions(assets=with_automation(assets))
    simulation = Simulation(found, start=START, pace=pace, own_every=10.0)
    for n in range(rounds):
        simulation.arrive("raw/x", DAY, at=simulation.time(minutes=5 + 50 * n))
    simulation.run(minutes=50 * rounds)
    assert simulation.failed_ticks == []
    ended = sorted(run.committed[last] for run in simulation.runs_of(last) if last in run.committed)
    times = [simulation.time(minutes=5 + 50 * n) for n in range(rounds)]
    return [(min(at for at in ended if at > arrived) - arrived) / 60 for arrived in times]


def chain(**more: dict[str, Any]) -> list[Any]:
    """raw/x -> a -> b -> c, c within half an hour."""
    last = {"freshness_policy": lag(minutes=30)}
    names = ("raw/x", "a", "b", "c")
    tables = [asset(n, p, by=DAYS, **(last if n == "c" else {}), **more.get(n, {})) for p, n in pairwise(names)]
    return [source("x", DAYS), *tables]


@pytest.mark.parametrize("conditional", sample(["a", "c", "abc"], "abc"))
def test_chain_with_custom_conditions_meets_its_contract(conditional: str) -> None:
    found = lags(chain(**{name: {"automation_condition": own()} for name in conditional}), "c")
    assert max(found[1:]) <= 30.0, found  # of the first no duration is known


@pytest.mark.proof
def test_chain_of_30_tables_with_one_custom_condition_meets_its_contract() -> None:
    names = ["raw/x", *(f"t{n}" for n in range(30))]
    tables: list[Any] = [source("x", DAYS)]
    for above, name in pairwise(names):
        more: dict[str, Any] = {"freshness_policy": lag(minutes=30)} if name == "t29" else {}
        tables.append(asset(name, above, by=DAYS, **more, **({"automation_condition": own()} if name == "t15" else {})))
    assert max(lags(tables, "t29", pace=RunPace(step=20.0, at_once=8))[1:]) <= 30.0


def test_reader_with_another_backfill_policy_runs_after_its_input_in_time() -> None:
    found = lags(chain(b={"backfill_policy": dg.BackfillPolicy.multi_run()}), "c")
    assert max(found[1:]) <= 30.0, found


def test_reader_of_two_due_tables_runs_together_with_both() -> None:
    tables = [
        source("x", DAYS),
        asset("a1", "raw/x", by=DAYS),
        asset("a2", "raw/x", by=DAYS),
        asset("b", "a1", "a2", by=DAYS, freshness_policy=lag(minutes=30)),
    ]
    simulation = Simulation(dg.Definitions(assets=tables), start=START, pace=FIVE_MINUTES)
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=1))
    simulation.run(hours=2)
    assert [run.assets for run in simulation.runs] == [("a1", "a2", "b")]
    assert max(lags(tables, "b")[1:]) <= 30.0


def test_multi_asset_runs_together_with_the_table_it_waits_for() -> None:
    specs = [
        dg.AssetSpec("p", deps=["a"], automation_condition=derived(), freshness_policy=lag(minutes=30)),
        dg.AssetSpec("q", deps=["a"], automation_condition=derived()),
    ]

    @dg.multi_asset(specs=specs, partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def both():  # type: ignore[no-untyped-def]
        raise NotImplementedError

    tables = [source("x", DAYS), asset("a", "raw/x", by=DAYS), both]
    simulation = Simulation(dg.Definitions(assets=tables), start=START, pace=FIVE_MINUTES)
    simulation.arrive("raw/x", DAY, at=simulation.time(hours=1))
    simulation.run(hours=2)
    assert [run.assets for run in simulation.runs] == [("a", "p", "q")]
    assert max(lags(tables, "p")[1:]) <= 30.0
