"""Fixtures that the tests of the automation share."""

from collections.abc import Iterator

import dagster as dg
import pytest

from dagster_tidemark.simulation.instance import simulated_instance


@pytest.fixture(params=["memory", "sqlite"])
def instance(request: pytest.FixtureRequest) -> Iterator[dg.DagsterInstance]:
    """An empty instance, in memory and on SQLite files: each test that asks for it runs on both."""
    if request.param == "memory":
        with simulated_instance() as made:
            yield made
    else:
        with dg.instance_for_test() as made:
            yield made
