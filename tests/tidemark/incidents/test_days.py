"""Random days of faults against the list that was written down before (`days`)."""

import pytest

from tests.tidemark.incidents.days import play


@pytest.mark.parametrize("seed", [3])
def test_the_incidents_of_a_day_are_those_of_the_list(seed: int) -> None:
    play(seed, hours=4)
