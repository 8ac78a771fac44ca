"""Conditions over random days: each request is the oracle's, over time zones, clock changes and partitions."""

import pytest

from tests.sampling import sample
from tests.tidemark.condition_days import Day


@pytest.mark.parametrize("seed", sample(range(200), 3, 5, 6))
def test_each_condition_requests_exactly_what_it_says(seed: int) -> None:
    day = Day(seed)
    assert day.differences() == [], f"{day.term.said} in {day.zone}"
