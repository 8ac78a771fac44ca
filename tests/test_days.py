"""Short days of the grocer, and a few mornings; the long ones are in tests/proof."""

from datetime import UTC, datetime

import pytest

from tests.grocer_days import busy, judge, promise, whole_graph
from tests.tidemark.simulation.mornings import PATH, mornings


def test_data_every_five_minutes_is_incorporated_in_time_with_few_runs() -> None:
    simulation = whole_graph(seed=1)
    busy(simulation, hours=3, everything=True, seed=1)
    simulation.run(hours=4)
    judged = judge(simulation)
    assert judged.looks > 2000 and judged.lacking > 100
    assert judged.within >= 0.995, judged.figures()
    for asset, (runs, most) in judged.runs_per_window.items():
        assert runs <= most, f"{asset}: {runs:.2f} runs a window, {most:.2f} allowed"


def test_daily_report_is_built_by_nine_after_a_failure_on_its_path() -> None:
    played = mornings(len(PATH), every_hours=6)
    assert [(morning.failed, morning.in_time) for morning in played] == [(True, True)] * len(PATH)
    assert all(morning.first_start >= 0 for morning in played), played


@pytest.mark.parametrize(
    ("asset", "partition", "arrived", "promised"),
    [
        ("marts/sales_hourly", "2026-10-04-07:00", "2026-10-04 07:10", "2026-10-04 08:10"),
        ("marts/executive_rollup", "2026-10-04", "2026-10-04 07:10", "2026-10-05 09:00"),
        ("marts/executive_rollup", "2026-10-04", "2026-10-05 08:30", "2026-10-05 09:00"),
        ("marts/executive_rollup", "2026-10-04", "2026-10-05 08:31", "2026-10-06 09:00"),
        ("marts/weekly_review", "2026-09-28", "2026-10-05 08:00", "2026-10-05 09:00"),
        ("marts/weekly_review", "2026-09-28", "2026-10-05 08:01", "2026-10-12 09:00"),
    ],
)
def test_promised_time_of_a_partition_follows_its_contract(
    asset: str, partition: str, arrived: str, promised: str
) -> None:
    at, due = (datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in (arrived, promised))
    assert promise((asset, partition))(at) == due
