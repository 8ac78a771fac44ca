"""Readings, hot spots and alerts on a real Spark server and real tables, judged by DuckDB and an oracle of episodes."""

import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import Table
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams import rejected_messages
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.decode import Fault
from dagster_tidemark.streams.stream_declaration import StreamContext
from pipelines.definitions import defs
from pipelines.schemas import alerts, core, marts, raw
from pipelines.streams.readings import READINGS
from tests.grocer_code import resources
from tests.oracle import assert_same, expected_of_messages
from tests.tidemark.streams.episodes_oracle import episodes

# Dagster of its own nested resources.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")

START = datetime(2026, 10, 5, 6, tzinfo=UTC)
HOURS = [f"2026-10-05-{hour:02}:00" for hour in range(6, 24)]


@dataclass
class Lake:
    """The grocer's tables, and runs on them."""

    spark: SparkSession
    settings: Settings
    instance: dg.DagsterInstance

    def run(self, asset: str, *hours: str) -> dg.AssetMaterialization:
        assets = [a for a in defs.assets or () if isinstance(a, dg.AssetsDefinition | dg.AssetSpec)]
        names = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
        tags = dict(zip(names, (hours[0], hours[-1]), strict=True)) if hours else {}
        done = dg.materialize(
            assets, selection=[asset], tags=tags, resources=resources(self.settings), instance=self.instance
        )
        assert done.success
        return done.asset_materializations_for_node(asset.replace("/", "__"))[-1]

    def receive(self, messages: Sequence[dict[str, Any]]) -> None:
        """As a shift commits them."""
        table = Appendable(open_lake(self.settings), raw.READINGS)
        table.commit(TableCommit(rows_of(table.schema, messages)))

    def table(self, table: Table) -> pa.Table:
        return self.spark.table(table.identifier).toArrow()

    def standing(self) -> dict[tuple[str, datetime], str]:
        """By sensor and start the id of each alert that stands."""
        rows = [row for row in self.table(alerts.COLD_CHAIN).to_pylist() if row["retracted_at"] is None]
        return {(row["device_id"], row["episode_started_at"]): row["alert_id"] for row in rows}

    def expected(self, lasting: timedelta = timedelta(0)) -> set[tuple[str, datetime]]:
        """Sensor and start of each episode that is worth an alert, by what was read."""
        degrees: dict[str, dict[datetime, float]] = defaultdict(dict)
        for row in expected_of_messages(self.table(raw.READINGS))["core.readings"].to_pylist():
            degrees[row["device_id"]][row["read_at"].replace(tzinfo=UTC)] = row["temperature_c"]
        spans = [(device, *span) for device, read in degrees.items() for span in episodes(read)]
        return {(device, first) for device, first, last in spans if last - first >= lasting}


def messages(seed: int, count: int) -> list[dict[str, Any]]:
    """Readings of three sensors, some of them twice with other values."""
    dice, made = random.Random(seed), []
    for number in range(count):
        read_at = START + timedelta(minutes=2.5 * dice.randrange(360))
        made.append(
            {
                "hour": read_at.replace(minute=0, second=0, microsecond=0),
                "device_id": dice.choice("abc"),
                "store_id": dice.randrange(3),
                "read_at": read_at,
                "temperature_c": dice.choice((5.9, 6.0, 8.0, 8.1, 9.0, 9.0, 9.0)),
                "door_open": dice.choice((True, None)),
                "message_id": f"{seed}/{number}",
                "message_source": "sqs:cold-chain-readings",
                "sent_at": read_at + timedelta(seconds=dice.randrange(3)),
            }
        )
    return made


@pytest.fixture(scope="module")
def lake(spark_server: Settings, spark: SparkSession) -> Iterator[Lake]:
    environment = {name: os.environ.get(name) for name in spark_server.exports()}
    os.environ.update(spark_server.exports())
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(spark, spark_server, instance)
    for name, value in environment.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_messages_are_computed_into_readings_hot_spots_and_alerts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.receive(messages(1, 500))
    lake.run("core/readings", HOURS[0], HOURS[-1])
    lake.run("marts/hot_spots", HOURS[0], HOURS[-1])
    expected = expected_of_messages(lake.table(raw.READINGS))
    assert_same(core.READINGS.name, expected["core.readings"], lake.table(core.READINGS))
    assert_same(marts.HOT_SPOTS.name, expected["marts.hot_spots"], lake.table(marts.HOT_SPOTS))

    said = lake.run("alerts/cold_chain").metadata
    standing = lake.standing()
    assert standing.keys() == lake.expected() and len(standing) > 10
    assert said["raised"].value == len(standing) == said["dagster/row_count"].value
    again = lake.run("alerts/cold_chain").metadata
    assert (again["raised"].value, again["moved"].value, again["retracted"].value) == (0, 0, 0)
    assert [again[name] for name in ("tidemark/content", "snapshot id")] == [
        said[name] for name in ("tidemark/content", "snapshot id")
    ]

    # A shift goes on from it, and it from what the shift has done, though core/readings knows nothing of it yet.
    lake.receive(messages(2, 60))
    assert isinstance(READINGS.reaction, Alerting)
    place = StreamContext(lake.settings, open_lake(lake.settings), READINGS)
    Alerts(READINGS.reaction, place, lambda: pytest.fail("nothing is sent")).react(pa.table({}))
    followed = lake.standing()
    assert followed.keys() == lake.expected() != standing.keys()
    lake.run("alerts/cold_chain")
    assert lake.standing() == followed

    # Another rule: no worker of Spark goes on with the old one.
    monkeypatch.setattr("pipelines.transforms.cold_chain.LASTS", timedelta(minutes=25))
    said = lake.run("alerts/cold_chain").metadata
    left = lake.standing()
    assert left.keys() == lake.expected(timedelta(minutes=25)) < followed.keys()
    assert left.items() < followed.items(), "what is still an episode keeps its alert"
    assert said["retracted"].value == len(followed) - len(left)
    rows = lake.table(alerts.COLD_CHAIN).to_pylist()
    assert {row["retracted_in"] for row in rows if row["retracted_in"]} <= {2, 3}


def test_message_failing_the_cold_chain_rule_keeps_the_other_alerts(lake: Lake) -> None:
    lake.receive(messages(4, 60))
    lake.run("alerts/cold_chain")
    before = lake.standing()
    lake.receive([messages(3, 1)[0] | {"temperature_c": None, "message_id": "poison", "device_id": "broken"}])
    assert isinstance(READINGS.reaction, Alerting)
    catalog, refused = open_lake(lake.settings), list[str]()

    def refuse(faults: Sequence[Fault]) -> None:
        refused.extend(fault.record.message_id for fault in faults)
        rejected_messages.enter(catalog, READINGS.asset, faults, (), "code-1")

    place = StreamContext(lake.settings, catalog, READINGS, refuse)
    Alerts(READINGS.reaction, place, lambda: pytest.fail("nothing is sent")).react(pa.table({}))
    lake.run("alerts/cold_chain")
    assert (refused, lake.standing()) == (["poison"], before)
