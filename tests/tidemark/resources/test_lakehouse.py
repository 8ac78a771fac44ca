"""What a run says of a load, in a real run on real Spark."""

import dataclasses

import dagster as dg
import pytest
from dagster_aws.s3 import S3Resource

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.execution.lakehouse_resource import LakehouseResource
from dagster_tidemark.execution.load_check import ACCOUNTING, landed_checks
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.resources.aws import LandingResource
from dagster_tidemark.resources.spark import SparkResource
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import HOUR, Put, csv, key, landing, line, orders, put, put_archived

__all__ = ["landing", "orders", "put"]
CORE = ["core", "orders"]


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")  # Dagster of its own nested resources
def test_accounting_check_is_reported_if_the_load_fails_for_an_unavailable_file(
    spark_server: Settings, landing: S3Bucket, put: Put, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in spark_server.exports().items():
        monkeypatch.setenv(name, value)
    load = dataclasses.replace(orders, transform=lambda rows: orders.transform(rows).where("order_id <> 2"))
    put(key(load, "a.csv"), csv(line(1), line(2)))
    put_archived(landing, key(load, "b.csv"), csv(line(3)))

    @dg.asset(
        key=CORE,
        partitions_def=dg.HourlyPartitionsDefinition("2026-09-28-00:00"),
        check_specs=landed_checks(load.feed, CORE),
    )
    def core_orders(context: dg.AssetExecutionContext, lakehouse: LakehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        return lakehouse.load(context, load.feed, load.table, load.transform)

    s3 = S3Resource(endpoint_url=spark_server.aws_endpoint_url, region_name=spark_server.aws_region)
    spark, bucket = SparkResource(settings=spark_server), LandingResource(s3=s3, bucket=landing.name)
    lakehouse = LakehouseResource(spark=spark, landing=bucket)
    with dg.DagsterInstance.ephemeral() as instance:
        ran = dg.materialize(
            [core_orders],
            partition_key=HOUR,
            instance=instance,
            resources={"s3": s3, "spark": spark, "landing": bucket, "lakehouse": lakehouse},
            raise_on_error=False,
        )
        assert not ran.success
        said = event_storage.latest_check_metadata(instance, dg.AssetCheckKey(dg.AssetKey(CORE), ACCOUNTING))
        assert said and said["rows unaccounted for"] == 1, "a row of the file that was given is missing"
