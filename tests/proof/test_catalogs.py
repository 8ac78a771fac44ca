"""What each kind of catalog can do: append, overwrite, branch, fast-forward, expire, by each engine that does it.

`python -m pytest -m proof tests/proof/test_catalogs.py` makes the table of docs/operating.md again: it writes
proof/catalogs.json, and a test compares the two. `CATALOGS=rest` tries only these.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse import branches, catalog, write
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, equal, open_lake, rows_of
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.read import read
from dagster_tidemark.lakehouse.session import error_line, new_session
from dagster_tidemark.lakehouse.table import Retention, Table
from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.settings import Settings
from tests.conftest import end_service, free_port, make_settings, start_service
from tests.proof.conftest import Report
from tests.proof.rest_catalog.server import rest_server
from tests.proof.test_expiring_credentials import lake_of_short_lived_credentials
from tests.tidemark.postgres import postgres_server

OPERATIONS = ("append", "overwrite", "branch", "fast-forward", "expire")
THINGS = Table("test.things", {"day": "date", "id": "bigint"}, ("id",), partitioned_by="day")
"""The table that Spark writes."""
NOTES = Table("test.notes", {"id": "bigint"}, ("id",))
"""The table that pyiceberg writes."""
DAY = "2026-10-01"


@contextmanager
def _sqlite(folder: Path) -> Iterator[Settings]:
    yield make_settings(folder)


@contextmanager
def _postgres(folder: Path) -> Iterator[Settings]:
    with postgres_server() as login:
        uri = f"jdbc:postgresql://127.0.0.1:{login['port']}/postgres?user={login['username']}"
        yield make_settings(folder).model_copy(update={"catalog_uri": uri})


@contextmanager
def _rest(folder: Path) -> Iterator[Settings]:
    made, port = make_settings(folder), free_port()
    fields = (name for name in type(made).model_fields if name not in ("catalog", "catalog_uri"))
    with rest_server(port, folder):
        yield Settings(
            **{name: getattr(made, name) for name in fields},
            catalog={"type": "rest", "uri": f"http://127.0.0.1:{port}"},
        )


CATALOGS: Mapping[str, Callable[[Path], Any]] = {
    "jdbc (SQLite)": _sqlite,
    "jdbc (PostgreSQL)": _postgres,
    "rest": _rest,
    "rest, with expiring credentials": lake_of_short_lived_credentials,
}


def test_what_each_catalog_can_do(tmp_path: Path, report: Report) -> None:
    chosen = [name.strip() for name in os.environ.get("CATALOGS", "").split(";") if name.strip()] or list(CATALOGS)
    found: dict[str, dict[str, dict[str, str]]] = {}
    for number, name in enumerate(chosen):
        folder = tmp_path / str(number)
        folder.mkdir()
        found[name] = _tried(folder, CATALOGS[name])
        report("catalogs", {"operations": OPERATIONS, "catalogs": found})
    faults = {name: of for name, of in found.items() if {said for by in of.values() for said in by.values()} != {"yes"}}
    assert not faults


def _tried(folder: Path, start: Callable[[Path], Any]) -> dict[str, dict[str, str]]:
    with ExitStack() as stack:
        given = stack.enter_context(start(folder))
        settings: Settings = given if isinstance(given, Settings) else given[0]
        if isinstance(given, Settings):  # otherwise its Spark runs
            if "://" not in settings.warehouse:
                Path(settings.warehouse).mkdir(exist_ok=True)
            fetch_jars(settings)
            log = folder / "spark.log"
            server = start_service(
                "dagster_tidemark.local.spark.server", settings, settings.port_spark, log, seconds=180
            )
            stack.callback(end_service, server)
        spark = new_session(settings)
        stack.callback(spark.stop)
        by_spark, by_pyiceberg = _by_spark(spark), _by_pyiceberg(settings)
        return {
            "Spark": {operation: _outcome(by_spark[operation]) for operation in OPERATIONS},
            "pyiceberg": {operation: _outcome(work) for operation, work in by_pyiceberg.items()},
        }


def _outcome(work: Callable[[], None]) -> str:
    try:
        work()
    except Exception as error:  # every fault of a catalog is a line of the report
        return error_line(error)
    return "yes"


def _by_spark(spark: SparkSession) -> dict[str, Callable[[], None]]:
    def frame(*ids: int) -> Any:
        return spark.sql(" UNION ALL ".join(f"SELECT DATE'{DAY}' AS day, {id}L AS id" for id in ids))

    def ids() -> list[int]:
        return sorted(row.id for row in read(spark, THINGS).collect())

    def append() -> None:
        catalog.ensure(spark, THINGS)
        frame(1).writeTo(THINGS.identifier).append()
        frame(2).writeTo(THINGS.identifier).append()
        assert ids() == [1, 2]

    def overwrite() -> None:
        write.overwrite(frame(3, 4), THINGS, [DAY], run_id="overwrite")
        assert ids() == [3, 4]

    def branch() -> None:
        branches.create(spark, THINGS, "tried", write.current_snapshot(spark, THINGS))
        head = branches.overwrite(frame(5), THINGS, "tried", [DAY], run_id="branch")
        assert [row.id for row in branches.rows_of(spark, THINGS, None, head).collect()] == [5]
        assert ids() == [3, 4], "readers see nothing of the branch"

    def fast_forward() -> None:
        branches.fast_forward(spark, THINGS, "tried")
        assert ids() == [5]
        branches.create(spark, THINGS, "late", write.current_snapshot(spark, THINGS))
        branches.overwrite(frame(6), THINGS, "late", [DAY], run_id="late")
        write.overwrite(frame(7), THINGS, [DAY], run_id="faster")
        try:
            branches.fast_forward(spark, THINGS, "late")
        except CommitConflict:
            assert ids() == [7], "the other commit stays"
        else:
            raise AssertionError("a branch beside another commit was fast-forwarded")

    def expire() -> None:
        for name in ("tried", "late"):
            branches.drop(spark, THINGS, name)
        times = spark.sql(f"SELECT committed_at FROM {THINGS.identifier}.snapshots ORDER BY 1").collect()
        committed_at = [_ms(row.committed_at) for row in times]
        keeps = replace(THINGS, retention=Retention(newest=1, held_for=timedelta(0), batch=1))
        write.expire_snapshots(spark, keeps, committed_at, max(committed_at) + 1)
        left = spark.sql(f"SELECT * FROM {THINGS.identifier}.snapshots").count()
        assert left < len(committed_at) and ids() == [7], (left, len(committed_at))

    return dict(zip(OPERATIONS, (append, overwrite, branch, fast_forward, expire), strict=True))


def _by_pyiceberg(settings: Settings) -> dict[str, Callable[[], None]]:
    def opened() -> Appendable:
        return Appendable(open_lake(settings), NOTES)

    def rows(table: Appendable, *ids: int) -> Any:
        return rows_of(table.schema, [{"id": id} for id in ids])

    def ids() -> list[int]:
        return sorted(opened().rows()["id"].to_pylist())

    def append() -> None:
        one, other = opened(), opened()
        one.commit(TableCommit(rows(one, 1)))
        try:
            other.commit(TableCommit(rows(other, 2)))
        except CommitConflict:
            other.refresh()
            other.commit(TableCommit(rows(other, 2)))
        else:
            raise AssertionError("a commit on an old head succeeded")
        assert ids() == [1, 2]

    def overwrite() -> None:
        table = opened()
        table.commit(TableCommit(rows(table, 3), instead_of=equal("id", 2)))
        assert ids() == [1, 3]

    def expire() -> None:
        table = opened()
        for id in range(10, 13):
            table.commit(TableCommit(rows(table, id)))
        assert table.expire(keep=1) and ids() == [1, 3, 10, 11, 12]

    return {"append": append, "overwrite": overwrite, "expire": expire}


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
