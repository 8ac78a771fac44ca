"""`tidemark plan` says what a deploy makes run: what it lists is what then runs, and nothing else."""

import pytest

from tests.sampling import sample
from tests.tidemark.code_versions.code_plan.histories import WAYS, generated, play
from tests.tidemark.code_versions.code_plan.holding import faults_of

# Only `make proof` plays these ways: "reads more and bump" includes most of these edits.
IN_A_PROOF = {
    "bump",
    "bump several",
    "bump and back",
    "earlier start",
    "identical output",
    "not automated any more",
    "reads more",
}


@pytest.mark.parametrize("way", sample(WAYS, *sorted({*WAYS} - IN_A_PROOF)))
@pytest.mark.parametrize("seed", [3])
def test_plan_lists_exactly_what_runs_on_a_real_daemon(seed: int, way: str) -> None:
    deploy = play(generated(seed, way))
    assert deploy.simulation is not None and deploy.simulation.failed_ticks == []
    assert faults_of(deploy) == []
