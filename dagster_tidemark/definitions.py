"""Dagster definitions of a code location: its assets and checks, with sensors, schedules and resources."""

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg

from dagster_tidemark import garbage_collector
from dagster_tidemark.asset_events.declared import AssetEvents, Listener
from dagster_tidemark.code_server_log import logged_in_one_line
from dagster_tidemark.component_declarations import ComponentDeclarations, declared_by, taken_over, without_pending
from dagster_tidemark.declaration_types import lists_of
from dagster_tidemark.discovery import is_leaving_out, modules_below, refusing
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.executor import executor_of
from dagster_tidemark.execution.io_manager import iceberg_io_manager
from dagster_tidemark.execution.lakehouse_resource import LakehouseResource
from dagster_tidemark.existing_location import handed_over, require_free_names, require_plain, selecting_as_before
from dagster_tidemark.incidents.channels.channel import Channel
from dagster_tidemark.incidents.expected import ExpectedArrival
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.location_parts import LocationParts, definitions_of
from dagster_tidemark.project_folder import project_root
from dagster_tidemark.resources.aws import ImpatientS3, LandingResource, QueueResource
from dagster_tidemark.resources.spark import SparkResource
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.s3_events import ReadsMessage
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.table_partitions import DeclarationRefused, keys_of, stored_by
from dagster_tidemark.tags import IO_MANAGER, PREFIX


class ComponentHoldsMore(Terminal):
    """A component defines more than assets and checks. Tidemark would drop the rest."""


@logged_in_one_line()
def assets_in(*packages: ModuleType) -> list[Any]:
    """Return every asset and asset check of the packages' modules and `defs.yaml` files.

    Raises:
        ComponentHoldsMore: a component also defines jobs, schedules, sensors or resources.
    """
    return [found for package in packages for found in _assets_in(package)]


def _assets_in(package: ModuleType) -> list[Any]:
    root = Path(package.__path__[0])
    if not any(root.rglob("defs.yaml")):  # building a component tree takes another second
        modules = modules_below(package)
        found = list[Any]()
        # If broken modules are left out, load module by module: two assets with one key must not exclude all others.
        for some in [[module] for module in modules] if is_leaving_out() else [modules]:
            with refusing(package.__name__):
                found += dg.load_assets_from_modules(some, include_specs=True)
                found += dg.load_asset_checks_from_modules(some)
        return list({id(each): each for each in found}.values())
    tree = dg.ComponentTree.from_module(package, project_root=project_root())
    given = dg.Definitions()
    with refusing(package.__name__):
        given = tree.build_defs()
    others = {name: getattr(given, name) for name in ("jobs", "schedules", "sensors")}
    if more := [name for name, of in (others | {"resources": without_pending(given.resources)}).items() if of]:
        raise ComponentHoldsMore(
            f"the components below {package.__name__} give {', '.join(more)}, but only assets and checks are "
            "taken from components: merge the others into the location's definitions (dg.Definitions.merge)"
        )
    return [*(given.assets or ()), *(given.asset_checks or ())]


@garbage_collector.paused()
@logged_in_one_line()
def build_definitions(
    settings: Settings,
    assets: Iterable[Any],
    feeds: Sequence[Feed],
    tables: Iterable[Table],
    streams: Sequence[Stream | Deliveries] = (),
    notify: Sequence[Channel] = (),
    expected: Sequence[ExpectedArrival] = (),
    asset_events: AssetEvents | None = None,
    listeners: Sequence[Listener] = (),
    reads_message: ReadsMessage | None = None,
    retention: timedelta | None = None,
    freshness_report: bool = False,
    **overrides: Any,
) -> dg.Definitions:
    """Return the definitions of a code location with Tidemark's assets only. For other locations see `extend`.

    Args:
        assets: Assets and asset checks, in any form that `dg.Definitions` takes; see `assets_in`. Each asset gets its
            automation from its contract and graph.
        feeds: Feeds of files in the bucket. The source asset `raw/<name>` of each must be among the assets. Feeds and
            tables of components are added.
        tables: Every table that an asset returns or loads. Its name is the parts of the asset's key, joined by dots.
        streams: Streams of messages, and file deliveries that a message announces as complete. The key of the asset of
            each has the parts of its table's name.
        notify: Channels that get messages about late and missing data: `Slack`, `PagerDuty`, `Webhook`, `Email`,
            `ContractQueue`, `ContractLog`.
        expected: Times by which sources should have data. Missing data opens an incident.
        asset_events: Queue with events of external assets, such as tables of other deployments.
        listeners: Functions that get the materializations of some assets; see `listener`.
        reads_message: Reads messages of the notification queue that list files in a form of their own. It gets the
            message, a parsed JSON object with numbers as text, and returns the keys of the files, or None.
        retention: Age of runs, events, check results and ticks that a schedule deletes, if no decision needs them, and
            of quarantine entries of files that are gone. Without it the laptop platform deletes them after 30 hours,
            and other deployments keep them.
        freshness_report: True for the asset `ops/freshness`: each day's lag of each asset with a contract.
        overrides: Resources to add, or to use in place of `landing`, `events_queue`, `spark`, `lakehouse` or
            `io_manager`.

    Raises:
        StreamRefused: two streams have the same name, table or queue.
        ChannelRefused: two channels have the same name.
        ExpectationRefused: an expected arrival names no asset.
        EventsRefused: `asset_events` names an asset that does not exist or is built here, or two listeners have the
            same name.
        SettingsError: a variable with the prefix `TIDEMARK_` is neither a setting nor read by a declaration.
        TooShort: `retention` is shorter than an hour.
        DeclarationRefused: a table and its asset, or an asset and the files of its feed, have different partitions, or
            a feed cannot be loaded into its table.
    """
    assets, tables, feeds, streams, notify = lists_of(
        settings, assets=assets, tables=tables, feeds=feeds, streams=streams, notify=notify
    )
    declared = declared_by(assets)
    tables, feeds = [*tables, *declared.tables], [*feeds, *declared.feeds]
    resources = _resources(settings, tables, spark="spark") | overrides
    # The library's own sensors, checks and assets find resources by prefixed names, which are the same everywhere.
    prefixed = {f"{PREFIX}{name}": resources[name] for name in ("landing", "events_queue", "lakehouse", "io_manager")}
    parts = LocationParts(
        settings=settings,
        assets=assets,
        feeds=feeds,
        tables=tables,
        declared=declared,
        streams=streams,
        notify=notify,
        expected=expected,
        asset_events=asset_events,
        listeners=listeners,
        reads_message=reads_message,
        retention=retention,
        freshness_report=freshness_report,
    )
    ours = definitions_of(parts)
    return dg.Definitions.merge(ours, dg.Definitions(resources=resources | prefixed, executor=executor_of(settings)))


@garbage_collector.paused()
@logged_in_one_line()
def extend(
    defs: dg.Definitions,
    settings: Settings,
    *,
    assets: Iterable[Any] = (),
    tables: Iterable[Table] = (),
    feeds: Sequence[Feed] = (),
    streams: Sequence[Stream | Deliveries] = (),
    notify: Sequence[Channel] = (),
    expected: Sequence[ExpectedArrival] = (),
    asset_events: AssetEvents | None = None,
    listeners: Sequence[Listener] = (),
    reads_message: ReadsMessage | None = None,
    retention: timedelta | None = None,
    freshness_report: bool = False,
) -> dg.Definitions:
    """Return the definitions of an existing code location with Tidemark's assets added.

    The location's conditions, IO managers, resources, executor, jobs, schedules and sensors stay unchanged. Its
    selections, such as `AssetSelection.all()`, exclude the added assets unless they name their keys. Only
    Tidemark's assets get its automation: the added assets, the assets of its components (`FeedComponent`,
    `TableComponent`), and assets in `defs` whose tables and feeds are given. Resources and sensors added here have the
    prefix `tidemark_`: a function requires `tidemark_lakehouse`, but `lakehouse` in a location of `build_definitions`.

    Args:
        assets: The assets and asset checks to add; see `build_definitions` for these and the other arguments.

    Raises:
        DeclarationRefused: an added asset has the key of an existing one, or stores its table with the location's IO
            manager; other errors as in `build_definitions`.
    """
    require_plain(defs)
    assets, tables, feeds, streams, notify = lists_of(
        settings, assets=assets, tables=tables, feeds=feeds, streams=streams, notify=notify
    )
    defs, assets = handed_over(defs, assets)
    added = declared_by(assets)
    tables, feeds = [*tables, *added.tables], [*feeds, *added.feeds]
    with refusing():
        _require_apart(assets, [*(defs.assets or ())], {table.name for table in tables})
    defs, taken, declared = taken_over(defs, tables, feeds)
    assets += taken
    tables, feeds = [*tables, *declared.tables], [*feeds, *declared.feeds]
    # Dagster makes the assets of some older integrations only after this: they have no keys yet.
    kinds = (dg.AssetsDefinition, dg.AssetSpec, dg.SourceAsset)
    theirs = [each for each in (*(defs.assets or ()), *(defs.asset_checks or ())) if isinstance(each, kinds)]
    resources = _resources(settings, tables, spark=f"{PREFIX}spark")
    parts = LocationParts(
        settings=settings,
        assets=assets,
        feeds=feeds,
        tables=tables,
        declared=ComponentDeclarations({**added.by_asset, **declared.by_asset}),
        streams=streams,
        notify=notify,
        expected=expected,
        asset_events=asset_events,
        listeners=listeners,
        reads_message=reads_message,
        retention=retention,
        freshness_report=freshness_report,
        others=theirs,
        prefix=PREFIX,
    )
    ours = definitions_of(parts)
    own = dg.Definitions(resources={f"{PREFIX}{name}": resource for name, resource in resources.items()})
    with refusing():
        require_free_names(defs, ours, own.resources or {})
        defs = selecting_as_before(defs, set(keys_of(ours.assets or ())))
    return dg.Definitions.merge(defs, ours, own)


def _resources(settings: Settings, tables: Iterable[Table], *, spark: str) -> dict[str, Any]:
    """Return the library's resources.

    Args:
        spark: The key of the location's Spark resource.
    """
    aws: dict[str, Any] = {"endpoint_url": settings.aws_endpoint_url, "region_name": settings.aws_region}
    session = SparkResource(settings=settings)
    landing = LandingResource(
        s3=ImpatientS3(**aws), bucket=settings.landing_bucket, start_date=settings.start_date.isoformat()
    )
    return {
        "landing": landing,
        "events_queue": QueueResource(queue=settings.events_queue, **aws),
        "spark": session,
        "lakehouse": LakehouseResource(spark=session, landing=landing),
        "io_manager": iceberg_io_manager({table.name: table for table in tables}, spark=spark),
    }


def _require_apart(ours: Sequence[Any], theirs: Sequence[Any], tables: Collection[str]) -> None:
    known = set(keys_of(theirs))
    if double := known.intersection(keys_of(ours)):
        names = ", ".join(sorted(key.to_user_string() for key in double))
        raise DeclarationRefused(f"asset {names} is already in this code location; give one of the two another key")
    for key in stored_by("io_manager", ours):
        if ".".join(key.path) in tables:
            raise DeclarationRefused(
                f"asset {key.to_user_string()} has a table of Tidemark, but the code location's IO manager "
                f'`io_manager`: declare it with table_asset, or give it io_manager_key="{IO_MANAGER}"'
            )
