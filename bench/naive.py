"""The smallest possible PySpark script: load order lines from CSV files into core.orders, without any validation.

No row is validated, quarantined or ranked by its key. So its time is the cost of reading and writing alone.
Belongs here: nothing of `dagster_tidemark`, so that it can be read and run alone.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.plain import COLUMNS, listed


def load_orders(spark: SparkSession, s3: Any, bucket: str, hours: Sequence[str]) -> None:
    """Replace the partitions of some hours (`2026-09-28-07:00`) of core.orders by the rows of their CSV files.

    Args:
        s3: A boto3 client.
    """
    keys = [file[0] for hour in hours for file in listed(s3, bucket, hour)]
    read = spark.read.schema(", ".join(f"{c} {kind}" for c, kind in COLUMNS.items())).option("header", True)
    revenue = F.col("quantity").cast("decimal(9,0)") * F.col("unit_price_usd")
    revenue *= (F.lit(1) - F.col("discount")).cast("decimal(9,8)")
    rows = read.csv([f"s3a://{bucket}/{key}" for key in keys]).select(
        *COLUMNS,
        F.date_trunc("HOUR", "ordered_at").alias("hour"),
        F.round(revenue, 4).cast("decimal(18,4)").alias("revenue_usd"),
        F.col("_metadata.file_path").alias("source_file"),
        F.lit("").alias("source_version"),
        F.col("_metadata.file_modification_time").alias("arrived_at"),
        F.lit("1").alias("loaded_by"),
    )
    in_hours = ", ".join(f"TIMESTAMP '{hour[:10]} {hour[11:13]}:00:00'" for hour in hours)
    rows.writeTo("lake.core.orders").overwrite(F.expr(f"hour IN ({in_hours})"))
