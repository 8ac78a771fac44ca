"""Two thousand random graphs, each on a random day, judged by an oracle that imports nothing of the planner."""

import os
import warnings
from pathlib import Path

from tests.proof.conftest import Report
from tests.proof.random_days import judged_days, summary
from tests.tidemark.planner.random_graphs.judging import Judged, world_of, wrong_with
from tests.tidemark.planner.random_graphs.shrinking import kind_of, shrunk, told

FIRST = int(os.environ.get("RANDOM_FIRST", "10000"))
DAYS = int(os.environ.get("RANDOM_DAYS", "2000"))
WHAT = "graphs of 3-12 assets over all shapes, 6-36 h of arrivals, failures, deploys, wipes, outages"
_SHRUNK = 3


def test_no_random_graph_is_late_endless_lost_or_dead(report: Report, tmp_path: Path) -> None:
    days = judged_days(tmp_path / "days.jsonl", reversed(range(FIRST, FIRST + DAYS)))
    failed = [day for day in days if day.wrong]
    said = summary(WHAT, days) | {
        "ticks": sum(day.ticks for day in days),
        "longest day, seconds": round(max(day.seconds for day in days), 1),
        "days with something wrong": len(failed),
    }
    report("random-graphs", said)  # before any is made small: that takes long, and may fail
    small = [_made_small(day) for day in failed[:_SHRUNK]]
    report("random-graphs", said | {"made small": small})
    assert not failed, f"{len(failed)} of {len(days)} days: {said['kinds']}\n" + "\n".join(small)


def _made_small(day: Judged) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as `judged` does
        return told(shrunk(world_of(day.seed), wrong_with, kind_of(day.wrong[0]), most=30))
