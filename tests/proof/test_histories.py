"""Ten thousand histories of a landing zone, each judged against a full load."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.proof.conftest import Report
from tests.tidemark.sensors.test_histories import HISTORIES, judge

COUNT = 10_000


def test_ten_thousand_landing_histories_equal_a_full_load(report: Report) -> None:
    told: Counter[str] = Counter()

    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(HISTORIES)
    def histories(history: list[tuple[Any, ...]]) -> None:
        told["histories"] += 1
        told["events"] += len(history)
        told["crashes planned"] += sum(name in ("tick", "run", "reconcile") and bool(at[0]) for name, *at in history)
        judge(history)

    try:
        histories()
    finally:
        report("histories", dict(told))
    assert told["histories"] >= COUNT
