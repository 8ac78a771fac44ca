"""A few random graphs on random days, judged by an oracle that imports nothing of the planner."""

import pytest

from dagster_tidemark.engine import engine
from dagster_tidemark.planner.evaluate import Bound
from tests.sampling import sample
from tests.tidemark.planner.random_graphs.judging import judged, world_of, world_of_bulk, world_of_checks, wrong_with
from tests.tidemark.planner.random_graphs.shapes import World
from tests.tidemark.planner.random_graphs.shrinking import kind_of, shrunk, told

CHECKED = (0, 2, 30)
BULK = (1, 12)
BOUND = (3, 6)
SEEDS = (1, 3, 4, 5, 6, 7, 10, 11, 12, 18, 19, 23, 29)


@pytest.mark.parametrize("seed", sample(SEEDS, 1, 6, 11))
def test_random_graph_meets_its_contracts_on_a_random_day(seed: int) -> None:
    found = judged(seed)
    if not found.wrong:
        return
    small = shrunk(world_of(seed), wrong_with, kind_of(found.wrong[0]), most=12)
    pytest.fail("\n".join([*found.wrong, told(small)]))


@pytest.mark.parametrize("seed", sample(CHECKED, 2))
def test_readers_stay_blocked_on_random_days_when_checks_give_no_result(seed: int) -> None:
    assert judged(seed, world_of_checks).wrong == []


@pytest.mark.parametrize("seed", sample(BULK, 1))
def test_bulk_work_in_few_slots_delays_no_tighter_contract(seed: int) -> None:
    assert judged(seed, world_of_bulk).wrong == []


@pytest.mark.parametrize("seed", sample(BOUND, 3))
def test_bound_on_decisions_per_evaluation_breaches_no_contract(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BOUND", Bound(many=0, most=2, longest=2, range=3))
    assert judged(seed).wrong == []


def test_same_seed_gives_the_same_random_world_and_another_seed_differs() -> None:
    first, again, other = world_of(7), world_of(7), world_of(8)
    assert first == again != other


def test_failing_random_world_is_shrunk_to_one_event() -> None:
    def wrong(world: World) -> list[str]:
        has = any(event.what == "arrive" for event in world.events)
        return ["lost update: something"] if has else []

    seed = next(s for s in range(100) if wrong(world_of(s)))
    small = shrunk(world_of(seed), wrong, "lost update", most=200)
    assert [event.what for event in small.events] == ["arrive"]
    assert len(told(small).splitlines()) <= 3 + len(small.tables)
