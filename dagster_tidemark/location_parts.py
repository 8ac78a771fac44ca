"""Assets, checks, sensors and schedules of a code location, made from its declarations.

Belongs here: the checks of the declarations against each other, and which sensors, schedules and assets of the library
a location gets. Does not belong here: resources, and how the result joins a location's other definitions
(`definitions`).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, cached_property
from typing import Any

import dagster as dg

from dagster_tidemark.asset_events.declared import AssetEvents, Listener, require_declared
from dagster_tidemark.asset_graph.declarations import declare_promises
from dagster_tidemark.asset_page import with_pages
from dagster_tidemark.component_declarations import ComponentDeclarations
from dagster_tidemark.dagster_internals import code_server
from dagster_tidemark.dagster_internals.asset_graph import graph_of_definitions
from dagster_tidemark.dagster_internals.run_logs import use_log_format
from dagster_tidemark.derived_table import fitted_to_partitions
from dagster_tidemark.discovery import is_leaving_out, refusing
from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.engine.doubts import ASSET_EVENTS, LANDING, Watched
from dagster_tidemark.event_log.observations import source_key
from dagster_tidemark.event_log.run_process import record_while_loading
from dagster_tidemark.execution.freshness_report import freshness_asset
from dagster_tidemark.feed_partitions import require_loadable_feeds
from dagster_tidemark.incidents.channels.channel import Channel, distinct
from dagster_tidemark.incidents.expected import ExpectedArrival, require_sources
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.maintenance.maintained_tables import maintained_tables
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
from dagster_tidemark.table_partitions import DeclarationRefused, keys_of, require_equal_partitions, stored_by
from dagster_tidemark.tags import IO_MANAGER, PREFIX


@dataclass(frozen=True, kw_only=True)
class LocationParts:
    """Declarations of a code location. `definitions.build_definitions` describes each.

    Args:
        assets: Assets and checks to automate.
        declared: Declarations of components.
        others: The location's other assets and checks.
        prefix: Prefix of sensors, schedules and jobs; empty if the location has only Tidemark's.
    """

    settings: Settings
    assets: Sequence[Any]
    feeds: Sequence[Feed]
    tables: Sequence[Table]
    declared: ComponentDeclarations
    streams: Sequence[Stream | Deliveries] = ()
    notify: Sequence[Channel] = ()
    expected: Sequence[ExpectedArrival] = ()
    asset_events: AssetEvents | None = None
    listeners: Sequence[Listener] = ()
    reads_message: ReadsMessage | None = None
    retention: timedelta | None = None
    freshness_report: bool = False
    others: Sequence[Any] = ()
    prefix: str = ""

    @cached_property
    def by_name(self) -> dict[str, Table]:
        """The tables by name."""
        return {table.name: table for table in self.tables}

    @cached_property
    def delivered(self) -> list[Feed]:
        """The feeds of the deliveries."""
        return [stream.feed_of("any") for stream in self.streams if isinstance(stream, Deliveries)]

    @property
    def queues(self) -> dict[str, str]:
        """The queues that sensors receive from, by sensor."""
        found = {f"the sensor {LANDING} (TIDEMARK_EVENTS_QUEUE)": self.settings.events_queue} if self.lands else {}
        if self.asset_events is not None:
            found[f"the sensor {ASSET_EVENTS} (AssetEvents)"] = self.asset_events.queue
        return found

    @property
    def lands(self) -> bool:
        """True if the location receives notifications. A location with only Tidemark's assets always does."""
        return bool(self.feeds or self.streams or not self.prefix)


_RESOURCES = {"spark", "lakehouse", "landing", "events_queue"}
_declared: dict[str, LocationParts] = {}


def declarations_of(code_location: str) -> LocationParts | None:
    """Return the declarations of a code location whose definitions this process has loaded."""
    return _declared.get(code_location)


def definitions_of(parts: LocationParts) -> dg.Definitions:
    """Return assets, checks, sensors and schedules, without resources and executor.

    The declarations are kept for the commands: see `declarations_of`.
    """
    with refusing():
        refuse_undeclared_names()
    age: timedelta | None = None
    with refusing():
        age = age_of(parts.settings, parts.retention, is_alone=not parts.prefix)
    with refusing():
        require_distinct(parts.streams, parts.queues)
    use_log_format(parts.settings)
    channels: tuple[Channel, ...] = ()
    with refusing():
        channels = distinct(parts.notify)
    with refusing():
        require_declared(parts.asset_events, parts.listeners, _keys_by_kind([*parts.assets, *parts.others]))
    feeds = _each_name_once(parts.feeds, parts.declared)
    with refusing():
        _require_distinct_tables(parts.tables)
    parts = replace(parts, feeds=feeds, notify=channels)
    _declared[parts.settings.code_location] = parts
    return _assembled(replace(parts, assets=with_automation(_accepted_assets(parts))), age)


def _accepted_assets(parts: LocationParts) -> list[Any]:
    """Return the assets with their pages. Check them against the tables, the feeds and the expected arrivals."""
    declared, assets = parts.declared, fitted_to_partitions(parts.assets, parts.others)
    with refusing():
        files = {source_key(feed).to_user_string() for feed in parts.feeds}
        declare_promises(parts.settings.code_location, [each.promise for each in parts.expected])
        require_sources(parts.expected, {key.to_user_string() for key in keys_of([*assets, *parts.others])}, files)
    if not code_server.is_loaded_for_a_run():
        with refusing():
            _require_annotated(assets, {*keys_of(assets), *keys_of(parts.others)}, is_alone=not parts.prefix)
    assets = _with_their_inputs(assets, parts.others, declared)
    if code_server.is_loaded_for_a_run():  # a run needs no pages, and the code server has done the checks
        return assets
    assets = _each_key_once(assets, declared)
    with refusing(), declared.naming_places():
        refuse_overlaps([*parts.feeds, *parts.delivered])
    with refusing():
        _require_tables(assets, parts.by_name)
    with refusing():
        _require_assets_of_streams(parts.streams, {*keys_of(assets), *keys_of(parts.others)})
    with refusing(), declared.naming_places():
        require_equal_partitions(assets, parts.by_name)
    with refusing(), declared.naming_places():
        require_loadable_feeds(assets, parts.feeds, parts.by_name, parts.delivered)
    return with_pages(assets, parts.by_name, parts.settings, parts.streams)


def _require_annotated(assets: Iterable[Any], known: Set[dg.AssetKey], *, is_alone: bool) -> None:
    """Raise if a parameter for one of the library's resources has no annotation. Dagster takes it for an asset."""
    names = {f"{PREFIX}{name}" for name in _RESOURCES} | (_RESOURCES if is_alone else set())
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable:
            read = asset.keys_by_input_name
            if found := sorted(
                name for name in names & read.keys() if read[name].path == [name] and read[name] not in known
            ):
                raise DeclarationRefused(
                    f"asset {_names(asset)}: {found[0]} is a resource: annotate the parameter, as in "
                    f"`{found[0]}: dg.ResourceParam`"
                )


def _require_tables(assets: Iterable[Any], tables: Mapping[str, Table]) -> None:
    """Raise if an asset has Tidemark's IO manager and no table. Each of its runs would fail."""
    for key in stored_by(IO_MANAGER, assets):
        if (name := ".".join(key.path)) not in tables:
            raise DeclarationRefused(
                f"asset {key.to_user_string()} is stored by {IO_MANAGER}, but table {name} is not passed: add it to "
                "`tables`"
            )


def _require_distinct_tables(tables: Iterable[Table]) -> None:
    """Raise if two different tables have the same name: the rows of one would be written into the other."""
    first: dict[str, Table] = {}
    for table in tables:
        if first.setdefault(table.name, table) != table:
            raise DeclarationRefused(f"table {table.name} is declared twice, and differently; remove one of the two")


def _require_assets_of_streams(streams: Iterable[Stream | Deliveries], known: Set[dg.AssetKey]) -> None:
    """Raise if the table of a stream has no asset. Readers of its rows would never run."""
    for stream in streams:
        parts = stream.table.name.split(".")
        if dg.AssetKey(parts) not in known:
            raise DeclarationRefused(
                f"stream {stream.name}: there is no asset {'/'.join(parts)} for its table: add "
                f"dg.AssetSpec(key={parts}) to the assets"
            )


def _names(asset: dg.AssetsDefinition) -> str:
    return ", ".join(sorted(key.to_user_string() for key in asset.keys))


def _assembled(parts: LocationParts, age: timedelta | None) -> dg.Definitions:
    """Return the assets of the location with the library's own assets, checks, sensors and schedules."""
    settings = parts.settings
    automated = [each for each in parts.assets if not isinstance(each, dg.AssetChecksDefinition)]
    checks = _checks(parts, automated)
    automated += [notifications()] if parts.lands else []
    automated.append(incidents_asset())
    maintained = maintained_tables(parts.by_name.values(), parts.streams) if parts.tables or parts.streams else {}
    automated += [maintenance_asset()] if maintained else []
    judged = [*automated, *parts.others]
    graph = cache(lambda: graph_of_definitions(judged))
    automated += [freshness_asset(settings, graph)] if parts.freshness_report else []
    scope = LocationScope(parts.prefix, frozenset(keys_of(automated)) if parts.prefix else None, settings)
    record_while_loading(scope.keys)
    optional = [
        *([freshness_sensor(scope)] if parts.freshness_report else []),
        *lineage_sensors(settings, parts.feeds, parts.by_name, scope),
        *([maintenance_sensor(maintained, settings, scope=scope)] if maintained else []),
    ]
    return dg.Definitions(
        assets=automated,
        asset_checks=checks,
        sensors=[
            *_sensors(parts, [*automated, *checks], scope, [sensor.name for sensor in optional]),
            *optional,
            *asset_event_sensors.sensors_of(parts.asset_events, parts.listeners, settings, scope=scope),
        ],
        schedules=[
            *(reconcile_schedules(parts.feeds, settings.start_date, scope=scope) if parts.lands else []),
            *prune_schedules(age, scope, parts.feeds),
        ],
    )


def _checks(parts: LocationParts, automated: Sequence[Any]) -> list[Any]:
    """Return the location's checks, and the library's checks of contracts, feeds, streams and arrivals."""
    settings = parts.settings
    of_sources = [
        *landing_checks(parts.feeds, settings.start_date),
        *([dead_letters()] if parts.lands else []),
        *(stream_check(stream, settings) for stream in parts.streams if isinstance(stream, Stream)),
        *(state_check(stream, settings) for stream in parts.streams),
        *([delivery_check(settings)] if parts.notify else []),
        *arrival_checks(parts.expected, settings),
    ]
    own = [each for each in parts.assets if isinstance(each, dg.AssetChecksDefinition)]
    return [*own, *contract_checks(automated, settings, parts.others), *with_automation(of_sources)]


def _sensors(
    parts: LocationParts,
    automated: Sequence[Any],
    scope: LocationScope,
    optional: Sequence[str],
) -> list[dg.SensorDefinition]:
    """Return the sensors that each location has, and the sensors of its feeds, channels and streams.

    Args:
        optional: Names of the sensors that depend on the declarations. The sensor `contracts` watches them too.
    """
    settings, start_date = parts.settings, parts.settings.start_date
    landing = landing_sensor(parts.feeds, start_date, parts.delivered, reads_message=parts.reads_message, scope=scope)
    contracts = contract_sensor(
        _watched(parts, [name.removeprefix(parts.prefix) for name in optional]),
        scope=scope,
        routes=[channel.route for channel in parts.notify],
        expected=parts.expected,
    )
    return [
        *([landing] if parts.lands else []),
        *automation_sensors(automated, scope=scope, others=parts.others),
        catch_up_sensor(scope),
        contracts,
        incident_sensor(parts.notify, settings, scope=scope),
        dead_runs_sensor(scope),
        *([streams_sensor(parts.streams, settings, scope=scope)] if parts.streams else []),
    ]


def _watched(parts: LocationParts, sensors: Sequence[str]) -> Watched:
    """Return the sources outside the event log that sensors and shifts watch, and the optional sensors."""
    at_work = [stream for stream in parts.streams if stream.why_off(parts.settings) is None]
    return Watched(
        parts.settings.code_location,
        {feed.name: source_key(feed).to_user_string() for feed in parts.feeds},
        tuple(post_of(stream, parts.settings) for stream in at_work),
        () if parts.asset_events is None else tuple(parts.asset_events.assets),
        tuple(sensors),
    )


def _each_key_once(assets: Sequence[Any], declared: ComponentDeclarations) -> list[Any]:
    """Within `leaving_out`, leave out assets whose key an earlier asset has, because Dagster would refuse the location.

    For assets of components this is already reported.
    """
    if not is_leaving_out():
        return list(assets)
    seen: set[dg.AssetKey] = set()
    kept = []
    for asset in assets:
        keys = set(keys_of([asset]))
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
        known = {*keys_of(kept), *keys_of(others)}
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
            raise DeclarationRefused(
                f"asset {_names(asset)}: its ins have {lacking}, which does not exist or is left out; correct one "
                "of the two"
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


def _keys_by_kind(assets: Iterable[Any]) -> dict[str, bool]:
    """Return the keys of assets, each with True if it is external."""
    found = dict[str, bool]()
    for asset in assets:
        is_external = not (isinstance(asset, dg.AssetsDefinition) and asset.is_executable)
        found |= dict.fromkeys((key.to_user_string() for key in keys_of([asset])), is_external)
    return found
