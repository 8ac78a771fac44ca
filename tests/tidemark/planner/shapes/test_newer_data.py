"""Newer data does not delay older data: a run waits for an input only while it holds none of the overdue data."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.sampling import sample
from tests.tidemark.toy_graph import DAYS, START, asset, lag, source

DAY = "2026-10-05"
TABLES = 12


def row() -> list[Any]:
    """Return a chain of tables. No two share a run, and the last is promised within half an hour."""
    tables: list[Any] = [source("x", DAYS)]
    for n in range(TABLES):
        policy = dg.BackfillPolicy.single_run() if n % 2 else dg.BackfillPolicy.multi_run()
        more: dict[str, Any] = {"freshness_policy": lag(minutes=30)} if n == TABLES - 1 else {}
        above = f"t{n - 1}" if n else "raw/x"
        tables.append(asset(f"t{n}", above, by=DAYS, backfill_policy=policy, **more))
    return tables


@pytest.mark.parametrize("later", sample([5.0, 18.0, 22.0], 22.0))
def test_chain_of_tables_meets_its_contract_while_newer_data_arrives(later: float) -> None:
    simulation = Simulation(row(), start=START, pace=RunPace(step=120.0, at_once=8))
    arrivals = [simulation.time(minutes=60 * n) for n in range(4)]
    for at in arrivals:
        simulation.arrive("raw/x", DAY, at=at)
    for at in arrivals[2:]:
        simulation.arrive("raw/x", DAY, at=at + 60 * later)
    simulation.run(hours=5)
    last = f"t{TABLES - 1}"
    ended = sorted(run.committed[last] for run in simulation.runs_of(last) if last in run.committed)
    took = [(min(at for at in ended if at > arrived) - arrived) / 60 for arrived in arrivals]
    assert max(took[1:]) <= 30.0, took
    assert simulation.tables.fresh((last, DAY))
