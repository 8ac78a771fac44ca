"""docs/your-own-domain.md, followed in an empty folder: a new project, whose sample goes and a bike-share comes.

Then every table is what DuckDB makes of the files. Does not belong here: the library without the example of this
checkout (`tests.test_without_grocer`).
"""

import io
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import boto3
import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dagster_tidemark.settings import Settings
from tests import pages
from tests.conftest import JARS
from tests.parquet_files import parquet_of
from tests.warm_python import run_python

PAGE = pages.page("your-own-domain.md")

HOURS = ("2026-10-01-07:00", "2026-10-01-08:00", "2026-11-02-00:00")
REGIONS = ("north", "south")
STATIONS = [{"station_id": n, "name": f"Station {n}", "region": REGIONS[n % 2]} for n in range(1, 5)]
QUESTIONS = {
    "core.trips": ("trip_id, member, start_station_id, began_at AT TIME ZONE 'UTC'", "SELECT * FROM trips"),
    "core.stations": ("station_id, name, region", "SELECT station_id, name, region FROM stations"),
    "core.weather": (
        "day, city, rain_mm::DOUBLE",
        "SELECT * FROM (VALUES (DATE '2026-10-01', 'Paris', 1.5::DOUBLE), (DATE '2026-10-01', 'Rome', 0.25), "
        "(DATE '2026-10-02', 'Paris', 0.0), (DATE '2026-10-02', 'Rome', 0.25))",
    ),
    "marts.trips_monthly": (
        "month, start_station_id, rows",
        "SELECT date_trunc('month', began_at)::DATE, start_station_id, count(*) FROM trips GROUP BY ALL",
    ),
    "marts.trips_daily": (
        "day, start_station_id, rows",
        "SELECT began_at::DATE, start_station_id, count(*) FROM trips GROUP BY ALL",
    ),
    "marts.trips_by_region": (
        "region, day, trips",
        "SELECT region, began_at::DATE, count(*) FROM trips JOIN stations ON station_id = start_station_id "
        "GROUP BY ALL",
    ),
}
BUILD = f"""
import sys
import dagster as dg
import pyarrow.parquet as pq
from dagster import AssetKey
from bikes.definitions import defs

RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
def build(instance, key, first=None, last=None):
    assets = [a for a in defs.assets if isinstance(a, dg.AssetsDefinition)]
    chosen = dg.AssetSelection.assets(AssetKey(key.split("/")))
    tags = dict(zip(RANGE, (first, last or first))) if first else {{}}
    done = dg.materialize(assets, selection=chosen, tags=tags, resources=defs.resources, instance=instance)
    assert done.success, key

with dg.DagsterInstance.ephemeral() as instance:
    build(instance, "core/trips", {HOURS[0]!r}, {HOURS[-1]!r})
    build(instance, "core/stations")
    build(instance, "core/weather", "2026-10-01", "2026-10-02")
    build(instance, "marts/trips_monthly", "2026-10-01", "2026-11-01")
    build(instance, "marts/trips_daily", "2026-10-01", "2026-11-02")
    build(instance, "marts/trips_by_region", *{REGIONS!r})
from pyiceberg.catalog import load_catalog
lake = load_catalog("lake")
for name in sys.argv[2:]:
    pq.write_table(lake.load_table(name).scan().to_arrow(), sys.argv[1] + "/" + name + ".parquet")
"""


def trips(hour: str, first: int) -> pa.Table:
    began = datetime.strptime(hour, "%Y-%m-%d-%H:%M")
    numbers = range(first, first + 20)
    return pa.table(
        {
            "trip_id": pa.array(numbers, pa.int64()),
            "member": pa.array([n % 3 == 0 for n in numbers]),
            "start_station_id": pa.array([n % 5 for n in numbers], pa.int64()),
            "began_at": pa.array([began.replace(minute=n % 60) for n in numbers], pa.timestamp("us")),
        }
    )


def as_csv(table: pa.Table) -> bytes:
    target = io.BytesIO()
    pa.csv.write_csv(table, target)
    return target.getvalue()


def landed() -> dict[str, bytes]:
    """Object key to bytes."""
    files = {}
    for number, hour in enumerate(HOURS):
        day, _, of_day = hour.rpartition("-")
        folder = f"trips/dt={day}/hour={of_day[:2]}"
        files[f"{folder}/a.csv"] = as_csv(trips(hour, 1000 * number))
        files[f"{folder}/b.parquet"] = parquet_of(trips(hour, 1000 * number + 500))
    files["stations/latest.json"] = json.dumps(STATIONS, indent=2).encode()
    for day, rain in (("2026-10-01", 1.5), ("2026-10-02", 0.0)):
        files[f"weather/dt={day}/w.csv"] = f"city,rain_mm\nParis,{rain}\nRome,0.25\n".encode()
    return files


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project without its sample: what the page's first step leaves."""
    create, delete = (block.splitlines() for block in pages.blocks(pages.step(PAGE, 1), "sh"))
    assert create[1:] == ["cd bikes"]
    tidemark(tmp_path, create[0].removeprefix(".venv/bin/"))
    subprocess.run(["bash", "-euc", *delete], cwd=tmp_path / "bikes", check=True)
    return tmp_path / "bikes"


def tidemark(folder: Path, command: str) -> str:
    """Run a command of the page, and return its output."""
    name, *arguments = shlex.split(command)
    assert name == "tidemark"
    return run(folder, ["-c", "from dagster_tidemark.cli.app import main; main()", *arguments], quiet=True)


def environment_of(project: Path) -> dict[str, str]:
    """That of a shell in the project, with the jars of this one."""
    # pyspark sets SPARK_CONNECT_MODE_ENABLED, and children inherit it.
    ours = ("PYTEST_", "SPARK_", "TIDEMARK_")
    mine = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return mine | {"PYTHONPATH": str(project), "TIDEMARK_JARS_DIR": str(JARS)}


def run(project: Path, arguments: Sequence[str], settings: Settings | None = None, *, quiet: bool = False) -> str:
    """What Python prints in the project; where it is to be quiet, that and nothing else."""
    given = (
        {name: value for name, value in settings.exports().items() if name != "TIDEMARK_CODE_LOCATION"}
        if settings
        else {}
    )
    environment = environment_of(project) | given | {"TIDEMARK_PROJECT": str(project)}
    if not (project / "pyproject.toml").exists():
        del environment["TIDEMARK_PROJECT"]  # `tidemark init` makes it
    done = run_python(["-P", *arguments], cwd=project, env=environment, timeout=280)
    said = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]  # no Java stack
    assert done.returncode == 0, done.stdout[-2000:] + "\n".join(said[-40:])
    assert not (quiet and said), said
    return done.stdout


def check(project: Path) -> None:
    """Of the project's `make check` what is quick."""
    for command in ("ruff check .", "ruff format --check ."):
        run(project, ["-m", *command.split(), "--no-cache"])
    tidemark(project, "tidemark lock check")


def test_project_without_its_sample_is_an_empty_location(project: Path) -> None:
    run(project, ["-c", "from bikes.definitions import defs, ASSETS; assert not ASSETS; defs.get_repository_def()"])
    check(project)


def test_bike_share_project_created_by_commands_builds_correct_tables(
    project: Path, tmp_path: Path, spark_server: Settings, cloud: Settings
) -> None:
    files = landed()
    for name in ("trips", "stations", "weather"):
        key, body = next((key, body) for key, body in files.items() if key.startswith(name))
        (project / f"{name}{Path(key).suffix}").write_bytes(body)
    commands = [line for step in (2, 3) for line in pages.blocks(pages.step(PAGE, step), "sh")[0].splitlines()]
    assert len(commands) == 5
    for command in commands:
        tidemark(project, command)
    assert len(pages.written(project, pages.step(PAGE, 3))) == 4
    last, makes = pages.blocks(pages.step(PAGE, 5), "sh")[0].splitlines()
    assert makes == "make check"
    tidemark(project, last)
    check(project)
    s3 = boto3.client("s3", **cloud.aws_options())
    for key, body in files.items():
        s3.put_object(Bucket=cloud.landing_bucket, Key=key, Body=body)
    found = tmp_path / "found"
    found.mkdir()

    run(project, ["-c", BUILD, str(found), *QUESTIONS], cloud)

    compare(files, found)


def compare(files: dict[str, bytes], found: Path) -> None:
    """Every table against the files, by DuckDB."""
    lake = duckdb.connect()
    parts = [pa.csv.read_csv(io.BytesIO(body)) for key, body in files.items() if key.endswith("a.csv")]
    lake.register("csv_trips", pa.concat_tables(parts))
    lake.register(
        "parquet_trips",
        pa.concat_tables([pq.read_table(io.BytesIO(b)) for k, b in files.items() if k.endswith(".parquet")]),
    )
    lake.execute(
        "CREATE VIEW trips AS SELECT trip_id, member, start_station_id, CAST(began_at AS TIMESTAMP) AS began_at "
        "FROM csv_trips UNION ALL SELECT * FROM parquet_trips"
    )
    lake.register("stations", pa.Table.from_pylist(STATIONS))
    for name, (columns, question) in QUESTIONS.items():
        ours = lake.execute(f"SELECT {columns} FROM '{found}/{name}.parquet' ORDER BY ALL").fetchall()
        theirs = lake.execute(f"SELECT * FROM ({question}) ORDER BY ALL").fetchall()
        assert ours == theirs and ours, name
