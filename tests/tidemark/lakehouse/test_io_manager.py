"""DataFrames between assets: whole partitions written, inputs pruned, each partition's content told."""

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_tidemark.execution.io_manager import IcebergIOManager, NoSuchTable, NotADataFrame, iceberg_io_manager
from dagster_tidemark.execution.watermark import THROUGH, through
from dagster_tidemark.lakehouse.read import Snapshot
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.lakehouse.write import current_snapshot
from dagster_tidemark.tags import CONTENT
from tests.toys.partitions import DAYS, HOURS, WITHIN

HOUR_KEYS = [f"2026-10-01-{h:02}:00" for h in range(24)]


@pytest.fixture
def tag() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def location(spark: SparkSession, tag: str) -> SimpleNamespace:
    hourly = Table(f"{tag}.hourly", {"hour": "timestamp", "n": "bigint"}, ("hour",), "hour")
    daily = Table(f"{tag}.daily", {"day": "date", "n": "bigint"}, ("day",), "day")
    whole = Table(f"{tag}.whole", {"n": "bigint"}, ("n",))

    @dg.asset(key=[tag, "hourly"], partitions_def=HOURS, backfill_policy=dg.BackfillPolicy.single_run())
    def hours(context: dg.AssetExecutionContext) -> DataFrame:
        keys = [(k,) for k in context.partition_keys]
        return spark.createDataFrame(keys, "k string").selectExpr(
            "to_timestamp(k, 'yyyy-MM-dd-HH:mm') AS hour", "CAST(substr(k, 12, 2) AS BIGINT) AS n"
        )

    @dg.asset(
        key=[tag, "daily"],
        ins={"hours": dg.AssetIn(key=[tag, "hourly"], partition_mapping=WITHIN)},
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def days(hours: DataFrame) -> DataFrame:
        return hours.groupBy(F.to_date("hour").alias("day")).agg(F.sum("n").alias("n"))

    @dg.asset(key=[tag, "whole"], ins={"days": dg.AssetIn(key=[tag, "daily"])})
    def everything(days: DataFrame) -> DataFrame:
        return days.select("n")

    tables = {t.name: t for t in (hourly, daily, whole)}
    resources = {"spark": SimpleNamespace(session=spark), "io_manager": iceberg_io_manager(tables)}
    return SimpleNamespace(hours=hours, days=days, everything=everything, tables=tables, resources=resources)


def run(location: SimpleNamespace, asset: str, **where: object) -> list[dg.AssetMaterialization]:
    definition = getattr(location, asset)
    others = [a for a in (location.hours, location.days, location.everything) if a is not definition]
    result = dg.materialize(
        [definition, *(a.to_source_asset() for a in others)],
        resources=location.resources,
        selection=[definition],
        **where,  # type: ignore[arg-type]
    )
    return [e.materialization for e in result.get_asset_materialization_events() for e in [e.step_materialization_data]]


def range_of(first: str, last: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def test_io_manager_writes_a_range_in_one_commit_with_content_per_partition(
    spark: SparkSession, location: SimpleNamespace, tag: str
) -> None:
    written = run(location, "hours", tags=range_of(HOUR_KEYS[0], HOUR_KEYS[-1]))
    assert [m.partition for m in written] == HOUR_KEYS
    assert len({m.metadata[CONTENT].value for m in written}) == 24
    assert {m.metadata["dagster/partition_row_count"].value for m in written} == {1}
    assert spark.sql(f"SELECT * FROM lake.{tag}.hourly.snapshots").count() == 1


def test_io_manager_reads_only_the_mapped_input_partitions(
    spark: SparkSession, location: SimpleNamespace, tag: str
) -> None:
    run(location, "hours", tags=range_of("2026-09-30-22:00", "2026-10-02-01:00"))
    run(location, "days", partition_key="2026-10-01")
    run(location, "everything")
    assert [r.n for r in spark.table(f"lake.{tag}.whole").collect()] == [sum(range(24))]


def test_output_partition_reports_the_newest_arrival_of_its_inputs(location: SimpleNamespace, tag: str) -> None:
    told = {"2026-10-01-03:00": 100, "2026-10-01-05:00": 300, "2026-10-01-06:00": 200, "2026-10-03-00:00": 50}
    hourly = dg.AssetKey([tag, "hourly"])
    with dg.DagsterInstance.ephemeral() as instance:
        run(location, "hours", tags=range_of("2026-10-01-00:00", "2026-10-03-23:00"), instance=instance)
        for key, at in told.items():
            said = through(datetime.fromtimestamp(at, UTC))
            instance.report_runless_asset_event(dg.AssetMaterialization(hourly, partition=key, metadata=said))
        days = run(location, "days", tags=range_of("2026-10-01", "2026-10-03"), instance=instance)
        (whole,) = run(location, "everything", instance=instance)
    found = {m.partition: m.metadata[THROUGH].value for m in days if THROUGH in m.metadata}
    assert found == {"2026-10-01": 300, "2026-10-03": 50}, "nothing is said of the day of which nothing was told"
    assert whole.metadata[THROUGH].value == 300


def test_io_manager_replaces_a_partition_and_keeps_the_others(
    spark: SparkSession, location: SimpleNamespace, tag: str
) -> None:
    run(location, "hours", tags=range_of(HOUR_KEYS[0], HOUR_KEYS[2]))
    (first,) = run(location, "hours", partition_key=HOUR_KEYS[1])
    (second,) = run(location, "hours", partition_key=HOUR_KEYS[1])
    assert spark.table(f"lake.{tag}.hourly").count() == 3
    assert first.metadata[CONTENT] == second.metadata[CONTENT]
    assert first.metadata["snapshot id"] != second.metadata["snapshot id"]


def test_snapshot_input_reads_the_rows_of_its_commit(spark: SparkSession, location: SimpleNamespace, tag: str) -> None:
    seen: list[tuple[int | None, int, int]] = []

    @dg.asset(key=[tag, "pinned"], ins={"days": dg.AssetIn(key=[tag, "daily"])}, io_manager_key="none")
    def pinned(days: Snapshot) -> None:
        before = days.rows.count()
        if days.id is not None:
            run(location, "days", partition_key="2026-10-02")
        seen.append((days.id, before, days.rows.count()))

    location.resources["none"] = dg.mem_io_manager
    alone = {"selection": [pinned], "resources": location.resources}
    dg.materialize([pinned, location.days.to_source_asset()], **alone)
    run(location, "hours", tags=range_of("2026-10-01-00:00", "2026-10-02-23:00"))
    run(location, "days", partition_key="2026-10-01")
    snapshot = current_snapshot(spark, location.tables[f"{tag}.daily"])
    dg.materialize([pinned, location.days.to_source_asset()], **alone)
    assert seen == [(None, 0, 0), (snapshot, 1, 1)]
    assert spark.table(f"lake.{tag}.daily").count() == 2


def test_io_manager_refuses_an_asset_without_a_declared_table(spark: SparkSession) -> None:
    manager = IcebergIOManager({}, SimpleNamespace(session=spark))
    with pytest.raises(NoSuchTable, match="marts/forgotten"):
        manager.load_input(dg.build_input_context(asset_key=dg.AssetKey(["marts", "forgotten"])))


def test_io_manager_names_the_asset_whose_function_returns_no_spark_data_frame(
    spark: SparkSession, location: SimpleNamespace, tag: str
) -> None:
    @dg.asset(key=[tag, "whole"])
    def counted() -> object:
        return [1]

    with pytest.raises(NotADataFrame, match=rf"asset {tag}/whole: expected a Spark DataFrame .*, found builtins.list"):
        dg.materialize([counted], resources=location.resources)
