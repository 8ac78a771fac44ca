"""Days of data on the grocer's whole graph, on a rough platform, judged by the oracle once a minute a partition."""

from typing import Any

import pytest

from tests.grocer_days import Judgement, busy, judge, whole_graph
from tests.proof.conftest import Report

SEEDS = range(1, 7)
_figures: dict[str, dict[str, Any]] = {}


def day(seed: int, *, everything: bool) -> Judgement:
    """A Sunday of data every five minutes, and the morning after it, when a day and a week are due."""
    simulation = whole_graph(seed)
    busy(simulation, hours=24, everything=everything, seed=seed)
    simulation.run(hours=34)
    return judge(simulation)


@pytest.mark.parametrize("everything", [False, True], ids=["orders", "orders, prices and customers"])
@pytest.mark.parametrize("seed", SEEDS)
def test_data_every_five_minutes_for_a_day_is_built_in_time(seed: int, everything: bool, report: Report) -> None:
    judged = day(seed, everything=everything)
    _figures[f"{'all sources' if everything else 'orders'}, seed {seed}"] = judged.figures()
    report(
        "days",
        {
            "what": "24 h, data every 5 min, launch 1-6 s, tick 0-5 s, 2 % failing, lognormal sigma 0.5 <= 4 medians",
            "days": _figures,
        },
    )
    assert judged.within >= 0.995, judged.figures()
    for asset, (runs, most) in judged.runs_per_window.items():
        assert runs <= most, f"{asset}: {runs:.2f} runs a window, {most:.2f} allowed"
