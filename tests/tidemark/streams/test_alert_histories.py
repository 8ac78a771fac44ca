"""Alerts through forty histories (160 more are proofs), with a rule of the oracle: the machinery alone is judged."""

import subprocess
import sys

import pytest

from tests.sampling import sample
from tests.tidemark.streams.alert_histories import ByOracle, play


@pytest.mark.parametrize("first", sample(range(200, 400, 20), 200, 220))
def test_current_alerts_match_the_expected_episodes_after_each_batch(first: int) -> None:
    for seed in range(first, first + 20):
        play(seed, ByOracle())


def test_oracle_does_not_import_the_code_under_test() -> None:
    program = (
        "import sys, tests.tidemark.streams.episodes_oracle; "
        "assert not any(name.split('.')[0] == 'pipelines' for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
