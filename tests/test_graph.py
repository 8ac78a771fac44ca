"""The code location: what is in it, and that each part says what the house wants of it."""

import os
import subprocess
import sys

import dagster as dg
import pytest

from dagster_tidemark.lakehouse.partitioning import ByKey
from dagster_tidemark.lakehouse.table import LINEAGE, MESSAGE
from dagster_tidemark.streams import Stream
from pipelines import definitions
from pipelines.definitions import defs
from pipelines.feeds import FEEDS
from pipelines.partitions import DAYS, HOURS, WEEKS
from pipelines.streams import STREAMS

ASSETS = [
    "alerts/cold_chain",
    "core/customers",
    "core/orders",
    "core/prices",
    "core/readings",
    "marts/executive_rollup",
    "marts/hot_spots",
    "marts/margin_hourly",
    "marts/offer_reach",
    "marts/order_stats",
    "marts/sales_daily",
    "marts/sales_hourly",
    "marts/weekly_review",
    "ml/demand_features",
    "ml/demand_forecast",
    "ml/demand_model",
]
FILLED_BY_SHIFTS = sorted({"ml/scores", *(stream.asset for stream in STREAMS)})
OF_THE_LIBRARY = {"ops/incidents", "ops/landing_events", "ops/maintenance"}
"""Assets of tables that no run of an asset fills."""
GRAPH = defs.resolve_asset_graph()
TABLES = {table.name: table for table in definitions.TABLES}


def specs(prefix: str = "") -> list[dg.AssetSpec]:
    return [s for s in defs.resolve_all_asset_specs() if s.key.to_user_string().startswith(prefix)]


def test_grocer_has_exactly_the_expected_assets() -> None:
    built = [key.to_user_string() for key in GRAPH.materializable_asset_keys]
    assert sorted(built) == ASSETS


def test_every_external_grocer_asset_is_a_declared_source() -> None:
    # A misspelt upstream key becomes an external asset, and Dagster's own validation is content.
    sources = {key.to_user_string() for key in GRAPH.get_all_asset_keys()} - set(ASSETS)
    assert sources == {f"raw/{feed.name}" for feed in FEEDS} | {*OF_THE_LIBRARY, *FILLED_BY_SHIFTS}
    observed = sources - {*OF_THE_LIBRARY, *FILLED_BY_SHIFTS}
    assert observed == {key.to_user_string() for key in GRAPH.observable_asset_keys}


@pytest.mark.parametrize("name", FILLED_BY_SHIFTS)
def test_asset_written_by_shifts_has_description_and_columns(name: str) -> None:
    node = GRAPH.get(dg.AssetKey.from_user_string(name))
    table = TABLES[name.replace("/", ".")]
    assert node.description and node.description.startswith("One row per ")
    assert node.group_name == name.split("/")[0] and node.owners and "iceberg" in node.kinds
    assert {c.name: c.type for c in node.metadata["dagster/column_schema"].columns} == table.columns
    assert (node.partitions_def is None) == (table.partitioning is None or isinstance(table.partitioning, ByKey))


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_stream_asset_has_a_state_check_and_names_its_queue(stream: Stream) -> None:
    key = dg.AssetKey.from_user_string(stream.asset)
    assert dg.AssetCheckKey(key, "stream") in GRAPH.asset_check_keys
    page = GRAPH.get(key).metadata
    assert page["messages from"].startswith("sqs:") and stream.job in page["shifts"]
    assert "`stream`" in page["state of the stream"].value


@pytest.mark.parametrize("name", ASSETS)
def test_grocer_asset_has_all_required_metadata(name: str) -> None:
    node = GRAPH.get(dg.AssetKey.from_user_string(name))
    table = TABLES[name.replace("/", ".")]
    assert node.description and node.description.startswith("One row per ")
    assert node.group_name == name.split("/")[0]
    assert {"pyspark", "iceberg"} <= set(node.kinds)
    assert node.owners
    assert node.code_version
    assert node.automation_condition is not None
    columns = node.metadata["dagster/column_schema"].columns
    assert {c.name: c.type for c in columns} == table.columns
    if node.partitions_def is not None:
        assert node.partitions_def in (HOURS, DAYS, WEEKS)
        assert node.backfill_policy == dg.BackfillPolicy.single_run()
        assert {HOURS: "hour", DAYS: "day", WEEKS: "week"}[node.partitions_def] == table.partition_columns[0]


def test_every_table_belongs_to_an_asset_and_has_its_lineage_columns() -> None:
    assert sorted(TABLES) == sorted(name.replace("/", ".") for name in (*ASSETS, *FILLED_BY_SHIFTS))
    assert all(set(LINEAGE) <= set(TABLES[f"core.{feed.name}"].columns) for feed in FEEDS)
    assert all(set(MESSAGE) <= set(t.columns) for name, t in TABLES.items() if name.startswith("raw."))


def test_every_grocer_sensor_is_started_by_default() -> None:
    sensors = defs.get_repository_def().sensor_defs
    assert {s.name: s.default_status for s in sensors} == dict.fromkeys(
        ("landing", "automation", "catch_up", "contracts", "dead_runs", "incidents", "maintenance", "streams"),
        dg.DefaultSensorStatus.RUNNING,
    )


def test_every_grocer_schedule_is_started_by_default() -> None:
    schedules = defs.get_repository_def().schedule_defs
    assert {s.name: s.default_status for s in schedules} == dict.fromkeys(
        ("prune", "reconcile_all", "reconcile_recent"), dg.DefaultScheduleStatus.RUNNING
    )


def test_grocer_location_loads_without_network_and_credentials() -> None:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TIDEMARK_", "SPARK_"))}
    code = (
        "import socket\n"
        "def refuse(*_): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "from pipelines.definitions import defs\n"
        "defs.resolve_asset_graph()\n"
    )
    subprocess.run([sys.executable, "-c", code], env=bare, check=True, timeout=60)


def test_every_feed_asset_has_quarantine_and_removal_checks() -> None:
    loaded = {f"core/{feed.name}" for feed in FEEDS}
    names = {(key.asset_key.to_user_string(), key.name) for key in GRAPH.asset_check_keys}
    assert {(asset, name) for asset in loaded for name in ("quarantine", "removals")} <= names


def test_source_check_names_are_not_used_on_tables() -> None:
    names: dict[str, set[str]] = {}
    of_streams = {dg.AssetKey.from_user_string(stream.asset) for stream in STREAMS}
    for key in GRAPH.asset_check_keys:
        # What turns messages away says so as what turns rows away does. A stream may be on a source or on a table.
        if key.asset_key not in of_streams or key.name not in ("quarantine", "stream"):
            names.setdefault(key.asset_key.path[0], set()).add(key.name)
    assert names["raw"] == {"mass_removal", "misplaced"}
    assert not names["raw"] & (names["core"] | names["marts"] | names["ops"])


def test_every_column_of_every_table_has_a_comment() -> None:
    silent = [f"{table.name}.{c}" for table in definitions.TABLES for c in table.columns if not table.comment_on(c)]
    assert silent == []


def test_every_sensor_and_schedule_has_a_description() -> None:
    repository = defs.get_repository_def()
    silent = [each.name for each in (*repository.sensor_defs, *repository.schedule_defs) if not each.description]
    assert silent == []
