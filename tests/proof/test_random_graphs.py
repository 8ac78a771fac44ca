"""Two thousand random graphs, each on a random day, judged by an oracle that imports nothing of the planner."""

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.proof.conftest import Report
from tests.tidemark.automation.random_graphs.judging import Judged, judge_many, world_of, wrong_with
from tests.tidemark.automation.random_graphs.shrinking import kind_of, shrunk, told

FIRST = int(os.environ.get("RANDOM_FIRST", "10000"))
DAYS = int(os.environ.get("RANDOM_DAYS", "2000"))
_PROCESSES = 2
_SHRUNK = 3


def test_no_random_day_on_a_random_graph_is_late_endless_lost_or_dead(report: Report, tmp_path: Path) -> None:
    days = list(_kept(tmp_path / "days.jsonl"))
    failed = [day for day in days if day.wrong]
    kinds = Counter(kind_of(wrong) for day in failed for wrong in day.wrong)
    said = {
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
    }
    report("random-graphs", said)  # before any is made small: that takes long, and may fail
    small = [_made_small(day) for day in failed[:_SHRUNK]]
    report("random-graphs", said | {"made small": small})
    assert not failed, f"{len(failed)} of {len(days)} days: {dict(kinds)}\n" + "\n".join(small)


def _kept(file: Path) -> Iterator[Judged]:
    """The days as they are judged, each written down at once: an hour of them is not to be lost."""
    print(f"days are written to {file}")
    with file.open("w", buffering=1) as written:
        for day in judge_many(reversed(range(FIRST, FIRST + DAYS)), _PROCESSES):
            written.write(json.dumps(asdict(day)) + "\n")
            yield day


def _made_small(day: Judged) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as `judged` does
        return told(shrunk(world_of(day.seed), wrong_with, kind_of(day.wrong[0]), most=30))
