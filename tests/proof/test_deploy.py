"""A deployment from the files of deploy/: `doctor` is green, a file becomes rows, and each broken part is named."""

import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagster_tidemark.lakehouse.append import open_lake
from dagster_tidemark.settings import Settings
from tests.live.waiting import eventually
from tests.proof.conftest import Report
from tests.proof.deployed import PASSWORD, Deployed, deployed

_LINE = "order_id,line_number,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at\n"


def _failed(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: each["verdict"] for name, each in found.items() if each["verdict"] != "ok"}


def _settings(platform: Deployed) -> Settings:
    env = platform.environment
    return Settings(
        environment="production",
        catalog_uri=env["TIDEMARK_CATALOG_URI"],
        warehouse=env["TIDEMARK_WAREHOUSE"],
        aws_endpoint_url=env["AWS_ENDPOINT_URL"],
        port_cloud=int(env["TIDEMARK_PORT_CLOUD"]),
        spark_remote=env["SPARK_REMOTE"],
    )


def test_a_deployment_from_the_files_works_and_each_broken_part_is_named(tmp_path: Path, report: Report) -> None:
    begun = time.monotonic()
    figures: dict[str, Any] = {"seconds": {}, "named": {}}
    with deployed(tmp_path) as platform:
        figures["seconds"]["start"] = round(time.monotonic() - begun, 1)
        code, found, longest = platform.doctor(180)
        figures["seconds"]["doctor, cold"] = longest
        figures["green"] = {name: each["found"] for name, each in found.items()}
        report("deploy", figures)
        assert (code, _failed(found)) == (0, {}), found
        assert PASSWORD not in str(found) and "same clock" in found["dagster"]["found"]

        now = datetime.now(UTC)
        begun = time.monotonic()
        line = f"4200000001,1,1,101,1,3,2.50,0.1,{now:%Y-%m-%dT%H}:00:00Z\n"
        key = f"orders/dt={now:%Y-%m-%d}/hour={now:%H}/mine.csv"
        platform.aws("s3").put_object(Bucket="landing", Key=key, Body=(_LINE + line).encode())
        lake = open_lake(_settings(platform))

        def loaded() -> None:
            assert lake.table_exists("core.orders")
            assert lake.load_table("core.orders").scan("order_id = 4200000001").to_arrow().num_rows == 1

        eventually(loaded, seconds=600, every=1)
        figures["seconds"]["first file to row"] = round(time.monotonic() - begun, 1)
        leftovers = [name for (name,) in lake.list_namespaces() if name.startswith("tidemark_doctor")]
        kept = platform.aws("s3").list_objects_v2(Bucket="lake", Prefix="warehouse/tidemark_doctor").get("KeyCount")
        assert (leftovers, kept) == ([], 0)

        def named(what: str, expected: set[str], seconds: int = 60, **more: str) -> None:
            code, found, longest = platform.doctor(seconds, **more)
            figures["named"][what] = _failed(found)
            report("deploy", figures)
            assert code == 1 and set(_failed(found)) == expected, (what, found)
            assert all(each["remedy"] for each in found.values() if each["verdict"] != "ok")
            assert longest <= seconds + 5

        spark = {"spark", "spark job", "spark workers"}
        named("no such bucket", {"landing bucket"}, TIDEMARK_LANDING_BUCKET="elsewhere")
        named("no such queue", {"queue elsewhere"}, TIDEMARK_EVENTS_QUEUE="elsewhere")
        named("another password", {"catalog", "spark job"}, TIDEMARK_CATALOG_URI=platform.environment[
            "TIDEMARK_CATALOG_URI"].partition("password=")[0] + "password=wrong")  # fmt: skip
        named("another password of Dagster", {"dagster"}, DAGSTER_PG_PASSWORD="wrong")
        for number in (1, 2):
            platform.kill(f"worker-{number}", signal.SIGSTOP)
        named("workers hang", spark, 40)
        for number in (1, 2):
            platform.kill(f"worker-{number}", signal.SIGCONT)
        platform.kill("spark", signal.SIGSTOP)
        named("Spark hangs", spark, 30)
        platform.kill("spark")
        named("Spark is gone", spark)
        platform.kill("cloud", signal.SIGSTOP)
        sqs = {name for name in figures["green"] if name.startswith("queue ")}
        named("S3 and SQS hang", {"landing bucket", "catalog", *sqs, *spark}, 40)
        refused = platform.tidemark("status", SPARK_REMOTE="")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1) and "SPARK_REMOTE" in refused.stderr
