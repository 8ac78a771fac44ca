"""The code location of the baselines: a sensor that lists the bucket, and core.orders by a Spark session per run.

Belongs here: what `bench/stock` and `bench/tuned` share, which is all but their settings. The sensor is
that of dagster-aws, the session what every run of a Spark asset builds for itself.
"""

from datetime import datetime

import boto3
import dagster as dg
from dagster_aws.s3.sensor import get_objects

from bench import plain
from pipelines.tidemark.lakehouse.session import new_session
from pipelines.tidemark.settings import load_settings

HOURS = dg.HourlyPartitionsDefinition(start_date="2026-09-28-00:00", end_offset=1)


@dg.asset(key=["core", "orders"], partitions_def=HOURS)
def orders(context: dg.AssetExecutionContext) -> None:
    """An order line."""
    settings = load_settings()
    spark = new_session(settings)
    try:
        plain.create_tables(spark)
        s3 = boto3.client("s3", **settings.aws_options())
        plain.load_orders(spark, s3, settings.landing_bucket, list(context.partition_keys))
    finally:
        spark.stop()


def definitions(minimum_interval_seconds: int | None, executor: dg.ExecutorDefinition | None) -> dg.Definitions:
    """The location with its settings; None is Dagster's default."""

    @dg.sensor(
        target=[orders],
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def new_files(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Runs the hours in which files were modified since the last tick."""
        settings = load_settings()
        since = datetime.fromisoformat(context.cursor) if context.cursor else None
        found = get_objects(
            bucket=settings.landing_bucket,
            prefix="orders/",
            since_last_modified=since,
            client=boto3.client("s3", **settings.aws_options()),
        )
        hours = sorted({f"{key[10:20]}-{key[26:28]}:00" for key in (o["Key"] for o in found)})
        newest = max((o["LastModified"] for o in found), default=since)
        requests = [dg.RunRequest(partition_key=hour) for hour in hours]
        return dg.SensorResult(run_requests=requests, cursor=newest.isoformat() if newest else None)

    return dg.Definitions(assets=[orders], sensors=[new_files], executor=executor)
