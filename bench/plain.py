"""The work as a plain PySpark script: order lines from CSV files to core.orders, and sales per day.

It is the script of an experienced Spark user: the same validation, quarantine, winner rule and columns as in the
project's load of core/orders. All files have one format, with the columns in their declared order. Belongs
here: nothing of `pipelines`, so that it can be read and run alone.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

COLUMNS = {
    "order_id": "bigint",
    "line_number": "bigint",
    "customer_id": "bigint",
    "product_id": "bigint",
    "store_id": "bigint",
    "quantity": "bigint",
    "unit_price_usd": "decimal(18,4)",
    "discount": "decimal(18,8)",
    "ordered_at": "timestamp",
}
LINEAGE = ("source_file", "source_version", "arrived_at", "loaded_by")
RULES = {
    "wrong_hour": "date_trunc('HOUR', ordered_at) = hour",
    "discount_out_of_range": "discount BETWEEN 0 AND 1",
    "quantity_out_of_range": "abs(quantity) < 1000000000",
    "amount_out_of_range": "abs(quantity * unit_price_usd) < 100000000000000",
}

_ORDERS = """CREATE TABLE IF NOT EXISTS lake.core.orders (
    order_id bigint, line_number bigint, customer_id bigint, product_id bigint, store_id bigint, quantity bigint,
    unit_price_usd decimal(18,4), discount decimal(18,8), ordered_at timestamp, hour timestamp,
    revenue_usd decimal(18,4), source_file string, source_version string, arrived_at timestamp, loaded_by string
) USING iceberg PARTITIONED BY (hour)"""
_QUARANTINE = """CREATE TABLE IF NOT EXISTS lake.ops.quarantine (
    asset string, partition string, source_file string, source_version string, arrived_at timestamp, loaded_by string,
    row_number bigint, content string, reason string, message string, quarantined_at timestamp
) USING iceberg PARTITIONED BY (asset, partition)"""
_SALES_DAILY = """CREATE TABLE IF NOT EXISTS lake.marts.sales_daily (
    day date, product_id bigint, quantity bigint, revenue_usd decimal(18,4)
) USING iceberg PARTITIONED BY (day)"""


def new_session(remote: str) -> SparkSession:
    """Return a session on a Spark Connect server (`sc://host:port`). The caller must stop it."""
    session: SparkSession = SparkSession.builder.remote(remote).config("spark.sql.session.timeZone", "UTC").create()
    return session


def create_tables(spark: SparkSession) -> None:
    """Create the three tables, if they do not exist."""
    for namespace in ("core", "ops", "marts"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{namespace}")
    for statement in (_ORDERS, _QUARANTINE, _SALES_DAILY):
        spark.sql(statement)


def load_orders(spark: SparkSession, s3: Any, bucket: str, hours: Sequence[str]) -> None:
    """Replace the partitions of some hours (`2026-09-28-07:00`) of core.orders by the valid rows of their CSV files.

    Args:
        s3: A boto3 client.
    """
    files = [file for hour in hours for file in listed(s3, bucket, hour)]
    judged = _judged(spark, bucket, files).persist()
    in_hours = ", ".join(f"TIMESTAMP '{hour[:10]} {hour[11:13]}:00:00'" for hour in hours)
    _rejected(judged).writeTo("lake.ops.quarantine").overwrite(
        F.expr(f"asset = 'core/orders' AND partition IN ({', '.join(repr(hour) for hour in hours)})")
    )
    revenue = F.col("quantity").cast("decimal(9,0)") * F.col("unit_price_usd")
    revenue *= (F.lit(1) - F.col("discount")).cast("decimal(9,8)")
    good = judged.where("reason IS NULL AND wins").select(
        *COLUMNS, "hour", F.round(revenue, 4).cast("decimal(18,4)").alias("revenue_usd"), *LINEAGE
    )
    good.writeTo("lake.core.orders").overwrite(F.expr(f"hour IN ({in_hours})"))
    judged.unpersist()


def sales_daily(spark: SparkSession, days: Sequence[str]) -> None:
    """Sum core.orders per product and day for some days (`2026-09-28`), and replace these days in marts.sales_daily."""
    dates = ", ".join(f"DATE '{day}'" for day in days)
    first, last = min(days), max(days)
    sold = (
        spark.table("lake.core.orders")
        .where(f"hour >= TIMESTAMP '{first} 00:00:00' AND hour < TIMESTAMP '{last} 00:00:00' + INTERVAL 1 DAY")
        .groupBy(F.to_date("hour").alias("day"), "product_id")
        .agg(F.sum("quantity").alias("quantity"), F.sum("revenue_usd").cast("decimal(18,4)").alias("revenue_usd"))
    )
    sold.writeTo("lake.marts.sales_daily").overwrite(F.expr(f"day IN ({dates})"))


def listed(s3: Any, bucket: str, hour: str) -> list[tuple[Any, ...]]:
    """Return key, version, arrival time and hour of each file of an hour."""
    prefix = f"orders/dt={hour[:10]}/hour={hour[11:13]}/"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [(o["Key"], _version(o), o["LastModified"], hour) for page in pages for o in page.get("Contents", ())]


def _version(listed: Any) -> str:
    modified_ms = int(listed["LastModified"].timestamp() * 1000)
    return f"{listed['ETag'].strip(chr(34))}-{listed['Size']}-{modified_ms}"


def _judged(spark: SparkSession, bucket: str, files: Sequence[tuple[Any, ...]]) -> DataFrame:
    lines = (
        spark.read.schema(", ".join(f"text_{c} string" for c in COLUMNS) + ", malformed string")
        .option("header", True)
        .option("columnNameOfCorruptRecord", "malformed")
        .csv([f"s3a://{bucket}/{file[0]}" for file in files])
        .select(
            F.substring("_metadata.file_path", len(f"s3a://{bucket}/") + 1, 1000).alias("source_file"),
            F.struct(F.col("_metadata.file_block_start"), F.monotonically_increasing_id().alias("row")).alias(
                "position"
            ),
            "*",
        )
    )
    versions = spark.createDataFrame(
        list(files), "source_file string, source_version string, arrived_at timestamp, partition string"
    )
    rows = lines.join(F.broadcast(versions), on="source_file", how="inner")
    rows = rows.withColumns({c: F.trim(f"text_{c}").try_cast(kind) for c, kind in COLUMNS.items()})
    rows = rows.withColumn("hour", F.expr("to_timestamp(partition, 'yyyy-MM-dd-HH:mm')"))
    rows = rows.withColumn("verdict", F.coalesce(*_verdicts())).withColumn("loaded_by", F.lit("1"))
    good = F.col("verdict").isNull()
    newest_first = [F.desc(c) for c in ("arrived_at", "source_file", "position")]
    wins = F.row_number().over(Window.partitionBy(good, "hour", "order_id", "line_number").orderBy(*newest_first)) == 1
    as_it_was = F.to_json(F.struct(*(F.col(f"text_{c}").alias(c) for c in COLUMNS)))
    return rows.select(
        *COLUMNS,
        "hour",
        *LINEAGE,
        "partition",
        "position",
        F.col("verdict.reason").alias("reason"),
        F.col("verdict.message").alias("message"),
        F.when(~good, F.coalesce("malformed", as_it_was)).alias("content"),
        wins.alias("wins"),
    )


def _verdicts() -> list[Column]:
    def when(condition: Column, reason: str, message: str) -> Column:
        return F.when(condition, F.struct(F.lit(reason).alias("reason"), F.lit(message).alias("message")))

    return [
        when(F.col("malformed").isNotNull(), "malformed", "the line is no row of this file"),
        *(
            when((F.trim(f"text_{c}") != "") & F.col(c).isNull(), "bad_type", f"{c}: expected {kind}")
            for c, kind in COLUMNS.items()
        ),
        *(when(F.col(c).isNull(), "null_value", f"{c} is missing") for c in COLUMNS),
        *(when(~F.coalesce(F.expr(rule), F.lit(False)), reason, rule) for reason, rule in RULES.items()),
    ]


def _rejected(judged: DataFrame) -> DataFrame:
    # Row ids only increase. A file of this size is one split, so the smallest id belongs to its first row.
    first_rows = judged.groupBy("source_file").agg(F.min("position.row").alias("first"))
    return (
        judged.where("reason IS NOT NULL")
        .join(F.broadcast(first_rows), on="source_file", how="inner")
        .select(
            F.lit("core/orders").alias("asset"),
            "partition",
            *LINEAGE,
            F.expr("position.row - first + 1").alias("row_number"),
            "content",
            "reason",
            "message",
            F.now().alias("quarantined_at"),
        )
    )
