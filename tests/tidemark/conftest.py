"""The machinery is tested on a toy code location."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dagster_tidemark.simulation.instance import simulated_instance
from tests.tidemark.postgres import has_postgres, postgres_instance


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "tests.toys")


@pytest.fixture(scope="module")
def postgres() -> Iterator[dg.DagsterInstance]:
    """An instance on a PostgreSQL server."""
    if not has_postgres():
        pytest.skip("no PostgreSQL on this machine (Debian's package postgresql); .ci/run installs it")
    with postgres_instance() as made:
        yield made


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home without an instance yet."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return folder


@pytest.fixture(params=["memory", "sqlite"])
def instance(request: pytest.FixtureRequest) -> Iterator[dg.DagsterInstance]:
    """An empty instance, in memory and on SQLite files: each test that asks for it runs on both."""
    if request.param == "memory":
        with simulated_instance() as made:
            yield made
    else:
        with dg.instance_for_test() as made:
            yield made
