"""From a code location's assets, feeds and tables to its Dagster definitions: sensors, checks, schedules, resources."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg

from pipelines.tidemark.asset_page import with_pages
from pipelines.tidemark.engine.condition import with_automation
from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.execution.io_manager import iceberg_io_manager
from pipelines.tidemark.execution.load_asset import LakehouseResource
from pipelines.tidemark.execution.watermark import InputArrivals
from pipelines.tidemark.feed_partitions import require_partitions_of_feeds
from pipelines.tidemark.lakehouse.tables import Table
from pipelines.tidemark.resources.aws import ImpatientS3, LandingResource, QueueResource
from pipelines.tidemark.resources.spark import SparkResource
from pipelines.tidemark.sensors.automation import automation_sensors
from pipelines.tidemark.sensors.catch_up import catch_up_sensor
from pipelines.tidemark.sensors.contracts import contract_checks, contract_sensor
from pipelines.tidemark.sensors.landing import landing_sensor
from pipelines.tidemark.sensors.reconcile import reconcile_schedules
from pipelines.tidemark.sensors.source_checks import dead_letters, landing_checks, notifications
from pipelines.tidemark.sensors.streams import streams_sensor
from pipelines.tidemark.settings import CHECKOUT, Settings
from pipelines.tidemark.sources.feed import Feed
from pipelines.tidemark.streams.checks import stream_check
from pipelines.tidemark.streams.deliveries import Deliveries
from pipelines.tidemark.streams.stream import Stream
from pipelines.tidemark.table_partitions import require_equal_partitions


class ComponentHoldsMore(Terminal):
    """A component gives something that is no asset and no check, which nothing would take over."""


def assets_in(*packages: ModuleType) -> list[Any]:
    """Every asset and asset check that the modules of the packages hold, and what their `defs.yaml` files give.

    Raises:
        ComponentHoldsMore: a component gives jobs, schedules, sensors or resources as well.
    """
    return [found for package in packages for found in _assets_in(package)]


def _assets_in(package: ModuleType) -> list[Any]:
    root = Path(package.__path__[0])
    if not any(root.rglob("defs.yaml")):  # the other way takes Dagster a second more
        checks = dg.load_asset_checks_from_package_module(package)
        return [*dg.load_assets_from_package_module(package, include_specs=True), *checks]
    found = dg.ComponentTree.from_module(package, project_root=CHECKOUT).build_defs()
    if more := [name for name in ("jobs", "schedules", "sensors", "resources") if getattr(found, name)]:
        raise ComponentHoldsMore(
            f"the components below {package.__name__} give {', '.join(more)}: take only assets and checks from them, "
            "and put the others into pipelines/definitions.py (dg.Definitions.merge)"
        )
    return [*(found.assets or ()), *(found.asset_checks or ())]


def build_definitions(
    settings: Settings,
    assets: Iterable[Any],
    feeds: Sequence[Feed],
    tables: Iterable[Table],
    streams: Sequence[Stream | Deliveries] = (),
    **overrides: Any,
) -> dg.Definitions:
    """The definitions of a code location, in one deployment.

    Args:
        assets: Everything `dg.Definitions` takes as an asset or an asset check, as `assets_in` finds it; each asset
            gets its automation from its contract and graph.
        feeds: What lands in the bucket; each has a source asset `raw/<name>` among the assets.
        tables: Every table an asset returns or loads, by name `<namespace>.<table>` for the asset key of these parts.
        streams: Messages that are kept as they come, and deliveries that a message completes; the asset that stands for
            one has the key of its table.
        overrides: Resources to put in the place of `landing`, `events_queue`, `spark`, `lakehouse` or `io_manager`,
            or to add.

    Raises:
        PartitionsDiffer: a table says otherwise than its asset which partition a row is in, or an asset is cut into
            others than the files of its feed.
    """
    by_name = {table.name: table for table in tables}
    aws: dict[str, Any] = {"endpoint_url": settings.aws_endpoint_url, "region_name": settings.aws_region}
    landing = LandingResource(s3=ImpatientS3(**aws), bucket=settings.landing_bucket)
    spark = SparkResource()
    resources = {
        "landing": landing,
        "events_queue": QueueResource(queue=settings.events_queue, **aws),
        "spark": spark,
        "lakehouse": LakehouseResource(spark=spark, landing=landing),
        "io_manager": iceberg_io_manager(by_name, InputArrivals),
    }
    assets = list(assets)
    if not adapter.is_loaded_for_a_run():  # there nobody looks at a page, and the code server has looked at the rest
        require_equal_partitions(assets, by_name)
        require_partitions_of_feeds(assets, feeds, by_name)
        assets = with_pages(assets, by_name, settings)
    every = with_automation(assets)
    automated = [each for each in every if not isinstance(each, dg.AssetChecksDefinition)]
    own = [each for each in every if isinstance(each, dg.AssetChecksDefinition)]
    delivered = [stream.feed_of("any") for stream in streams if isinstance(stream, Deliveries)]
    kept = [stream for stream in streams if isinstance(stream, Stream)]
    of_sources = [*landing_checks(feeds, settings.start_date), dead_letters(), *map(stream_check, kept)]
    checks = [*own, *contract_checks(automated), *with_automation(of_sources)]
    return dg.Definitions(
        assets=[*automated, notifications()],
        asset_checks=checks,
        sensors=[
            landing_sensor(feeds, settings.start_date, delivered),
            *automation_sensors([*automated, *checks]),
            catch_up_sensor(),
            contract_sensor(),
            *([streams_sensor(streams)] if streams else []),
        ],
        schedules=reconcile_schedules(feeds, settings.start_date),
        resources=resources | overrides,
        # A step is a Spark job somewhere else: a process of its own for it would only cost its start.
        executor=dg.in_process_executor,
    )
