"""A thousand random deploys: what `tidemark plan` lists is what then runs."""

import os
import warnings
from collections import Counter
from dataclasses import dataclass
from multiprocessing import get_context

from tests.proof.conftest import Report
from tests.tidemark.code_versions.code_plan.histories import generated, play
from tests.tidemark.code_versions.code_plan.holding import faults_of

FIRST = int(os.environ.get("RANDOM_FIRST", "1000"))
DEPLOYS = int(os.environ.get("RANDOM_DEPLOYS", "1000"))
_PROCESSES = 2


@dataclass(frozen=True)
class _Judged:
    seed: int
    way: str
    listed: int
    ran: int
    faults: list[str]


def test_plan_lists_exactly_what_runs_in_a_thousand_deploys(report: Report) -> None:
    # Not concurrent.futures: its workers that are to be replaced after so many tasks can hang (CPython gh-115634).
    with get_context("spawn").Pool(_PROCESSES, maxtasksperchild=50) as pool:
        judged = list(pool.imap_unordered(_judged, range(FIRST, FIRST + DEPLOYS)))
    wrong = {each.seed: [each.way, *each.faults] for each in judged if each.faults}
    report(
        "code-plan",
        {
            "what": "graphs of 3-8 assets, a day of arrivals, a deploy of each kind, 40 hours after it",
            "seeds": f"{FIRST} to {FIRST + DEPLOYS - 1}",
            "deploys": dict(sorted(Counter(each.way for each in judged).items())),
            "partitions listed": sum(each.listed for each in judged),
            "partitions built after it": sum(each.ran for each in judged),
            "deploys with something wrong": len(wrong),
            "wrong": wrong,
        },
    )
    assert not wrong


def _judged(seed: int) -> _Judged:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Dagster, that this and that is in beta
        deploy = generated(seed)
        try:
            faults = faults_of(play(deploy))
            if deploy.simulation is not None:
                faults += [f"dead tick: {tick}" for tick in deploy.simulation.failed_ticks]
        except Exception as error:
            faults = [f"{type(error).__name__}: {error}"]
    listed = sum(len(asset.rebuilds) for asset in deploy.plan.assets)
    return _Judged(seed, deploy.way, listed, len(deploy.ran), faults)
