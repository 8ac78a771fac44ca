"""Alerts through two hundred histories, with a rule of the oracle's own: the machinery alone is judged."""

import subprocess
import sys

import pytest

from tests.tidemark.streams.alert_histories import ByOracle, play


@pytest.mark.parametrize("first", range(200, 400, 20))
def test_after_every_batch_the_alerts_that_stand_are_the_episodes_that_are_worth_one(first: int) -> None:
    for seed in range(first, first + 20):
        play(seed, ByOracle())


def test_the_oracle_imports_nothing_of_what_it_judges() -> None:
    program = (
        "import sys, tests.tidemark.streams.episodes_oracle; "
        "assert not any(name.split('.')[0] == 'pipelines' for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
