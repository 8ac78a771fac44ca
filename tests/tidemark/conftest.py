"""The machinery is tested on a toy code location."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

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
