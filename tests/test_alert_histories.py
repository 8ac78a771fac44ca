"""Alerts of the cold chain through forty histories; 160 more are proofs, and ten thousand are in tests/proof."""

import pytest

from pipelines.transforms.cold_chain import TOO_WARM
from tests.sampling import sample
from tests.tidemark.streams.alert_histories import play


@pytest.mark.parametrize("first", sample(range(0, 200, 20), 0, 20))
def test_current_alerts_match_the_expected_episodes_after_each_batch(first: int) -> None:
    for seed in range(first, first + 20):
        play(seed, TOO_WARM)
