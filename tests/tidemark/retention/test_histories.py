"""Random days with prunes and restarts request the same runs as the same days without prunes."""

from collections.abc import Iterator

import dagster as dg
import pytest

from dagster_tidemark.retention import choice
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.simulator import Simulation
from tests.sampling import sample
from tests.tidemark.event_log.test_deleted_runs import lose_what_was_saved
from tests.tidemark.retention.histories import Played, play


@pytest.fixture(autouse=True)
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_TAIL", 3)


def keep(_: Simulation) -> None:
    """The checkpoint, which may be hours old, is kept."""


def amounts(played: Played) -> dict[str, int]:
    return {
        kind: sum(pruning.amounts[kind].count for pruning in played.prunings)
        for kind in ("runs", "events without a run", "notes of the planner")
    }


@pytest.mark.parametrize("seed", sample(range(12), 1))
def test_restarts_from_a_checkpoint_after_prunes_decide_as_without_prunes(seed: int) -> None:
    with simulated_instance() as one, simulated_instance() as two:
        plain = play(seed, one, hours=20, prunes=False, lose=keep)
        pruned = play(seed, two, hours=20, prunes=True, lose=keep)
    assert pruned.decisions() == plain.decisions()
    assert min(amounts(pruned).values()) >= 0 and amounts(pruned)["runs"] > 5


@pytest.mark.parametrize("seed", sample(range(100, 112), 101))
def test_restarts_without_a_checkpoint_after_prunes_decide_as_without_prunes(seed: int) -> None:
    """A planner that loses its checkpoint may count attempts differently, so the pauses between them may differ."""
    with simulated_instance() as one, simulated_instance() as two, simulated_instance() as three:
        pruned = play(seed, two, hours=20, prunes=True, lose=lose_what_was_saved)
        plain = play(seed, one, hours=20, prunes=False, lose=lose_what_was_saved)
        if pruned.decisions() != plain.decisions():
            steady = play(seed, three, hours=20, prunes=False, restarts=False, lose=keep)
            assert pruned.decisions() == steady.decisions() or pruned.built() == plain.built()
    assert amounts(pruned)["runs"] > 5


@pytest.fixture(params=sample(["sqlite", "postgres"]))
def real(request: pytest.FixtureRequest) -> Iterator[dg.DagsterInstance]:
    if request.param == "sqlite":
        with dg.instance_for_test() as made:
            yield made
    else:
        yield request.getfixturevalue("postgres")


@pytest.mark.proof
def test_prunes_of_real_databases_decide_as_without_prunes(real: dg.DagsterInstance) -> None:
    with simulated_instance() as one:
        plain = play(101, one, hours=20, prunes=False, lose=lose_what_was_saved)
    pruned = play(101, real, hours=20, prunes=True, lose=lose_what_was_saved)
    assert pruned.decisions() == plain.decisions()
    assert amounts(pruned)["runs"] > 5
