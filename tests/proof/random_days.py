"""Random days judged for a proof: kept as they are judged, and summed up for its report."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.tidemark.planner.random_graphs.judging import Judged, judge_many, world_of
from tests.tidemark.planner.random_graphs.shapes import World
from tests.tidemark.planner.random_graphs.shrinking import kind_of

_PROCESSES = 2


def judged_days(file: Path, seeds: Iterable[int], of: Callable[[int], World] = world_of) -> list[Judged]:
    """Return the judged days of these seeds. Each is written to the file at once, so that a kill loses none."""
    print(f"days are written to {file}")
    days = []
    with file.open("w", buffering=1) as written:
        for day in judge_many(seeds, _PROCESSES, of):
            written.write(json.dumps(asdict(day)) + "\n")
            days.append(day)
    return days


def summary(what: str, days: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures that the report of each such proof has."""
    failed = [day for day in days if day.wrong]
    seeds = [day.seed for day in days]
    return {
        "what": what,
        "seeds": f"{min(seeds)} to {max(seeds)}",
        "days": len(days),
        "simulated hours": sum(day.hours for day in days),
        "runs": sum(day.runs for day in days),
        "seconds a day": round(sum(day.seconds for day in days) / len(days), 2),
        "kinds": dict(Counter(kind_of(wrong) for day in failed for wrong in day.wrong)),
        "wrong": {str(day.seed): day.wrong for day in failed[:200]},
    }
