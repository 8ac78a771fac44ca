"""Without SPARK_REMOTE a run starts Spark in its own process: slower, same result."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dagster_tidemark.settings import Settings
from tests.toys import feeds

HOUR = "2026-10-03-07:00"
CODE = """
import boto3
from tests.toys import feeds
from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.session import new_session
from tests.toys import schemas
from dagster_tidemark.settings import load_settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.toys.schemas import order_lines

settings = load_settings()
assert settings.spark_remote is None
landing = S3Bucket(lambda: boto3.client("s3", **settings.aws_options()), settings.landing_bucket)
spark = new_session(settings)
load = Load(feeds.ORDERS, schemas.ORDERS, order_lines, "1")
for _ in range(2):
    loaded = run_load(spark, landing, load, ["2026-10-03-07:00"], run_id="r")
    print("LOADED", len(loaded.read_again), loaded.content["2026-10-03-07:00"].rows)
print("REVENUE", spark.table("lake.core.orders").first().revenue_usd)
spark.stop()
"""


@pytest.mark.proof
def test_load_without_spark_remote_starts_spark_in_its_own_process(
    cloud: Settings, tmp_path: Path, put: Callable[[str, str | bytes], None]
) -> None:
    header = ",".join(feeds.ORDERS.columns)
    put(f"{feeds.ORDERS.prefix_of(HOUR)}a.csv", f"{header}\n7,1,3,4,5,3,1.25,0.1,2026-10-03T07:15:00Z\n")
    own = {"state_dir": tmp_path, "warehouse": str(tmp_path / "warehouse"), "spark_remote": None}
    catalog = f"jdbc:sqlite:{tmp_path}/catalog.db?journal_mode=WAL&busy_timeout=30000"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}  # set by other tests
    environment |= cloud.model_copy(update=own | {"catalog_uri": catalog}).exports()
    # Keys as of any S3 but the platform's own: nothing but the environment has them.
    environment["TIDEMARK_PORT_CLOUD"] = "1"
    environment |= {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_SESSION_TOKEN": "t0ken"}
    ran = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert [line for line in ran.stdout.splitlines() if line.startswith(("LOADED", "REVENUE"))] == [
        "LOADED 1 1",
        "LOADED 0 1",
        "REVENUE 3.3750",
    ]
