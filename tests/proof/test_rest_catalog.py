"""A catalog over REST: Iceberg's reference server, with Spark and pyiceberg as its clients."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark import Table, build_definitions, table_asset
from dagster_tidemark.lakehouse import catalog, metadata_reads, write
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.lakehouse.commits import CommitConflict
from dagster_tidemark.lakehouse.read import read
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.stored_tables import stored_tables
from dagster_tidemark.local.spark.jars import fetch_jars
from dagster_tidemark.sensors.reachable import unreachable
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.shift_retries import OF_THE_WORLD
from tests.conftest import end_service, free_port, make_settings, start_service
from tests.proof.rest_catalog.server import VERSION, rest_server

SALES = Table("marts.sales", {"day": "date", "store": "bigint"}, ("day", "store"), partitioned_by="day")
PINGS = Table("raw.pings", {"id": "string"}, ("id",))
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_offset=1)


def settings_of(folder: Path) -> Settings:
    made = make_settings(folder)
    return Settings(
        **{name: getattr(made, name) for name in type(made).model_fields if name not in ("catalog", "catalog_uri")},
        catalog={"type": "rest", "uri": f"http://127.0.0.1:{free_port()}"},
    )


def rows(days: list[str], spark: SparkSession, store: int) -> DataFrame:
    return spark.sql(" UNION ALL ".join(f"SELECT DATE'{day}' AS day, {store}L AS store" for day in days))


def of(table: Appendable, id: str) -> TableCommit:
    return TableCommit(rows_of(table.schema, [{"id": id}]))


def test_spark_and_pyiceberg_share_a_rest_catalog(tmp_path: Path, report: Any) -> None:
    settings = settings_of(tmp_path)
    port = int(settings.catalog_uri.rpartition(":")[2])
    fetch_jars(settings)
    with rest_server(port, tmp_path):
        log = tmp_path / "spark.log"
        server = start_service("dagster_tidemark.local.spark.server", settings, settings.port_spark, log, seconds=120)
        spark = new_session(settings)
        try:
            assert unreachable(settings)["catalog"] == ""
            _a_run_writes_and_reads(settings)
            _spark_and_pyiceberg_see_each_other(settings, spark)
            _two_writers_of_one_table(settings, spark)
            _a_later_generation(settings, spark)
        finally:
            spark.stop()
            end_service(server)
        writer = Appendable(open_lake(settings), PINGS)
        before = writer.rows().num_rows
    with pytest.raises(OF_THE_WORLD):
        writer.commit(of(writer, "away"))
    assert "unreachable" in unreachable(settings)["catalog"]
    with rest_server(port, tmp_path):
        writer.refresh()
        writer.commit(of(writer, "back"))
        assert writer.rows().num_rows == before + 1
    report("rest-catalog", {"server": f"iceberg-core {VERSION}", "rows of pings": before + 1})


def _a_run_writes_and_reads(settings: Settings) -> None:
    @table_asset(SALES, partitions=DAYS)
    def sales(context: dg.AssetExecutionContext, tidemark_spark: dg.ResourceParam[Any]) -> DataFrame:
        return rows(list(context.partition_keys), tidemark_spark.session, 1)

    defs = build_definitions(settings, [sales], [], [SALES])
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {**(defs.resources or {}), "tidemark_spark": (defs.resources or {})["spark"]}
        done = dg.materialize([sales], partition_key="2026-10-01", resources=resources, instance=instance)
    assert done.success


def _spark_and_pyiceberg_see_each_other(settings: Settings, spark: SparkSession) -> None:
    assert read(spark, SALES).count() == 1
    lake = open_lake(settings)
    assert lake.load_table("marts.sales").scan().to_arrow().num_rows == 1
    assert metadata_reads.loaded(spark, SALES) is not None, "without Spark as well"
    assert set(stored_tables(settings, [SALES, PINGS])) == {"marts.sales"}
    one = Appendable(lake, PINGS)
    one.commit(of(one, "a"))
    catalog.ensure(spark, PINGS)
    assert [row.id for row in read(spark, PINGS).collect()] == ["a"]
    wider = Appendable(open_lake(settings), replace(PINGS, columns=PINGS.columns | {"weight": "double"}))
    assert "weight" in wider.schema.names


def _two_writers_of_one_table(settings: Settings, spark: SparkSession) -> None:
    one, other = (Appendable(open_lake(settings), PINGS) for _ in range(2))
    other.commit(of(other, "b"))
    with pytest.raises(CommitConflict):
        one.commit(of(one, "c"))
    assert one.refresh()
    one.commit(of(one, "c"))
    with pytest.raises(CommitConflict):
        other.commit(TableCommit(marks={"sent": "1"}))
    assert sorted(row.id for row in read(spark, PINGS).collect()) == ["a", "b", "c"]

    def overwrite(number: int) -> None:
        session = new_session(settings)
        try:
            day = f"2026-10-{number:02}"
            write.overwrite(rows([day], session, number), SALES, [day], run_id=str(number))
        finally:
            session.stop()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(overwrite, range(2, 8)))
    assert sorted(row.store for row in read(spark, SALES).collect()) == list(range(1, 8)), "no commit is lost"


def _a_later_generation(settings: Settings, spark: SparkSession) -> None:
    again = replace(SALES, columns={"day": "date", "store": "string"}, generation=2)
    catalog.ensure(spark, again)
    assert read(spark, again).count() == 0
    assert spark.table(f"lake.{SALES.name_of_generation(1)}").count() == 7
