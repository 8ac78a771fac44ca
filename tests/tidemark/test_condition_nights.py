"""Conditions over random nights: each request is the oracle's, over time zones, clock changes and partitions."""

import pytest

from tests.sampling import sample
from tests.tidemark.condition_nights import Night


@pytest.mark.parametrize("seed", sample(range(200), 1, 4))
def test_each_condition_requests_exactly_what_it_says(seed: int) -> None:
    night = Night(seed)
    assert night.differences() == [], f"{night.term.said} in {night.zone}"
