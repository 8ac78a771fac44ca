"""Settings are read once, by the process, and handed down: two code locations in one process keep their own."""

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance

from dagster_tidemark import Feed, Table, build_definitions, feed_assets
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine import engine
from dagster_tidemark.lakehouse.table import LINEAGE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Grain
from dagster_tidemark.tags import CODE_OF_STREAMS
from tests.checkout import CHECKOUT
from tests.tidemark.streams import toy

LIBRARY = CHECKOUT / "dagster_tidemark"
# The public face names it, commands and services are processes, and to be killed is of a process, not of a location.
# A component's partitions begin with the start date, and Dagster loads components before `build_definitions`.
MAY_READ = ("cli/", "local/", "settings.py", "__init__.py", "failpoints.py", "components/attributes.py")


def test_settings_are_loaded_only_by_process_entry_points() -> None:
    readers = [
        str(path.relative_to(LIBRARY))
        for path in sorted(LIBRARY.rglob("*.py"))
        if re.search(r"^ *from .* import .*\bload_settings\b", path.read_text(), re.M)
    ]
    assert [path for path in readers if not path.startswith(MAY_READ)] == []


def location(name: str, **own: Any) -> tuple[Settings, dg.Definitions]:
    settings = Settings(code_location=name, landing_bucket=f"bucket-{name}", **own)
    feed = Feed(name="orders", prefix="orders/", columns={"id": "bigint"}, required=("id",), grain=Grain.DAY)
    table = Table(f"core.{name}", {"day": "date", "id": "bigint"} | LINEAGE, ("day", "id"), partitioned_by="day")
    days = dg.DailyPartitionsDefinition(settings.start_date.isoformat(), end_offset=1)
    promised = dg.FreshnessPolicy.time_window(timedelta(hours=10))
    assets = feed_assets(feed, table, partitions_def=days, freshness_policy=promised)
    pings = toy.stream(f"pings_{name}")
    stands_for = dg.AssetSpec(
        ["raw", f"pings_{name}"], partitions_def=dg.HourlyPartitionsDefinition("2026-09-28-00:00", end_offset=1)
    )
    return settings, build_definitions(settings, [*assets, stands_for], [feed], [table, pings.table], [pings])


@pytest.mark.proof
def test_two_code_locations_in_one_process_have_their_own_settings(tmp_path: Path) -> None:
    made = {
        "one": location("one", contract_scale=0.1, spark_remote="sc://one:15002", state_dir=tmp_path / "1"),
        "two": location("two", spark_remote="sc://two:15002", state_dir=tmp_path / "2", start_date=date(2026, 10, 5)),
    }
    with DagsterInstance.ephemeral() as instance:
        for name, (settings, defs) in [*made.items(), *made.items()]:
            resources: dict[str, Any] = dict(defs.resources or {})
            assert resources["spark"].settings.spark_remote == f"sc://{name}:15002"
            assert (resources["landing"].bucket, resources["landing"].start) == (f"bucket-{name}", settings.start_date)
            repository = defs.get_repository_def()
            for sensor in ("automation", "contracts", "streams"):
                context = dg.build_sensor_context(instance, repository_def=repository, last_sensor_start_time=1.0)
                repository.get_sensor_def(sensor).evaluate_tick(context)
            node = engine.engine_for(instance, repository.asset_graph).graph.nodes[f"core/{name}"]
            assert node.contract is not None
            assert vars(node.contract)["fail"] == 36_000 * settings.contract_scale, name
        codes = [instance_store.saved(instance, f"{CODE_OF_STREAMS}{name}") for name in made]
    assert all(codes)
