"""Tables that read the last partition of another: each hour brings a new one, and the old one is read no more."""

from datetime import timedelta
from itertools import pairwise

import dagster as dg
import pytest

from tests.tidemark.planner.shapes.playing import built, mapped, play
from tests.tidemark.toy_graph import ASAP, DAYS, HOURS, START, asset, lag, source

LAST = dg.LastPartitionMapping()


@pytest.mark.parametrize("by", [None, DAYS])
@pytest.mark.parametrize("above", ["raw/x", "core/x"])
def test_table_of_the_last_hour_meets_its_contract_while_new_hours_arrive(
    by: dg.PartitionsDefinition[str] | None, above: str
) -> None:
    tables = [
        source("x", HOURS),
        asset("core/x", "raw/x", by=HOURS, **ASAP),
        asset("latest", mapped(above, LAST), by=by, freshness_policy=lag(minutes=150)),
    ]
    simulation = play(tables)
    for hour in range(12):
        at = simulation.time(hours=hour, minutes=2)
        simulation.arrive("raw/x", f"{START + timedelta(hours=hour):%Y-%m-%d-%H}:00", at=at)
    simulation.run(hours=12)
    newest = "2026-10-04" if by else None
    times = [run.created_at for run in simulation.runs if ("latest", newest) in run.targets]
    assert 4 <= len(times) <= 6, built(simulation, "latest")
    gaps = [(after - before) / 60 for before, after in pairwise(times)]
    assert max(gaps) <= 60 + 150
