"""The code location of the baselines: a sensor that lists the bucket, and core.orders by a Spark session per run.

Belongs here: everything that `bench/stock` and `bench/tuned` share; only their settings differ. The sensor lists the
bucket with dagster-aws. Each run builds its own Spark session. A second sensor receives messages and starts a run for
them.
"""

import json
from datetime import datetime

import boto3
import dagster as dg
from dagster_aws.s3.sensor import get_objects
from pyspark.sql import functions as F

from bench import plain
from dagster_tidemark.environment import from_env
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources.sqs import open_queue
from pipelines.transforms.cold_chain import too_warm

READINGS_QUEUE = from_env("TIDEMARK_READINGS_QUEUE", default="cold-chain-readings")
ALERTS_QUEUE = from_env("TIDEMARK_ALERTS_QUEUE", default="alerts")
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


class Messages(dg.Config):
    """The bodies of messages."""

    bodies: list[str]


@dg.op
def alert_of(config: Messages) -> None:
    """Store readings, and send an alert for each sensor that is too warm for ten minutes."""
    settings = load_settings()
    spark = new_session(settings)
    try:
        said = spark.createDataFrame([(body,) for body in config.bodies], "body string")
        columns = "device_id string, store_id bigint, read_at timestamp, temperature_c double, door_open boolean"
        rows = said.select(F.from_json("body", columns).alias("r")).select("r.*")
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
        spark.sql(f"CREATE TABLE IF NOT EXISTS lake.raw.readings ({columns}) USING iceberg")
        rows.writeTo("lake.raw.readings").append()
        devices = rows.select("device_id").distinct()
        known = spark.table("lake.raw.readings").join(devices, on="device_id", how="inner")
        found = [
            {"device_id": row["device_id"], "episode_started_at": episode.started_at.isoformat()}
            for row in known.groupBy("device_id").agg(F.collect_list(F.struct("*")).alias("readings")).collect()
            for episode in too_warm(sorted((r.asDict() for r in row["readings"]), key=lambda r: r["read_at"]))
        ]
    finally:
        spark.stop()
    if found:
        open_queue(ALERTS_QUEUE, **settings.aws_options()).send([json.dumps(each) for each in found])


@dg.job
def alert() -> None:
    """Store readings and send alerts."""
    alert_of()


def definitions(minimum_interval_seconds: int | None, executor: dg.ExecutorDefinition | None) -> dg.Definitions:
    """Return the code location. None stands for Dagster's default."""

    @dg.sensor(
        target=[orders],
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def new_files(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Request the hours that have files modified since the last tick."""
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

    @dg.sensor(
        job=alert,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def new_messages() -> dg.SensorResult:
        """Request a run for the waiting messages, and delete them. If that run dies, they are lost."""
        settings = load_settings()
        queue = open_queue(READINGS_QUEUE, **settings.aws_options())
        found = []
        while messages := queue.receive(0):
            found += [message.body for message in messages]
            queue.delete(messages)
        config = {"ops": {"alert_of": {"config": {"bodies": found}}}}
        return dg.SensorResult(run_requests=[dg.RunRequest(run_config=config)] if found else [])

    return dg.Definitions(assets=[orders], jobs=[alert], sensors=[new_files, new_messages], executor=executor)
