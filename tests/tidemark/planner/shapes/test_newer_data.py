"""Newer data does not delay older data: a run waits for an input only while it holds none of the overdue data."""

from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.simulation.simulator import RunPace, Simulation
from tests.sampling import sample
from tests.tidemark.toy_graph import DAYS, HOURS, START, asset, lag, source, within

DAY, HOUR, NEXT_HOUR = "2026-10-05", "2026-10-04-07:00", "2026-10-04-08:00"
TABLES = 12


def row(grains: tuple[dg.PartitionsDefinition, ...]) -> list[Any]:
    """Return a chain of tables of alternating grains. No two share a run. The last is promised within half an hour."""
    tables: list[Any] = [source("x", grains[0])]
    for n in range(TABLES):
        is_single = n % 2 or len(grains) > 1
        policy = dg.BackfillPolicy.single_run() if is_single else dg.BackfillPolicy.multi_run()
        more: dict[str, Any] = {"freshness_policy": lag(minutes=30)} if n == TABLES - 1 else {}
        above = "raw/x" if not n else within(f"t{n - 1}") if len(grains) > 1 else f"t{n - 1}"
        tables.append(asset(f"t{n}", above, by=grains[n % len(grains)], backfill_policy=policy, **more))
    return tables


@pytest.mark.parametrize("later", sample([5.0, 18.0, 22.0], 22.0))
@pytest.mark.parametrize(
    ("grains", "first", "newer"),
    [
        ((DAYS,), DAY, DAY),
        ((HOURS, DAYS), HOUR, HOUR),
        ((HOURS, DAYS), HOUR, NEXT_HOUR),
    ],
)
def test_chain_of_tables_meets_its_contract_while_newer_data_arrives(
    grains: tuple[dg.PartitionsDefinition, ...], first: str, newer: str, later: float
) -> None:
    simulation = Simulation(row(grains), start=START, pace=RunPace(step=120.0, at_once=8))
    arrivals = [simulation.time(minutes=60 * n) for n in range(4)]
    for at in arrivals:
        simulation.arrive("raw/x", first, at=at)
    for at in arrivals[2:]:
        simulation.arrive("raw/x", newer, at=at + 60 * later)
    simulation.run(hours=5)
    last = f"t{TABLES - 1}"
    ended = sorted(run.committed[last] for run in simulation.runs_of(last) if last in run.committed)
    took = [(min(at for at in ended if at > arrived) - arrived) / 60 for arrived in arrivals]
    assert max(took[1:]) <= 30.0, took
    assert simulation.tables.fresh((last, first.partition("-07:")[0]))
