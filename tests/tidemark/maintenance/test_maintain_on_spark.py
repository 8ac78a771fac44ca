"""Maintenance with Spark's procedures: rows, readers and live files stay, wherever a run of it dies."""

import dataclasses
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from dagster_tidemark.cli import maintenance_view
from dagster_tidemark.cli.app import app
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.maintenance import due
from dagster_tidemark.lakehouse.maintenance.due import MaintenancePolicy
from dagster_tidemark.lakehouse.maintenance.expirable import PREVIEWS
from dagster_tidemark.lakehouse.stored_tables import table_names
from dagster_tidemark.lakehouse.table import Retention, Table
from dagster_tidemark.maintenance import job
from dagster_tidemark.maintenance.job import MaintenanceWork
from dagster_tidemark.settings import Settings

DAY = date(2026, 10, 1)
SHORT = Retention(held_for=timedelta(0))
LOG = logging.getLogger(__name__)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def orders(spark_server: Settings) -> Table:
    """A table of eight commits, each with a file and a row. No preview of another test holds its snapshots."""
    lake = open_lake(spark_server)
    for found in map(lake.load_table, table_names(lake)):
        for branch in (name for name in found.refs() if name.startswith(PREVIEWS)):
            found.manage_snapshots().remove_branch(branch).commit()
    made = Table(
        f"t{uuid.uuid4().hex[:8]}.orders",
        {"day": "date", "n": "bigint", "source_file": "string"},
        ("n",),
        "day",
        retention=SHORT,
    )
    add(Appendable(lake, made), *range(8))
    return made


def add(to: Appendable, *numbers: int) -> None:
    for n in numbers:
        to.commit(TableCommit(rows=rows_of(to.schema, [{"day": DAY, "n": n, "source_file": f"{n}.csv"}])))


def work(instance: DagsterInstance, settings: Settings, *tables: Table) -> MaintenanceWork:
    return MaintenanceWork(
        instance, settings, {t.name: t for t in tables}, MaintenancePolicy().at_once(), str(uuid.uuid4()), LOG
    )


def seen(settings: Settings, table: Table, snapshot: int | None = None) -> list[tuple[int, str]]:
    rows = Appendable(open_lake(settings), table).rows(snapshot_id=snapshot).to_pylist()
    return sorted((row["n"], row["source_file"]) for row in rows)


def live_files(settings: Settings, table: Table) -> set[Path]:
    """Data files and metadata of the table's head."""
    found = open_lake(settings).load_table(table.name)
    head = found.current_snapshot()
    assert head is not None
    data = [task.file.file_path for task in found.scan().plan_files()]
    metadata = [found.metadata_location, head.manifest_list, *(m.manifest_path for m in head.manifests(found.io))]
    return {Path(path.removeprefix("file:")) for path in (*data, *metadata)}


def on_disk(settings: Settings, table: Table) -> list[Path]:
    return list((Path(settings.warehouse) / table.name.replace(".", "/") / "data").rglob("*.parquet"))


def test_rows_and_pinned_readers_stay_and_files_go(
    spark: SparkSession, spark_server: Settings, instance: DagsterInstance, orders: Table
) -> None:
    writer = Appendable(open_lake(spark_server), orders)
    before, pinned = seen(spark_server, orders), writer.head
    reading = create_run_for_test(instance, status=DagsterRunStatus.STARTED)
    first = work(instance, spark_server, orders)
    first.work([orders.name])
    assert dict(first.done) == {"done": 3, "nothing to do": 1}, "a search for orphans finds none"
    assert (seen(spark_server, orders), seen(spark_server, orders, pinned)) == (before, before)
    [compacted] = live_files(spark_server, orders) & set(on_disk(spark_server, orders))
    assert pq.read_metadata(compacted).row_group(0).column(0).compression == "ZSTD", "as the other files"

    # A stream continues after the snapshot that it knows, and gets only what was added since.
    writer.refresh()
    add(writer, 8)
    writer.refresh()
    added = writer.appended_since(pinned)
    assert added is not None and added["n"].to_pylist() == [8]

    instance.report_run_canceled(reading)
    lost = Path(spark_server.warehouse) / orders.name.replace(".", "/") / "data" / "lost.parquet"
    lost.write_text("of a run that died")
    days_ago = time.time() - 4 * 86_400
    os.utime(lost, (days_ago, days_ago))
    for _ in range(2):
        again = work(instance, spark_server, orders)
        again.work([orders.name])
        assert not again.said
    assert not lost.exists()
    assert set(on_disk(spark_server, orders)) <= live_files(spark_server, orders)
    assert seen(spark_server, orders) == [*before, (8, "8.csv")]
    rows = spark.sql(f"SELECT * FROM lake.ops.maintenance WHERE table_name = '{orders.name}' ORDER BY started_at")
    actions = [(row.action, row.result) for row in rows.collect()]
    assert actions[:4] == [
        ("rewrite_data_files", "done"),
        ("rewrite_manifests", "done"),
        ("expire_snapshots", "done"),
        ("remove_orphan_files", "nothing to do"),
    ]
    assert actions[-1] == ("remove_orphan_files", "done")


def test_one_broken_table_is_named_and_the_others_are_maintained(
    spark: SparkSession, spark_server: Settings, instance: DagsterInstance, orders: Table
) -> None:
    broken = dataclasses.replace(orders, name=f"{orders.name}_broken")
    writer = Appendable(open_lake(spark_server), broken)
    add(writer, 0, 1)
    writer.commit(TableCommit(marks={"gc.enabled": "false"}))
    both = work(instance, spark_server, broken, orders)
    both.work([broken.name, orders.name])
    assert {line.partition(":")[0] for line in both.said} == {broken.name} and "GC is disabled" in both.said[0]
    assert both.done["failed"] == 2 and both.done["done"] == 3


def dies_at(boundary: str, number: int) -> Callable[[str], None]:
    passed = [0]

    def reached(at: str) -> None:
        passed[0] += at == boundary
        if at == boundary and passed[0] == number:
            raise Killed

    return reached


@pytest.mark.parametrize(
    ("boundary", "actions"),  # the proof kills at each of three actions at each boundary
    [("maintenance_decided", [2]), ("maintenance_committed", [1, 2, 3]), ("maintenance_recorded", [2])],
)
def test_no_live_file_is_lost_where_a_run_dies(
    boundary: str,
    actions: list[int],
    spark_server: Settings,
    instance: DagsterInstance,
    orders: Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, deaths = seen(spark_server, orders), 0
    monkeypatch.setattr(due, "_FIRST_PAUSE", 0.0)  # else an action that died rests
    for number in actions:
        monkeypatch.setattr(job, "reached", dies_at(boundary, number))
        try:
            work(instance, spark_server, orders).work([orders.name])
        except Killed:
            deaths += 1
        assert seen(spark_server, orders) == before
        assert all(path.exists() for path in live_files(spark_server, orders))
        add(Appendable(open_lake(spark_server), orders), *range(100 * number, 100 * number + 5))
        before = seen(spark_server, orders)
    assert deaths == len(actions)
    monkeypatch.setattr(job, "reached", lambda _: None)
    last = work(instance, spark_server, orders)
    last.work([orders.name])
    assert not last.said and seen(spark_server, orders) == before


def test_maintain_command_works_in_a_run_and_records_it(
    spark_server: Settings, orders: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    settings = spark_server.model_copy(update={"dagster_home": tmp_path, "code_location": "tests.toys"})
    for name, value in settings.exports().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(maintenance_view, "_tables", lambda _: {orders.name: orders})
    found = CliRunner().invoke(app, ["maintain", orders.name])
    assert (found.output, found.exit_code) == ("3 done, 1 nothing to do\n", 0)
    with DagsterInstance.get() as instance:
        [run] = instance.get_runs()
    assert run.status is DagsterRunStatus.SUCCESS and run.tags["tidemark/maintenance"] == "tests.toys"
