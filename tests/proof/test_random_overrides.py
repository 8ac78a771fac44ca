"""Thousands of random graphs under random pauses, skips and rebuilds, judged by an oracle of their own."""

import os
from collections import Counter

from tests.proof.conftest import Report
from tests.tidemark.planner.override_days import Play

HISTORIES = int(os.environ.get("PROOF_OVERRIDES", "5000"))


def test_random_overrides_keep_every_promise(report: Report) -> None:
    done, broken = Counter[str](), list[str]()
    for seed in range(HISTORIES):
        play = Play(seed)
        try:
            play.play(steps=40)
        except AssertionError as error:
            broken.append(f"seed {seed}: {error}")
        done.update(play.counts)
    report("overrides", {"histories": HISTORIES, **done, "broken": broken})
    assert not broken and min(done.values()) > HISTORIES / 2
