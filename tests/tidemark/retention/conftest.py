"""A simulated day whose records are pruned."""

from collections.abc import Iterator

import pytest

from dagster_tidemark.retention import choice
from dagster_tidemark.simulation.instance import simulated_instance
from dagster_tidemark.simulation.simulator import Simulation
from tests.tidemark.retention.test_prune import day


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    monkeypatch.setattr(choice, "_TAIL", 3)
    with simulated_instance() as instance:
        yield day(instance)
