"""Random days of faults against the list that was written down before (`days`)."""

import pytest

from tests.tidemark.incidents.days import play


@pytest.mark.parametrize("seed", [3])
def test_incidents_of_a_random_day_match_the_expected_list(seed: int) -> None:
    play(seed, hours=4)
