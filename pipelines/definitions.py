"""Assembles the code location, and does nothing else."""

import warnings
from typing import Any

import dagster as dg

# Observable sources and backfill policies are in beta and used knowingly; said once for each asset by every run,
# it would drown what matters. It has to stand before the assets are imported.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

from pipelines import feeds
from pipelines.assets import core, marts, raw
from pipelines.automation.arrivals import InputArrivals
from pipelines.automation.automation_sensors import automation_sensors
from pipelines.automation.catch_up import catch_up_sensor
from pipelines.automation.condition import with_automation
from pipelines.automation.landing import landing_sensor
from pipelines.automation.reconcile import reconcile_schedules
from pipelines.checks.contract import contract_checks, contract_sensor
from pipelines.checks.landing import dead_letters, landing_checks, notifications
from pipelines.lakehouse.io_manager import iceberg_io_manager
from pipelines.resources.aws import ImpatientS3, LandingResource, QueueResource
from pipelines.resources.lakehouse import LakehouseResource
from pipelines.resources.spark import SparkResource
from pipelines.schemas import TABLES
from pipelines.settings import Settings, load_settings


def build_definitions(settings: Settings, **overrides: Any) -> dg.Definitions:
    """The code location of a deployment.

    Args:
        overrides: Resources to put in the place of those named here.
    """
    aws: dict[str, Any] = {"endpoint_url": settings.aws_endpoint_url, "region_name": settings.aws_region}
    landing = LandingResource(s3=ImpatientS3(**aws), bucket=settings.landing_bucket)
    spark = SparkResource()
    resources = {
        "landing": landing,
        "events_queue": QueueResource(queue=settings.events_queue, **aws),
        "spark": spark,
        "lakehouse": LakehouseResource(spark=spark, landing=landing),
        "io_manager": iceberg_io_manager(TABLES, InputArrivals),
    }
    assets = with_automation(
        [
            *dg.load_assets_from_package_module(raw),
            *dg.load_assets_from_package_module(core),
            *dg.load_assets_from_package_module(marts),
        ]
    )
    of_sources = [*landing_checks(feeds.FEEDS, settings.start_date), dead_letters()]
    checks = [*contract_checks(assets), *with_automation(of_sources)]
    return dg.Definitions(
        assets=[*assets, notifications()],
        asset_checks=checks,
        sensors=[
            landing_sensor(feeds.FEEDS, settings.start_date),
            *automation_sensors([*assets, *checks]),
            catch_up_sensor(),
            contract_sensor(),
        ],
        schedules=reconcile_schedules(feeds.FEEDS, settings.start_date),
        resources=resources | overrides,
        # A step is a Spark job somewhere else: a process of its own for it would only cost its start.
        executor=dg.in_process_executor,
    )


defs = build_definitions(load_settings())
