"""Tables on a real catalog in a folder of the test, written without Spark."""

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from dagster import DagsterInstance

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings
from tests.conftest import make_settings

Commits = Callable[[Settings, Table, int], Appendable]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings(tmp_path)


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def table(name: str) -> Table:
    return Table(name, {"day": "date", "n": "bigint"}, ("n",), "day")


def commits(settings: Settings, of: Table, count: int) -> Appendable:
    """Commit one row in one file, some times."""
    made = Appendable(open_lake(settings), of)
    for n in range(count):
        made.commit(TableCommit(rows=rows_of(made.schema, [{"day": date(2026, 10, 1), "n": n}])))
    return made
