"""New code on five hundred hours, four tables deep: the rebuild in the simulator, alone and with arrivals."""

from tests.proof.conftest import Report
from tests.tidemark.planner.test_rebuilds import ALLOWED, DEPTH, goes_through, whatever_arrives_is_there_in_time

HOURS = 500


def test_rebuild_of_500_hours_takes_little_more_than_its_compute_time(report: Report) -> None:
    figures = goes_through(HOURS)
    report(
        "rebuild-of-500-hours",
        {"what": f"{HOURS} hours of {DEPTH} tables rebuilt because of the first one's code, simulated", **figures},
    )
    assert figures["wall / compute"] <= ALLOWED


def test_data_arriving_during_a_rebuild_is_built_within_the_hour() -> None:
    whatever_arrives_is_there_in_time(HOURS)
