"""A program for an environment in which the packages of some extras are not installed. It prints what does not work.

Arguments: the extras that are installed. With `--blocked`, their packages cannot be imported although they are there.
"""

import importlib
import os
import pkgutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

PACKAGES = {
    "local": ("dagster_webserver", "moto", "platformdirs", "supervisor"),
    "kafka": ("confluent_kafka",),
    "metrics": ("prometheus_client",),
    "lineage": ("openlineage",),
    "production": ("dagster_postgres", "psycopg2"),
    "models": ("sklearn", "skops", "threadpoolctl"),
    "avro": ("fastavro",),
    "streams": (),
    "plan": (),
}
PARTS = {
    "local": ("dagster_tidemark.local.",),
    "kafka": ("dagster_tidemark.sources.kafka_",),
    "metrics": ("dagster_tidemark.cli.monitoring.server",),
    "lineage": (),
    "models": (),
    "avro": (),
    "production": (),
    "streams": (),
    "plan": (),
}
_LOCATION = """
import dagster as dg
from dagster_tidemark import LINEAGE, MESSAGE, Feed, Grain, Table, build_definitions, feed_assets, load_settings
from dagster_tidemark import table_asset
from dagster_tidemark.streams import Stream

DAYS = dg.DailyPartitionsDefinition("2026-10-05", end_offset=1)
FEED = Feed("trips", "trips/", Grain.DAY, {"trip_id": "bigint"}, required=("trip_id",))
TRIPS = Table("core.trips", {"day": "date", "trip_id": "bigint"} | LINEAGE, partitioned_by="day",
              row_key=("day", "trip_id"))
COUNTS = Table("marts.trips", {"day": "date"}, partitioned_by="day", row_key=("day",))

@table_asset(COUNTS, ins={"trips": "core/trips"}, partitions=DAYS)
def trips(trips):
    return trips.select("day").distinct()

PINGS = Table("raw.pings", {"shop": "bigint"} | MESSAGE, row_key=("message_id",))
STREAM = Stream(name="pings", table=PINGS, queue="pings", required=("shop",))

defs = build_definitions(load_settings(), [*feed_assets(FEED, TRIPS, partitions_def=DAYS), trips,
                         dg.AssetSpec(key=["raw", "pings"])], [FEED], [TRIPS, COUNTS, PINGS], [STREAM])
assert defs.resolve_asset_graph().get(dg.AssetKey(["marts", "trips"])).automation_condition
"""


def main(arguments: list[str]) -> int:
    """Print a line for each module and function of the rest that does not work."""
    there = {name for name in arguments if name in PACKAGES}
    missing = {package for extra in PACKAGES.keys() - there for package in PACKAGES[extra]}
    if "--blocked" in arguments:
        sys.modules |= dict.fromkeys(missing)  # type: ignore[arg-type]  # an import fails, a search finds nothing
    apart = tuple(part for extra in PARTS.keys() - there for part in PARTS[extra])
    failed = [*_modules_that_fail(apart), *_location_that_fails()]
    for line in failed:
        print(line)
    print(f"extras: {', '.join(sorted(there)) or 'none'}; {len(failed)} failed")
    return bool(failed)


def _modules_that_fail(apart: tuple[str, ...]) -> Iterator[str]:
    library = importlib.import_module("dagster_tidemark")
    for found in pkgutil.walk_packages(library.__path__, "dagster_tidemark."):
        if found.name.startswith(apart) or (".scaffold." in found.name and ".new_" not in found.name):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            yield f"{found.name} needs {error.name}"


def _location_that_fails() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text('[tool.tidemark]\npackage = "acme"\n')
        (Path(folder) / "acme").mkdir()
        (Path(folder) / "acme" / "__init__.py").touch()
        (Path(folder) / "acme" / "definitions.py").write_text(_LOCATION)
        sys.path.insert(0, folder)
        os.environ["TIDEMARK_PROJECT"] = folder
        try:
            importlib.import_module("acme.definitions")
        except ModuleNotFoundError as error:
            yield f"a code location needs {error.name}"
        else:
            yield from _commands_that_fail(folder)


def _commands_that_fail(folder: str) -> Iterator[str]:
    """Yield a line for each command of an operator that ends for want of a package. No service runs."""
    app = importlib.import_module("dagster_tidemark.cli.app").app
    # On a busy machine a check is still under way after its time. `doctor` then ends its process, which is this one.
    importlib.import_module("dagster_tidemark.doctor.checks").end_now = lambda code: None
    os.environ.update(DAGSTER_HOME=folder, TIDEMARK_STATE_DIR=folder, SPARK_REMOTE="sc://127.0.0.1:1")
    os.environ.update(AWS_ENDPOINT_URL="http://127.0.0.1:1", TIDEMARK_PORT_CLOUD="1")
    (Path(folder) / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    for command in ("spark-conf", "status --json", "plan --json", "reconcile --days 1", "doctor --seconds 5 --json"):
        done = CliRunner().invoke(app, command.split())
        said = f"{done.output} {done.exception!r}"
        if not (done.output or done.exit_code) or "No module named" in said or "ModuleNotFoundError" in said:
            yield f"tidemark {command} fails: {' '.join(said.split())[-300:]}"


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(exit_code)  # at an exit as usual, Python would wait for connections of checks
