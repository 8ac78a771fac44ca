"""Dagster definitions of a code location: its assets and checks, with sensors, schedules and resources."""

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg

from dagster_tidemark.asset_events.declared import AssetEvents, Listener, require_declared
from dagster_tidemark.asset_graph.input_promises import declare_promises
from dagster_tidemark.asset_page import with_pages
from dagster_tidemark.component_declarations import ComponentDeclarations, declared_by, taken_over, without_pending
from dagster_tidemark.dagster_internals import code_loading
from dagster_tidemark.dagster_internals.asset_graph import graph_of_definitions
from dagster_tidemark.dagster_internals.run_logs import use_log_format
from dagster_tidemark.derived_table import with_window_mappings
from dagster_tidemark.discovery import is_leaving_out, modules_below, refusing
from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.engine.doubts import Watched
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.executor import recorded_in_process
from dagster_tidemark.event_log.observations import source_key
from dagster_tidemark.execution.freshness_report import freshness_asset
from dagster_tidemark.execution.io_manager import iceberg_io_manager
from dagster_tidemark.execution.load_asset import LakehouseResource
from dagster_tidemark.execution.watermark import InputArrivals
from dagster_tidemark.existing_location import selecting_as_before
from dagster_tidemark.feed_partitions import require_loadable_feeds
from dagster_tidemark.incidents.channels.channel import Channel
from dagster_tidemark.incidents.declared import declare_channels
from dagster_tidemark.incidents.expected import ExpectedArrival, require_sources
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.maintenance.maintained_tables import maintained_tables
from dagster_tidemark.project_folder import project_root
from dagster_tidemark.resources.aws import ImpatientS3, LandingResource, QueueResource
from dagster_tidemark.resources.spark import SparkResource
from dagster_tidemark.sensors import asset_event_sensors
from dagster_tidemark.sensors.arrival_check import arrival_checks
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.contract_sensor import contract_checks, contract_sensor
from dagster_tidemark.sensors.dead_runs import dead_runs_sensor
from dagster_tidemark.sensors.freshness_sensor import freshness_sensor
from dagster_tidemark.sensors.incident_sensor import delivery_check, incident_sensor, incidents_asset
from dagster_tidemark.sensors.landing import landing_sensor
from dagster_tidemark.sensors.lineage_sensor import lineage_sensors
from dagster_tidemark.sensors.maintenance_sensor import maintenance_asset, maintenance_sensor
from dagster_tidemark.sensors.reconcile_schedules import reconcile_schedules
from dagster_tidemark.sensors.retention_schedule import age_of, prune_schedules
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.sensors.source_checks import dead_letters, landing_checks, notifications
from dagster_tidemark.sensors.streams import streams_sensor
from dagster_tidemark.settings import Settings, refuse_undeclared_names
from dagster_tidemark.sources.feed import Feed, refuse_overlaps
from dagster_tidemark.sources.s3_events import ReadsMessage
from dagster_tidemark.streams.checks import post_of, state_check, stream_check
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.streams.transport import require_distinct
from dagster_tidemark.table_partitions import DeclarationRefused, require_equal_partitions
from dagster_tidemark.tags import IO_MANAGER, PREFIX


class ComponentHoldsMore(Terminal):
    """A component defines more than assets and checks. Tidemark would drop the rest."""


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


def _each_key_once(assets: Sequence[Any], declared: ComponentDeclarations) -> list[Any]:
    """Within `leaving_out`, leave out assets whose key an earlier asset has, because Dagster would refuse the location.

    For assets of components this is already reported.
    """
    if not is_leaving_out():
        return list(assets)
    seen: set[dg.AssetKey] = set()
    kept = []
    for asset in assets:
        keys = set(_keys_of([asset]))
        if keys & seen & declared.keys:
            continue
        with refusing():
            if double := keys & seen:
                names = ", ".join(sorted(key.to_user_string() for key in double))
                raise DeclarationRefused(f"asset {names} is declared twice; give one of the two another name")
            seen |= keys
            kept.append(asset)
    return kept


def _with_their_inputs(assets: Sequence[Any], others: Sequence[Any], declared: ComponentDeclarations) -> list[Any]:
    """Return the assets whose inputs exist. Dagster would refuse a location with a missing input.

    Within `leaving_out`, missing inputs are recorded, not raised. Otherwise Dagster itself reports missing inputs of
    assets in Python.

    Raises:
        DeclarationRefused: an input of a component's asset does not exist.
    """
    kept, before = list(assets), -1
    while len(kept) != before:
        before = len(kept)
        known = {*_keys_of(kept), *_keys_of(others)}
        kept = [asset for asset in kept if _has_its_inputs(asset, known, declared)]
    return kept


def _has_its_inputs(asset: Any, known: Set[dg.AssetKey], declared: ComponentDeclarations) -> bool:
    is_computed = isinstance(asset, dg.AssetsDefinition) and asset.is_executable
    if not is_computed or not isinstance(asset.node_def, dg.OpDefinition):
        return True
    read = {asset.keys_by_input_name[name] for name, each in asset.op.ins.items() if not each.dagster_type.is_nothing}
    lacking = ", ".join(sorted(key.to_user_string() for key in read - known))
    is_named = is_leaving_out() or not declared.keys.isdisjoint(asset.keys)
    with refusing(), declared.naming_places():
        if lacking and is_named:
            keys = ", ".join(sorted(key.to_user_string() for key in asset.keys))
            raise DeclarationRefused(
                f"asset {keys}: its ins have {lacking}, which does not exist or is left out; correct one of the two"
            )
    return not (lacking and is_named)


def _each_name_once(feeds: Sequence[Feed], declared: ComponentDeclarations) -> list[Feed]:
    """Raise if two feeds have the same name. Within `leaving_out`, leave out the later one."""
    kept: dict[str, Feed] = {}
    for feed in feeds:
        first = kept.setdefault(feed.name, feed)
        with refusing(), declared.naming_places():
            if first is not feed:
                raise DeclarationRefused(
                    f"feed {feed.name} is declared twice, for {first.prefix} and for {feed.prefix}; give one of the "
                    "two another name"
                )
    return list(kept.values())


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
        retention: Age of runs, events, check results and ticks that a schedule deletes, if no decision needs them.
            Without it the laptop platform deletes them after six hours, and other deployments keep them.
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
    assets = list(assets)
    declared = declared_by(assets)
    tables, feeds = [*tables, *declared.tables], [*feeds, *declared.feeds]
    resources = _resources(settings, tables, spark="spark") | overrides
    # The library's own sensors, checks and assets find resources by prefixed names, which are the same everywhere.
    prefixed = {f"{PREFIX}{name}": resources[name] for name in ("landing", "events_queue", "lakehouse", "io_manager")}
    ours = _parts(
        settings,
        assets,
        feeds,
        tables,
        streams,
        declared,
        notify=notify,
        expected=expected,
        asset_events=asset_events,
        listeners=listeners,
        reads_message=reads_message,
        retention=retention,
        freshness_report=freshness_report,
    )
    return dg.Definitions.merge(ours, dg.Definitions(resources=resources | prefixed, executor=recorded_in_process))


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
    added = declared_by(assets := list(assets))
    tables, feeds = [*tables, *added.tables], [*feeds, *added.feeds]
    with refusing():
        _require_apart(assets, [*(defs.assets or ())], {table.name for table in tables})
    defs, taken, declared = taken_over(defs, tables, feeds)
    assets += taken
    tables, feeds = [*tables, *declared.tables], [*feeds, *declared.feeds]
    theirs = [*(defs.assets or ()), *(defs.asset_checks or ())]
    resources = _resources(settings, tables, spark=f"{PREFIX}spark")
    every = ComponentDeclarations({**added.by_asset, **declared.by_asset})
    ours = _parts(
        settings,
        assets,
        feeds,
        tables,
        streams,
        every,
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
    own = dg.Definitions(resources={f"{PREFIX}{name}": resource for name, resource in resources.items()})
    with refusing():
        defs = selecting_as_before(defs, set(_keys_of(ours.assets or ())))
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
        "io_manager": iceberg_io_manager({table.name: table for table in tables}, InputArrivals, spark=spark),
    }


def _parts(
    settings: Settings,
    assets: Iterable[Any],
    feeds: Sequence[Feed],
    tables: Iterable[Table],
    streams: Sequence[Stream | Deliveries],
    declared: ComponentDeclarations,
    *,
    notify: Sequence[Channel] = (),
    expected: Sequence[ExpectedArrival] = (),
    asset_events: AssetEvents | None = None,
    listeners: Sequence[Listener] = (),
    reads_message: ReadsMessage | None = None,
    retention: timedelta | None = None,
    freshness_report: bool = False,
    others: Sequence[Any] = (),
    prefix: str = "",
) -> dg.Definitions:
    """Return assets, checks, sensors and schedules, without resources and executor.

    Args:
        declared: Declarations of components.
        others: The location's other assets and checks.
        prefix: Prefix of sensors, schedules and jobs; empty if the location has only Tidemark's.
    """
    with refusing():
        refuse_undeclared_names()
    age: timedelta | None = None
    with refusing():
        age = age_of(settings, retention, is_alone=not prefix)
    with refusing():
        require_distinct(streams)
    use_log_format(settings)
    channels: tuple[Channel, ...] = ()
    with refusing():
        channels = declare_channels(settings.code_location, notify)
    with refusing():
        require_declared(asset_events, listeners, _keys_by_kind([*assets, *others]))
    by_name = {table.name: table for table in tables}
    delivered = [stream.feed_of("any") for stream in streams if isinstance(stream, Deliveries)]
    assets, feeds = with_window_mappings(assets, others), _each_name_once(feeds, declared)
    with refusing():
        files = {source_key(feed).to_user_string() for feed in feeds}
        declare_promises(settings.code_location, [each.promise for each in expected])
        require_sources(expected, {key.to_user_string() for key in _keys_of([*assets, *others])}, files)
    assets = _with_their_inputs(assets, others, declared)
    if not code_loading.is_loaded_for_a_run():  # a run needs no pages, and the code server has done the checks
        assets = _each_key_once(assets, declared)
        with refusing(), declared.naming_places():
            refuse_overlaps([*feeds, *delivered])
        with refusing(), declared.naming_places():
            require_equal_partitions(assets, by_name)
        with refusing(), declared.naming_places():
            require_loadable_feeds(assets, feeds, by_name, delivered)
        assets = with_pages(assets, by_name, settings, streams)
    every = with_automation(assets)
    automated = [each for each in every if not isinstance(each, dg.AssetChecksDefinition)]
    own = [each for each in every if isinstance(each, dg.AssetChecksDefinition)]
    kept = [stream for stream in streams if isinstance(stream, Stream)]
    lands = bool(feeds or streams or not prefix)
    of_sources = [
        *landing_checks(feeds, settings.start_date),
        *([dead_letters()] if lands else []),
        *(stream_check(stream, settings) for stream in kept),
        *(state_check(stream, settings) for stream in streams),
        *([delivery_check(settings)] if channels else []),
        *arrival_checks(expected, settings),
    ]
    checks = [*own, *contract_checks(automated, settings), *with_automation(of_sources)]
    automated += [notifications()] if lands else []
    automated += [incidents_asset()] if channels else []
    maintained = maintained_tables(by_name.values(), streams) if by_name or streams else {}
    automated += [maintenance_asset()] if maintained else []
    judged = [*automated, *others]
    automated += [freshness_asset(settings, cache(lambda: graph_of_definitions(judged)))] if freshness_report else []
    scope = LocationScope(prefix, frozenset(_keys_of(automated)) if prefix else None, settings)
    optional = [
        *([freshness_sensor(scope)] if freshness_report else []),
        *lineage_sensors(settings, feeds, by_name, scope),
        *([maintenance_sensor(maintained, settings, scope=scope)] if maintained else []),
    ]
    optional_names = [sensor.name.removeprefix(prefix) for sensor in optional]
    landing = landing_sensor(feeds, settings.start_date, delivered, reads_message=reads_message, scope=scope)
    return dg.Definitions(
        assets=automated,
        asset_checks=checks,
        sensors=[
            *([landing] if lands else []),
            *automation_sensors([*automated, *checks], scope=scope, others=others),
            catch_up_sensor(scope),
            contract_sensor(
                _watched(settings, feeds, streams, asset_events, optional_names),
                scope=scope,
                routes=[channel.route for channel in channels],
                expected=expected,
            ),
            *([incident_sensor(channels, settings, scope=scope)] if channels else []),
            dead_runs_sensor(scope),
            *([streams_sensor(streams, settings, scope=scope)] if streams else []),
            *optional,
            *asset_event_sensors.sensors_of(asset_events, listeners, settings, scope=scope),
        ],
        schedules=[
            *(reconcile_schedules(feeds, settings.start_date, scope=scope) if lands else []),
            *prune_schedules(age, scope, feeds),
        ],
    )


def _keys_of(assets: Iterable[Any]) -> Iterator[dg.AssetKey]:
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition):
            yield from asset.keys
        elif isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            yield asset.key


def _keys_by_kind(assets: Iterable[Any]) -> dict[str, bool]:
    """Return the keys of assets, each with True if it is external."""
    found = dict[str, bool]()
    for asset in assets:
        is_external = not (isinstance(asset, dg.AssetsDefinition) and asset.is_executable)
        found |= dict.fromkeys((key.to_user_string() for key in _keys_of([asset])), is_external)
    return found


def _require_apart(ours: Sequence[Any], theirs: Sequence[Any], tables: Collection[str]) -> None:
    known = set(_keys_of(theirs))
    if double := known.intersection(_keys_of(ours)):
        names = ", ".join(sorted(key.to_user_string() for key in double))
        raise DeclarationRefused(f"asset {names} is already in this code location; give one of the two another key")
    for asset in (each for each in ours if isinstance(each, dg.AssetsDefinition) and each.is_materializable):
        for key in asset.keys:
            if ".".join(key.path) in tables and asset.get_io_manager_key_for_asset_key(key) == "io_manager":
                raise DeclarationRefused(
                    f"asset {key.to_user_string()} has a table of Tidemark, but the code location's IO manager "
                    f'`io_manager`: declare it with table_asset, or give it io_manager_key="{IO_MANAGER}"'
                )


def _watched(
    settings: Settings,
    feeds: Sequence[Feed],
    streams: Sequence[Stream | Deliveries],
    events: AssetEvents | None,
    sensors: Sequence[str],
) -> Watched:
    """Return the sources outside the event log that sensors and shifts watch, and the optional sensors."""
    at_work = [stream for stream in streams if stream.why_off(settings) is None]
    return Watched(
        settings.code_location,
        {feed.name: source_key(feed).to_user_string() for feed in feeds},
        tuple(post_of(stream, settings) for stream in at_work),
        () if events is None else tuple(events.assets),
        tuple(sensors),
    )
