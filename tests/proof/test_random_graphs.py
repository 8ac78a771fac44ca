"""Two thousand random graphs, each on a random day, judged by an oracle that imports nothing of the planner."""

import os
from collections import Counter

from tests.automation.random_graphs.judging import judge_many, world_of, wrong_with
from tests.automation.random_graphs.shrinking import kind_of, shrunk, told
from tests.proof.conftest import Report

DAYS = int(os.environ.get("TIDEMARK_RANDOM_DAYS", "2000"))
FIRST = 10_000
_PROCESSES = 2
_SHRUNK = 3


def test_no_random_day_on_a_random_graph_is_late_endless_lost_or_dead(report: Report) -> None:
    days = list(judge_many(range(FIRST, FIRST + DAYS), _PROCESSES))
    failed = [day for day in days if day.wrong]
    kinds = Counter(kind_of(wrong) for day in failed for wrong in day.wrong)
    small = [told(shrunk(world_of(d.seed), wrong_with, kind_of(d.wrong[0]), most=30)) for d in failed[:_SHRUNK]]
    report(
        "random-graphs",
        {
            "what": "graphs of 3-12 assets over all shapes, 6-36 h of arrivals, failures, deploys, wipes, outages",
            "seeds": f"{FIRST} to {FIRST + DAYS - 1}",
            "days": len(days),
            "simulated hours": sum(day.hours for day in days),
            "runs": sum(day.runs for day in days),
            "ticks": sum(day.ticks for day in days),
            "seconds a day": round(sum(day.seconds for day in days) / len(days), 2),
            "longest day, seconds": round(max(day.seconds for day in days), 1),
            "days with something wrong": len(failed),
            "kinds": dict(kinds),
            "wrong": {str(day.seed): day.wrong for day in failed[:200]},
            "made small": small,
        },
    )
    assert not failed, f"{len(failed)} of {len(days)} days: {dict(kinds)}\n" + "\n".join(small)
