"""The step of docs/feeds.md for a new feed, followed on a copy of the project: a file of it becomes a table."""

import os
import shutil
from pathlib import Path

import boto3

from dagster_tidemark.settings import Settings
from tests import pages
from tests.checkout import CHECKOUT
from tests.warm_python import run_python

_DAY = "2026-10-01"
_LOAD = f"""
import dagster as dg, pipelines
from pathlib import Path
from pipelines.definitions import defs
assert Path(pipelines.__file__).parents[1] == Path.cwd(), "not the copy"
key = dg.AssetKey(["core", "returns"])
assets = [a for a in defs.assets if isinstance(a, dg.AssetsDefinition) and key in a.keys]
with dg.DagsterInstance.ephemeral() as instance:
    result = dg.materialize(assets, partition_key={_DAY!r}, resources=defs.resources, instance=instance)
assert result.success
from pyiceberg.catalog import load_catalog
print(load_catalog("lake").load_table("core.returns").scan().to_arrow().to_pylist())
"""


def test_feeds_page_step_creates_a_feed_that_loads_a_table(
    spark_server: Settings, cloud: Settings, tmp_path: Path
) -> None:
    shutil.copytree(CHECKOUT / "pipelines", tmp_path / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
    assert pages.written(tmp_path, pages.page("feeds.md")) == ["pipelines/feeds/returns.py"]
    key = f"returns/dt={_DAY}/hand written+ü.csv"
    body = f"returned_at,order_id,line_number,remark\n{_DAY}T08:00,7,1,too late\n2026-10-02T08:00,8,1,wrong day\n"
    boto3.client("s3", **cloud.aws_options()).put_object(Bucket=cloud.landing_bucket, Key=key, Body=body.encode())

    environment = os.environ | cloud.exports() | {"PYTHONPATH": str(tmp_path), "TIDEMARK_PROJECT": str(tmp_path)}
    done = run_python(["-c", _LOAD], cwd=tmp_path, env=environment, timeout=180)

    said = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]  # no Java stack
    assert done.returncode == 0, "\n".join(said[-40:])
    rows = done.stdout.splitlines()[-1]
    assert "'order_id': 7" in rows
    assert f"'source_file': '{key}'" in rows
    assert "'order_id': 8" not in rows, "the rule turns it away"
