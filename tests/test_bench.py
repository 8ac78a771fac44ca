"""Latency and messages are measured, with one round on a catalog and queues in this process; the rest is built.

The whole command runs in `tests.proof.test_bench`.
"""

import csv
import io
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from bench import latency, messages, throughput
from bench.contestants import Contestant
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.notification_queue import FakeMessageSource, Message
from tests.checkout import CHECKOUT

CONTESTANTS = ("tidemark", "stock")


@pytest.mark.parametrize("name", ["stock", "tuned"])
def test_the_definitions_of_a_baseline_load(name: str, tmp_path: Path) -> None:
    names = ("LANDING_BUCKET", "READINGS_QUEUE", "ALERTS_QUEUE", "CATALOG_URI", "WAREHOUSE")
    environment = os.environ | {f"TIDEMARK_{each}": "x" for each in names} | {"DAGSTER_HOME": str(tmp_path)}
    code = f"from bench.{name}.definitions import defs; print(len(list(defs.resolve_all_asset_keys())))"
    ended = subprocess.run([sys.executable, "-c", code], env=environment, cwd=CHECKOUT, capture_output=True, text=True)
    assert ended.returncode == 0 and int(ended.stdout) > 0, ended.stderr[-2_000:]


def test_the_contestants_of_the_throughput_are_built_for_each_table(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        found = throughput._contestants(Settings(state_dir=tmp_path), None, instance)
    assert {table: {*by} for table, by in found.items()} == {
        "core/orders": {"tidemark", "script", "naive"},
        "marts/sales_daily": {"tidemark", "script"},
    }


class Committing:
    """An S3 client whose files are in the bucket's table at once."""

    def __init__(self, catalogs: dict[str, Catalog], quantity: dict[str, int]) -> None:
        self._catalogs, self._quantity = catalogs, quantity

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        read = list(csv.DictReader(io.StringIO(Body.decode())))
        times = [datetime.fromisoformat(line["ordered_at"]) for line in read]
        rows = {
            "hour": pa.array([at.replace(minute=0, second=0) for at in times], pa.timestamp("us", "UTC")),
            "order_id": pa.array([int(line["order_id"]) for line in read], pa.int64()),
            "line_number": pa.array([int(line["line_number"]) for line in read], pa.int64()),
            "quantity": pa.array([int(line["quantity"]) + self._quantity.get(Bucket, 0) for line in read], pa.int64()),
            "source_file": pa.array([Key] * len(read), pa.string()),
        }
        table = self._catalogs[Bucket].create_table_if_not_exists("core.orders", pa.table(rows).schema)
        table.append(pa.table(rows))


@pytest.fixture
def catalogs(tmp_path: Path) -> dict[str, Catalog]:
    made = {}
    for name in CONTESTANTS:
        folder = tmp_path / name
        folder.mkdir()
        made[name] = load_catalog(name, type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        made[name].create_namespace("core")
    return made


def test_latency_is_measured_of_contestants_that_have_the_same_rows(catalogs: dict[str, Catalog]) -> None:
    contestants = [Contestant(name, name, catalog) for name, catalog in catalogs.items()]
    found = latency.measure(contestants, Committing(catalogs, {}), rounds=1, warm_up=False)
    assert found["contestants"].keys() == set(CONTESTANTS) and found["rows in each table"] == latency._LINES
    assert all(figures["median"] > 0 and figures["n"] == 1 for figures in found["contestants"].values())


def test_latency_of_contestants_that_have_other_rows_is_no_figure(catalogs: dict[str, Catalog]) -> None:
    contestants = [Contestant(name, name, catalog) for name, catalog in catalogs.items()]
    with pytest.raises(AssertionError, match="stock has different rows"):
        latency.measure(contestants, Committing(catalogs, {"stock": 1}), rounds=1, warm_up=False)


class Alerting(FakeMessageSource):
    """Gives each reading as an alert, a moment later."""

    def receive(self, wait_seconds: int) -> list[Message]:
        time.sleep(0.02)
        return super().receive(wait_seconds)


def test_messages_are_measured_from_the_reading_to_the_alert() -> None:
    queues: dict[str, Any] = {name: Alerting() for name in CONTESTANTS}
    listeners = [messages.Listener(name, queue, queue) for name, queue in queues.items()]
    found = messages.measure(listeners, rounds=1, warm_up=False)
    assert found["contestants"].keys() == set(CONTESTANTS)
    assert all(figures["median"] > 0 and figures["n"] == 1 for figures in found["contestants"].values())
