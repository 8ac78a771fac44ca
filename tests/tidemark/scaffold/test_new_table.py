"""From a table to the modules of one that is computed from it: they load as they are, fit together, and count right."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, ByKey, Table, build_definitions, load_settings
from dagster_tidemark.scaffold.python_text import NoModule
from dagster_tidemark.scaffold.table_modules import BY, NoInput, table_modules
from tests.tidemark.scaffold.test_new_feed import is_tidy

TRIPS = Table(
    "core.trips",
    {"hour": "timestamp", "trip_id": "bigint", "station": "string", "began_at": "timestamp"} | LINEAGE,
    partitioned_by="hour",
    row_key=("hour", "trip_id"),
)
STATIONS = Table("core.stations", {"station": "string", "opened": "date"} | LINEAGE, row_key=("station",))
WEATHER = Table(
    "core.weather", {"region": "string", "rain": "double"}, row_key=("region",), partitioned_by=ByKey("region")
)
PARTITIONS = """
import dagster as dg
HOURS = dg.HourlyPartitionsDefinition("2026-09-28-00:00", end_offset=1)
DAYS = dg.DailyPartitionsDefinition("2026-09-28", end_offset=1)
WEEKS = dg.WeeklyPartitionsDefinition("2026-09-28", day_offset=1, end_offset=1)
MONTHS = dg.MonthlyPartitionsDefinition("2026-09-01", end_offset=1)
"""
HOUR = datetime(2026, 10, 7, 23, tzinfo=UTC).replace(tzinfo=None)
EXPECTED = {
    "hour": HOUR,
    "day": date(2026, 10, 7),
    "week": date(2026, 10, 5),
    "month": date(2026, 10, 1),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"of_{tmp_path.name}"
    for room in ("", "schemas", "transforms", "assets", "assets/marts"):
        (tmp_path / name / room).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / room / "__init__.py").touch()
    (tmp_path / name / "partitions.py").write_text(PARTITIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[module]


def written(folder: Path, package: str, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        (folder / package / path).write_text(text)


@pytest.mark.parametrize("by", BY)
def test_new_table_modules_pass_ruff_unchanged(by: str, tmp_path: Path) -> None:
    wide = {f"column_with_a_name_that_is_long_{n}": "string" for n in range(5)}
    trips = dataclasses.replace(TRIPS, columns=dict(TRIPS.columns) | wide)
    for key in (("station",), tuple(wide)):
        is_tidy(table_modules("trips_by_stations_of_all_kinds", trips, by, key, package="pipelines").values(), tmp_path)


@pytest.mark.parametrize("by", BY)
def test_new_table_modules_load_and_their_transform_counts_rows(
    package: str, tmp_path: Path, spark: SparkSession, by: str
) -> None:
    written(tmp_path, package, table_modules("busy", TRIPS, by, ("station",), package=package))
    table = import_module(f"{package}.schemas.busy").BUSY
    asset = import_module(f"{package}.assets.marts.busy").busy
    source = dg.AssetSpec(["core", "trips"], partitions_def=import_module(f"{package}.partitions").HOURS)
    graph = build_definitions(load_settings(), [source, asset], (), [TRIPS, table]).resolve_asset_graph()
    assert graph.get(dg.AssetKey(["marts", "busy"])).parent_keys == {dg.AssetKey(["core", "trips"])}
    rows = [(HOUR, 1, "a", HOUR), (HOUR, 2, "a", HOUR), (HOUR, 3, None, HOUR)]
    trips = spark.createDataFrame(rows, "hour timestamp, trip_id bigint, station string, began_at timestamp")
    counted = asset.op.compute_fn.decorated_fn(trips)
    assert counted.columns == list(table.columns)
    found = {(row.station, row[by] if by != "none" else None, row["rows"]) for row in counted.collect()}
    assert found == {("a", EXPECTED.get(by), 2), (None, EXPECTED.get(by), 1)}


def test_table_of_an_unpartitioned_input_can_be_grouped_by_its_time_column() -> None:
    texts = table_modules("opened", STATIONS, "month", (), package="shop")
    assert 'F.date_trunc("MONTH", "opened")' in texts["transforms/opened.py"]
    assert "AssetIn" not in texts["assets/marts/opened.py"], "there is nothing to map"


@pytest.mark.parametrize(
    ("name", "source", "by", "key", "error", "said"),
    [
        ("My Table", TRIPS, "day", (), NoModule, "a-z, 0-9 and _"),
        ("busy", TRIPS, "day", ("city",), NoInput, "has no column city; it has hour, trip_id"),
        ("busy", WEATHER, "day", (), NoInput, "no time column to partition by day"),
        ("busy", STATIONS, "hour", (), NoInput, "no time column to partition by hour"),
        ("busy", TRIPS, "none", (), NoInput, "give --key, --by, or both"),
    ],
)
def test_invalid_new_table_options_are_refused_with_the_reason(
    name: str, source: Table, by: str, key: tuple[str, ...], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        table_modules(name, source, by, key, package="shop")
