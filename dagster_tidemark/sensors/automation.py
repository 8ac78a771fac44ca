"""The sensors that evaluate the automation conditions: as many as the assets and checks of a code location need.

Dagster refuses every tick of a sensor with more than 500 assets and checks that have a condition. Does not belong here:
the conditions (`engine.condition`).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.planner_graph import graph_of
from dagster_tidemark.asset_graph.sensor_names import FIRST, numbered
from dagster_tidemark.dagster_internals import code_server, event_time
from dagster_tidemark.dagster_internals.asset_graph import graph_of_definitions, undeclared
from dagster_tidemark.dagster_internals.record_copies import changed
from dagster_tidemark.discovery import is_leaving_out
from dagster_tidemark.engine.engine import Engine, engine_of
from dagster_tidemark.engine.guarded_conditions import ASKS_FOR_NOTHING
from dagster_tidemark.engine.run_requests import TAGS, apart, as_ranges, most_urgent_first, with_tags
from dagster_tidemark.engine.tick_log import line_of_run
from dagster_tidemark.event_log.standby import reason_to_stand_by
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.wording import name
from dagster_tidemark.sensors.catch_up import is_given_up
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope, assets_of
from dagster_tidemark.settings import Settings

_MOST = 500
_NAMED = 5
_OF_CHECKS = "automation_checks"


def automation_sensor(settings: Settings | None = None) -> dg.SensorDefinition:
    """Return the sensor that requests runs of due partitions, one run per partition, for a location with few assets."""
    return _Automation(FIRST, dg.AssetSelection.all(), settings=settings)


def automation_sensors(
    definitions: Iterable[Any], *, scope: LocationScope = WHOLE_LOCATION, others: Iterable[Any] = ()
) -> list[dg.SensorDefinition]:
    """Return sensors that request runs of due partitions, one run per partition. Warn of assets that cannot be planned.

    Args:
        definitions: The assets and checks to automate, as returned by `with_automation`.
        others: All other assets of the code location.
    """
    definitions = list(definitions)
    # A run that loads the location does not need the graph, which takes a large part of the loading time.
    graph = Graph({}) if code_server.is_loaded_for_a_run() else _graph(definitions, others)
    names = {key: node.sensor for key, node in graph.nodes.items()}
    every = [each for each in definitions if isinstance(each, dg.AssetsDefinition)]
    shares: dict[str, _Share] = {FIRST: _Share()}
    for asset in (asset for each in every if each.is_materializable for asset in each.specs):
        if asset.automation_condition is not None:
            sensor = names.get(asset.key.to_user_string(), FIRST)
            shares.setdefault(sensor, _Share()).assets.append(asset.key)
    for spec in (spec for each in every for spec in each.check_specs):
        sensor = names.get(spec.asset_key.to_user_string(), FIRST)
        if spec.automation_condition is None:
            shares.setdefault(sensor, _Share()).along.append(spec.key)
        elif getattr(spec.automation_condition, ASKS_FOR_NOTHING, False):
            shares.setdefault(sensor, _Share()).idle.append(spec.key)
        else:
            _with_room(shares, sensor).checks.append(spec.key)
    return [
        _Automation(scope.named(name), share.evaluated, share.idle, settings=scope.settings)
        for name, share in shares.items()
    ]


@dataclass
class _Share:
    """Assets and checks of one sensor.

    Args:
        checks: Checks that the sensor evaluates, because they have their own condition.
        along: Checks without a condition, which run along with their assets.
        idle: Checks whose condition never requests anything. They are not evaluated, and do not count towards the
            limit. They belong to the sensor because Dagster would add a default sensor for checks without one.
    """

    assets: list[dg.AssetKey] = field(default_factory=list)
    checks: list[dg.AssetCheckKey] = field(default_factory=list)
    along: list[dg.AssetCheckKey] = field(default_factory=list)
    idle: list[dg.AssetCheckKey] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.assets) + len(self.checks) >= _MOST

    @property
    def evaluated(self) -> dg.AssetSelection:
        assets = dg.AssetSelection.assets(*self.assets).without_checks()
        return assets | dg.AssetSelection.checks(*self.checks, *self.along)


class _Automation(dg.AutomationConditionSensorDefinition):
    """An automation sensor that puts unrelated assets into separate runs.

    Args:
        idle: Checks that belong to the sensor but are not evaluated.
        settings: The settings of the code location; see `LocationScope`.
    """

    def __init__(
        self,
        name: str,
        evaluated: dg.AssetSelection,
        idle: Sequence[dg.AssetCheckKey] = (),
        metadata: Mapping[str, Any] | None = None,
        *,
        settings: Settings | None,
    ) -> None:
        self._of, self._settings = (name, evaluated, idle), settings
        self._evaluates = dg.AutomationConditionSensorDefinition(name, target=evaluated, **_options())
        super().__init__(name, target=evaluated | dg.AssetSelection.checks(*idle), metadata=metadata, **_options())

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> Any:
        begun = time.monotonic()
        if why := reason_to_stand_by(context, self._settings):
            return _skipped(context, why)
        graph = assets_of(context)
        # The engine is chosen here, because a condition has access neither to the location nor to the settings.
        engine = engine_of(context, graph, self._settings)
        engine.read_overrides(context.instance)
        found = self._evaluates.evaluate_tick(context)
        parts = [part for run in found.run_requests or () for part in apart(run, graph)]
        planned = [part for part in parts if _can_be_planned(context, engine, part)]
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            asked = [with_tags(run, engine) for run in as_ranges(planned, engine.graph)]
        if asked and is_given_up(context, begun):
            engine.release([(key.to_user_string(), run.partition_key) for run in planned for key in _built_by(run)])
            return _skipped(context, "the tick lasted too long")
        asked = most_urgent_first(asked, engine.latest)
        for run in asked:
            context.log.info(line_of_run(run, engine.latest))
        return changed(found, run_requests=asked)

    def with_attributes(self, *, jobs: Any = None, metadata: Mapping[str, Any] | None = None) -> "_Automation":
        return _Automation(*self._of, metadata, settings=self._settings)


def _built_by(run: dg.RunRequest) -> Sequence[dg.AssetKey]:
    return run.asset_selection or ()


def _can_be_planned(context: dg.SensorEvaluationContext, engine: Engine, run: dg.RunRequest) -> bool:
    assets = _built_by(run)
    why = engine.no_run_of_all(assets, run.asset_check_keys or ())
    if why:
        targets = [(key.to_user_string(), run.partition_key) for key in assets]
        what = [name(target) for target in targets] or [check.to_user_string() for check in run.asset_check_keys or ()]
        context.log.warning(f"set aside: {', '.join(what[:_NAMED])}: {why}")
        engine.reject(targets, why, event_time.now())
    return not why


def _skipped(context: dg.SensorEvaluationContext, why: str) -> Any:
    """Return the result of a tick that evaluates nothing. It keeps the cursor, which holds the state of conditions."""
    return dg.SensorDefinition("skipped", evaluation_fn=lambda _: dg.SkipReason(why)).evaluate_tick(context)


def _options() -> dict[str, Any]:
    return {
        "use_user_code_server": True,  # custom conditions are evaluated where they are defined
        "description": "Requests runs of partitions that are due by a contract or by an asset's own condition.",
        "minimum_interval_seconds": 1,
        "emit_backfills": False,  # a backfill would start up to 30 s later
        "run_tags": TAGS,
        "default_status": dg.DefaultSensorStatus.RUNNING,
    }


def _with_room(shares: dict[str, _Share], sensor: str) -> _Share:
    """Return the share of the asset's sensor, or of a sensor for checks alone if that share is full."""
    number = 0
    while shares.setdefault(sensor, _Share()).is_full:
        number += 1
        sensor = numbered(_OF_CHECKS, number)
    return shares[sensor]


def _graph(assets: Iterable[Any], others: Iterable[Any]) -> Graph:
    """Return the planner's graph of a code location while it loads. Warn of refused assets and misspelt inputs.

    `dagster definitions validate` shows the warnings. If Dagster itself refuses the location, the graph is empty.

    Args:
        assets: The assets that the planner automates.
        others: All other assets of the location, because the inputs of an asset are checked too.
    """
    log = dg.get_dagster_logger("automation")  # `dagster definitions validate` does not show Python's own warnings
    try:
        found = graph_of_definitions([*assets, *others])
        graph = graph_of(found)
    except Exception as error:  # Dagster itself refuses a faulty location, with its own message
        if not is_leaving_out():  # `leaving_out` records the cause
            log.warning(f"the assets cannot be planned: {type(error).__name__}: {error}")
        return Graph({})
    for node in graph.nodes.values():
        if node.refused and (node.automated or not others):
            log.warning(f"set aside: {node.key}: {node.refused}")
    unknown = undeclared(found)
    declared = graph.nodes.keys() - unknown
    for node in graph.nodes.values():
        for read in [read.key for read in node.inputs if node.automated and read.key in unknown]:
            alike = [key for key in sorted(declared) if key.rpartition("/")[2] == read.rpartition("/")[2]]
            if near := alike or get_close_matches(read, declared, 1, 0.8):  # another code location may have the asset
                log.warning(f"{node.key} reads {read}, which this code location does not have; {near[0]} is similar")
    return graph
