"""A few random graphs on random days, judged by an oracle that imports nothing of the planner."""

import pytest

from tests.tidemark.automation.random_graphs.judging import judged, world_of, wrong_with
from tests.tidemark.automation.random_graphs.shapes import World
from tests.tidemark.automation.random_graphs.shrinking import kind_of, shrunk, told

SEEDS = (1, 3, 4, 5, 6, 7, 10, 11, 12, 18, 19, 23, 29)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph_keeps_its_promises_on_a_random_day(seed: int) -> None:
    found = judged(seed)
    if not found.wrong:
        return
    small = shrunk(world_of(seed), wrong_with, kind_of(found.wrong[0]), most=12)
    pytest.fail("\n".join([*found.wrong, told(small)]))


def test_the_same_seed_gives_the_same_world_and_another_seed_another() -> None:
    first, again, other = world_of(7), world_of(7), world_of(8)
    assert first == again != other


def test_a_failing_world_is_made_small() -> None:
    def wrong(world: World) -> list[str]:
        has = any(event.what == "arrive" for event in world.events)
        return ["lost update: something"] if has else []

    seed = next(s for s in range(100) if wrong(world_of(s)))
    small = shrunk(world_of(seed), wrong, "lost update", most=200)
    assert [event.what for event in small.events] == ["arrive"]
    assert len(told(small).splitlines()) <= 3 + len(small.tables)
