"""A table of one deployment follows a table of another: listener, real queue, sensor, planner."""

import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import AssetEvents, PublishTo, build_definitions, listener
from dagster_tidemark.engine.doubts import LOOK_SECONDS, Watched, doubts
from dagster_tidemark.settings import Settings

DAY = "2026-10-01"
DAYS = dg.DailyPartitionsDefinition("2026-10-01", end_date="2026-10-03")


@dataclass
class Deployment:
    """A code location on an instance of its own, whose sensors are ticked by hand."""

    instance: dg.DagsterInstance
    defs: dg.Definitions
    cursors: dict[str, str | None] = field(default_factory=dict)

    def tick(self, name: str) -> Any:
        repository = self.defs.get_repository_def()
        sensor = repository.get_sensor_def(name)
        given = {name: self.defs.resources[name] for name in sensor.required_resource_keys}  # type: ignore[index]
        with dg.build_sensor_context(
            self.instance, self.cursors.get(name), repository_def=repository, resources=given
        ) as context:
            result = sensor.evaluate_tick(context)
        self.cursors[name] = result.cursor
        return result


@dg.asset(key_prefix="rates", partitions_def=DAYS)
def daily(context: dg.AssetExecutionContext) -> None:
    pass


@dg.asset(
    key_prefix="sales",
    partitions_def=DAYS,
    deps=[["finance", "rates"]],
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=5)),
)
def converted() -> None:
    pass


def test_table_follows_a_table_of_another_deployment(cloud: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.exports().items():
        monkeypatch.setenv(name, value)
    queue = f"rates-{uuid.uuid4().hex[:8]}"
    to_sales = listener(assets=["rates/*"], name="to_sales")(PublishTo(queue, {"rates/daily": "finance/rates"}))
    rates = dg.AssetSpec(["finance", "rates"], partitions_def=DAYS)
    events = AssetEvents(queue, ["finance/rates"])
    with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other:
        finance = Deployment(one, build_definitions(cloud, [daily], [], [], listeners=[to_sales]))
        sales = Deployment(other, build_definitions(cloud, [rates, converted], [], [], asset_events=events))
        finance.tick("listener_to_sales")
        said = dg.AssetMaterialization(["rates", "daily"], partition=DAY, metadata={"extras": {"currencies": 31}})
        one.report_runless_asset_event(said)
        assert "called 1 times" in str(finance.tick("listener_to_sales").skip_message)
        assert "reported 1," in str(sales.tick("asset_events").skip_message)
        (request,) = sales.tick("catch_up").run_requests or sales.tick("automation").run_requests
        assert (request.partition_key, [key.to_user_string() for key in request.asset_selection]) == (
            DAY,
            ["sales/converted"],
        )
        # While the queue is not read, nobody knows whether the table is late.
        (seen,) = other.fetch_observations(dg.AssetKey(["finance", "rates"]), limit=5).records
        watched = Watched(cloud.code_location, reported=("finance/rates",))
        later = doubts(other, watched, seen.timestamp + LOOK_SECONDS + 5)
        assert "asset_events last checked its queue" in later.sources["finance/rates"].said
