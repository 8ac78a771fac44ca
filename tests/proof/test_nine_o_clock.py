"""Thirty mornings with a report due at nine."""

from dataclasses import asdict

from tests.proof.conftest import Report
from tests.tidemark.simulation.mornings import mornings


def test_thirty_daily_reports_are_built_by_nine_after_a_failure(report: Report) -> None:
    played = mornings(30)
    report(
        "nine-o-clock",
        {
            "in time": f"{sum(morning.in_time for morning in played)} of {len(played)}",
            "mornings": [asdict(morning) for morning in played],
        },
    )
    assert all(morning.failed for morning in played)
    assert [morning.day for morning in played if not morning.in_time] == []
    assert [morning.day for morning in played if morning.first_start < 0] == []
