"""Dagster's run requests, made from the planner's requests after a check that the daemon can plan each run.

If the daemon cannot plan the run of a request, its tick ends and the later requests are lost: the daemon retries, and
fails at the same request. So such a request is set aside with the reason.
"""

from collections.abc import Iterable, Set
from typing import Any

import dagster as dg

from dagster_tidemark.asset_graph.run_plans import checks_along
from dagster_tidemark.dagster_internals import run_storage
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.dagster_internals.partitions import is_partition_tag, range_tags
from dagster_tidemark.dagster_internals.record_copies import changed
from dagster_tidemark.engine.engine import Engine
from dagster_tidemark.engine.missing_inputs import missing_tag
from dagster_tidemark.errors import Terminal
from dagster_tidemark.planner.admission import priority_of
from dagster_tidemark.planner.connected_components import connected
from dagster_tidemark.planner.decisions import CheckRequest, Plan, Request
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.planner.grouping import SINGLES, ranges
from dagster_tidemark.planner.user_code import Raised, called
from dagster_tidemark.planner.wording import names
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import CHECK, NOT_RETRIED, PRIORITY, REBUILD, REQUESTED_BY, TABLES

TAGS = {REQUESTED_BY: "planner", **NOT_RETRIED}
"""Tags of every run that the planner requests."""


class NoRun(Terminal):
    """Dagster cannot make a run of a request. The message gives the reason.

    Args:
        partitions: The partitions that prevent the run; empty if the assets prevent it.
    """

    def __init__(self, reason: str, partitions: Iterable[Partition] = ()) -> None:
        super().__init__(reason)
        self.partitions = frozenset(partitions)


def run_requests(
    requests: Iterable[Request], assets: AnyGraph, engine: Engine, context: dg.SensorEvaluationContext, now: float
) -> list[dg.RunRequest]:
    """Return the runs to request. Targets that prevent a run are set aside; the others are requested again later."""
    found = []
    for request in requests:
        run = called(_checked_request, request, assets, engine, context)
        if not isinstance(run, Raised):
            found.append(run)
        elif isinstance(run.error, NoRun):
            bad = [t for t in request.targets if not run.error.partitions or t[1] in run.error.partitions]
            engine.release(request.targets)
            engine.reject(bad, str(run.error), now)
        else:
            engine.reject(request.targets, f"no run can be created: {run}", now)
    return found


def _checked_request(
    request: Request, assets: AnyGraph, engine: Engine, context: dg.SensorEvaluationContext
) -> dg.RunRequest:
    """Return the run of a request.

    Raises:
        NoRun: Dagster cannot make a run of the request.
    """
    with dg.partition_loading_context(dynamic_partitions_store=context.instance):
        validate(request, assets, engine.graph)
        run = _run_request(request, assets, engine.graph)
        if why := engine.no_run_of_all(run.asset_selection or (), run.asset_check_keys or ()):
            raise NoRun(why)
        return _naming_missing(run, engine.latest, request.targets)


def check_run(request: CheckRequest, engine: Engine, context: dg.SensorEvaluationContext) -> dg.RunRequest | None:
    """Return a run that evaluates only a blocking check, or None if one is under way or none can be planned."""
    key = dg.AssetCheckKey(dg.AssetKey.from_user_string(request.asset), request.check)
    if why := engine.no_run_of_all((), (key,)):
        context.log.warning(f"the check {request.check} of {request.asset} cannot run: {why}")
        return None
    said = f"{request.asset}: {request.check}" + (f", {request.partition}" if request.partition else "")
    if run_storage.has_unfinished_run(context.instance, {CHECK: said}):
        return None
    tags = {**TAGS, CHECK: said, PRIORITY: str(priority_of([request.asset], engine.graph))}
    return dg.RunRequest(partition_key=request.partition, tags=tags, asset_selection=[], asset_check_keys=[key])


def validate(request: Request, assets: AnyGraph, graph: Graph) -> None:
    """Raise if Dagster cannot make a run of a request at this moment.

    Raises:
        NoRun: Dagster cannot make the run.
    """
    keys = [dg.AssetKey.from_user_string(asset) for asset in request.assets]
    for name, key in zip(request.assets, keys, strict=True):
        if not assets.has(key) or not assets.get(key).is_materializable:
            raise NoRun(f"this code location cannot build {name}")
        if request.as_range and graph.nodes[name].conditional:
            raise NoRun(f"only the automation condition of {name} requests its runs")
        left = {other.to_user_string() for other in assets.get(key).execution_set_asset_keys} - set(request.assets)
        if left:
            raise NoRun(f"{name} can only be built together with {', '.join(sorted(left))}")
    definitions = {assets.get(key).partitions_def for key in keys}
    if len(definitions) > 1:
        raise NoRun(f"{', '.join(request.assets)} have different partitions")
    by = definitions.pop()
    if by is None or None in request.partitions:
        if by is not None or request.partitions != (None,):
            raise NoRun("either both the request and the asset have partitions, or neither")
        return
    asked = [str(partition) for partition in request.partitions]
    gone = [partition for partition in asked if not by.has_partition_key(partition)]
    if gone:
        raise NoRun("the code location has no such partition", gone)
    if len(asked) > 1:
        meant = list(by.get_partition_keys_in_range(dg.PartitionKeyRange(asked[0], asked[-1])))
        if meant != asked:
            raise NoRun(f"the range from {asked[0]} to {asked[-1]} has {len(meant)} partitions, not {len(asked)}")


def _run_request(request: Request, assets: AnyGraph, graph: Graph) -> dg.RunRequest:
    tags, partition = {**TAGS, **_tables(request.assets), **_priority(request.assets, graph)}, None
    if len(request.partitions) == 1:
        # A range of one partition would not do: the function of an asset may read its partition key.
        (partition,) = request.partitions
        by = assets.get(dg.AssetKey.from_user_string(request.assets[0])).partitions_def
        if by is not None and partition is not None:
            tags |= by.get_tags_for_partition_key(partition)  # saves Dagster another lookup of the key
    else:
        first, last = str(request.partitions[0]), str(request.partitions[-1])
        tags |= range_tags(first, last)
    if request.rebuild:
        tags |= {REBUILD: "true", PRIORITY: "-10"}
    return dg.RunRequest(partition_key=partition, tags=tags, **_selection(request, assets))


def with_tags(run: dg.RunRequest, engine: Engine) -> dg.RunRequest:
    """Return the run with its priority, unless it already has one, and with the deliveries that it lacks.

    The priority is that of the tightest contract that needs the run.
    """
    assets = [key.to_user_string() for key in run.asset_selection or ()]
    tagged = changed(run, tags={**_priority(assets, engine.graph), **run.tags})
    return _naming_missing(tagged, engine.latest, [(asset, run.partition_key) for asset in assets])


def _naming_missing(run: dg.RunRequest, plan: Plan, targets: Iterable[Target]) -> dg.RunRequest:
    missing = missing_tag(plan, targets)
    return changed(run, tags={**run.tags, **missing}) if missing else run


def most_urgent_first(runs: Iterable[dg.RunRequest], plan: Plan) -> list[dg.RunRequest]:
    """Return runs in the order of the plan's requests, then the runs that only assets' own conditions request.

    Dagster collects the runs of a tick in sets, whose order differs between processes. Runs of the same priority start
    in the order of their requests.
    """
    place = {target: number for number, request in enumerate(plan.requests) for target in request.targets}
    unplanned = len(plan.requests)

    def _order(run: dg.RunRequest) -> tuple[int, list[str], str]:
        keys: list[Any] = [*(run.asset_selection or ()), *(run.asset_check_keys or ())]
        built = sorted(key.to_user_string() for key in keys)
        places = [place.get((asset, run.partition_key), unplanned) for asset in built]
        return min(places, default=unplanned), built, run.partition_key or ""

    return sorted(runs, key=_order)


def _priority(assets: Iterable[str], graph: Graph) -> dict[str, str]:
    """Return the priority tag of a run, so that it overtakes less urgent ones; empty for Dagster's default, 0."""
    priority = priority_of(assets, graph)
    return {PRIORITY: str(priority)} if priority else {}


def _tables(assets: Iterable[str]) -> dict[str, str]:
    """Return the tag that names the assets of a run."""
    return {TABLES: names(sorted(assets))}


def _selection(request: Request, assets: AnyGraph) -> dict[str, Any]:
    """Return the assets of a run, and the checks that run along with them."""
    keys = [dg.AssetKey.from_user_string(asset) for asset in request.assets]
    return {"asset_selection": keys, "asset_check_keys": sorted(checks_along(assets, set(keys)))}


def apart(request: dg.RunRequest, graph: AnyGraph) -> list[dg.RunRequest]:
    """Return a run for each part of a request whose assets and checks read each other or share an operation.

    Dagster puts all of a tick's requests for a partition into one run. If that run is canceled or killed, or a blocking
    check fails in it, unrelated assets would fail too.
    """
    keys: list[Any] = [*(request.asset_selection or ()), *(request.asset_check_keys or ())]

    def _near(key: Any) -> Set[Any]:
        near: Set[Any] = graph.get(key).parent_entity_keys | graph.get_execution_set_asset_and_check_keys(key)
        return near

    return [_share(request, set(part)) for part in connected(keys, _near)]


def as_ranges(runs: Iterable[dg.RunRequest], graph: Graph) -> list[dg.RunRequest]:
    """Return the runs that assets' own conditions request, as ranges if there are many and the backfill policy allows.

    A condition like `eager` can become true for thousands of partitions in a tick. With a run for each, the daemon
    would have no time for anything else.
    """
    alike: dict[tuple[frozenset[Any], frozenset[Any]], list[dg.RunRequest]] = {}
    for run in runs:
        alike.setdefault((frozenset(run.asset_selection or ()), frozenset(run.asset_check_keys or ())), []).append(run)
    return [run for group in alike.values() for run in _in_ranges(group, graph)]


def _in_ranges(runs: list[dg.RunRequest], graph: Graph) -> list[dg.RunRequest]:
    """Return runs over the same assets and checks as ranges. Runs that the planner requests stay as they are."""
    nodes = [graph.nodes[key.to_user_string()] for key in runs[0].asset_selection or ()]
    most = min((node.most for node in nodes if node.most is not None), default=None)
    is_theirs = bool(nodes) and not any(node.automated or node.refused for node in nodes)
    if len(runs) <= SINGLES or not is_theirs or most == 1:
        return runs
    of = {run.partition_key: run for run in runs}
    parts = ranges(nodes[0], sorted(of, key=nodes[0].order, reverse=True), most)
    return [of[part[0]] if len(part) == 1 else _over(of[part[0]], str(part[0]), str(part[-1])) for part in parts]


def _over(run: dg.RunRequest, first: str, last: str) -> dg.RunRequest:
    tags = {name: value for name, value in run.tags.items() if not is_partition_tag(name)}
    tags |= range_tags(first, last)
    return changed(run, partition_key=None, tags=tags)


def _share(request: dg.RunRequest, part: Set[Any]) -> dg.RunRequest:
    checks = request.asset_check_keys
    assets = [key for key in request.asset_selection or () if key in part]
    built = _tables(key.to_user_string() for key in assets) if assets else {}
    return changed(
        request,
        tags={**request.tags, **built},
        asset_selection=assets,
        # None selects all checks of the assets.
        asset_check_keys=checks if checks is None else [key for key in checks if key in part],
    )
