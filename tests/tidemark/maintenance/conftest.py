"""Tables on a real catalog in a folder of the test, written without Spark."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.remote_origin import RemoteJobOrigin
from dagster._core.utils import make_new_run_id

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.simulation.log import REPOSITORY
from tests.conftest import make_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings(tmp_path)


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def queued_run(instance: DagsterInstance, *assets: str) -> dg.DagsterRun:
    keys = frozenset(map(dg.AssetKey.from_user_string, assets))
    run = dg.DagsterRun(
        "loads",
        make_new_run_id(),
        status=DagsterRunStatus.QUEUED,
        asset_selection=keys or None,
        remote_job_origin=RemoteJobOrigin(REPOSITORY, "loads"),
    )
    instance.add_run(run)
    return run


def table(name: str) -> Table:
    return Table(name, {"day": "date", "n": "bigint"}, ("n",), "day")


def commits(settings: Settings, of: Table, count: int) -> Appendable:
    """Commit one row in one file, some times."""
    return appended(settings, of, [{"day": date(2026, 10, 1), "n": n} for n in range(count)])


def appended(settings: Settings, of: Table, rows: Sequence[Mapping[str, Any]]) -> Appendable:
    """Commit rows, each in a file of its own."""
    made = Appendable(open_lake(settings), of)
    for row in rows:
        made.commit(TableCommit(rows=rows_of(made.schema, [dict.fromkeys(of.columns) | dict(row)])))
    return made
