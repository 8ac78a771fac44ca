"""The present state of an instance's contracts, from the plan and the event log.

Belongs here: the contract statuses of an instance's asset graph. Does not belong here: the state of a contract
(`planner.contract_status`), doubts about it (`engine.doubts`), and its reports (`sensors.contract_sensor`,
`cli.contract_rows`).
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_time, instance_store
from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.engine import engine, saved_overview
from dagster_tidemark.engine.doubts import Doubts, Watched, doubts, in_doubt
from dagster_tidemark.planner.contract_status import standings
from dagster_tidemark.planner.contracts import CronContract
from dagster_tidemark.planner.decisions import ContractStatus, Plan
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.unbuilt import Since, Unbuilt, Windows
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import SINCE


@dataclass
class _Seen:
    """Data of an instance that is kept between two evaluations."""

    graph: Graph
    unbuilt: Unbuilt
    since: Since


_seen: dict[str, _Seen] = {}


def overview(
    instance: DagsterInstance,
    assets: AnyGraph,
    settings: Settings | None = None,
    *,
    wait: bool = False,
    read_only: bool = False,
) -> tuple[Plan, dict[str, ContractStatus]]:
    """Return the present plan, and the contract statuses by asset; empty while the event log is being read.

    Args:
        settings: Settings of the code location; see `engine.engine_for`.
        wait: True to wait until the event log has been read to its end.
        read_only: True to save nothing in the instance. A command's code may differ from the code server's.
    """
    plan, found = judged(instance, assets, settings, wait=wait, read_only=read_only)
    graph = engine.engine_for(instance, assets, settings).graph
    return plan, doubted(found, graph, doubts(instance, watched_of(instance, settings), plan.now))


def watched_of(instance: DagsterInstance, settings: Settings | None) -> Watched:
    """Return the sources that the location's sensors watch; empty before an overview was saved."""
    kept = saved_overview.kept(instance, settings.code_location) if settings else None
    return kept.watched if kept is not None else Watched()


def doubted(found: Mapping[str, ContractStatus], graph: Graph, doubts: Doubts) -> dict[str, ContractStatus]:
    """Return the contract statuses with doubts added. Without a recent check, a met contract becomes unknown."""
    return {
        asset: in_doubt(standing, doubts.about(asset, graph.nodes[asset].sensor, graph.sources_of[asset]))
        for asset, standing in found.items()
    }


def judged(
    instance: DagsterInstance,
    assets: AnyGraph,
    settings: Settings | None = None,
    *,
    wait: bool = False,
    read_only: bool = False,
) -> tuple[Plan, dict[str, ContractStatus]]:
    """Return the same as `overview`, but without doubts: as if each sensor and shift had reported just now."""
    found = engine.engine_for(instance, assets, settings)
    plan = found.look(event_time.now(), instance)
    while wait and plan.catching_up:
        plan = found.look(event_time.now(), instance)
    if plan.catching_up:
        return plan, {}
    with engine.reporting(), dg.partition_loading_context(dynamic_partitions_store=instance):
        history, seen = found.planner.history, _seen_of(instance, assets, found.graph, plan.now, read_only)
        missing = partial(seen.unbuilt.missing, history=history, since=seen.since, now=plan.now)
        return plan, standings(found.graph, history, plan, missing)


def _seen_of(instance: DagsterInstance, assets: AnyGraph, graph: Graph, now: float, read_only: bool) -> _Seen:
    identity = instance_store.identity_of(instance)
    seen = _seen.get(identity)
    if seen is None or seen.graph is not graph:
        seen = _seen[identity] = _Seen(
            graph, Unbuilt(graph, windows_of(assets)), since_of(instance, graph, now, read_only=read_only)
        )
    return seen


def since_of(instance: DagsterInstance, graph: Graph, now: float, *, read_only: bool) -> Since:
    """Return when the evaluation of cron contracts began: now for assets that are new to the instance."""
    match instance_store.members_of(instance_store.saved(instance, SINCE)):
        case {"began": int() | float() as began, "assets": dict(assets)}:
            pass
        case _:
            began, assets = now, {}
    promised = [key for key, node in graph.nodes.items() if isinstance(node.contract, CronContract)]
    # Drop assets whose contract was removed: a later contract starts again. Another location may evaluate a source.
    ended = [key for key, node in graph.nodes.items() if key in assets and key not in promised and not node.source]
    new = [key for key in promised if key not in assets]
    if new or ended:
        assets = {key: at for key, at in assets.items() if key not in ended} | dict.fromkeys(new, now)
        if not read_only:
            instance_store.save(instance, SINCE, json.dumps({"began": began, "assets": assets}))
    return Since(began, assets)


def windows_of(assets: AnyGraph) -> Windows:
    """Return the function that lists the partitions of an asset by the end of their windows."""

    def _keys(by: dg.PartitionsDefinition | None, after: float, until: float) -> Iterable[str]:
        if isinstance(by, dg.TimeWindowPartitionsDefinition):
            listed = _ends(by, after // 3600 * 3600, -(-until // 3600) * 3600)  # whole hours, which are cached
            return [key for key, end in listed if after < end <= until]
        if isinstance(by, dg.MultiPartitionsDefinition):
            axes = [(axis.name, axis.partitions_def) for axis in by.partitions_defs]
            if sum(isinstance(of, dg.TimeWindowPartitionsDefinition) for _, of in axes) > 1:
                raise ValueError("partitions with two time dimensions have no single window for a deadline")
            pairs = ([(name, key) for key in _keys(of, after, until)] for name, of in axes)
            return [str(dg.MultiPartitionKey(dict(of_all))) for of_all in itertools.product(*pairs)]
        return () if by is None else by.get_partition_keys()

    def _of(asset: str, after: float, until: float) -> Iterable[Partition]:
        return _keys(assets.get(dg.AssetKey.from_user_string(asset)).partitions_def, after, until)

    return _of


# Assets with the same definition and the looks of an hour share the keys: Dagster takes 50 microseconds a key.
@lru_cache(maxsize=64)
def _ends(by: dg.TimeWindowPartitionsDefinition, after: float, until: float) -> Sequence[tuple[str, float]]:
    """Return each key with the end of its window, if that is after the first time and not after the second."""
    earliest = by.start.timestamp()
    if after > earliest:
        around = by.get_partition_key_for_timestamp(after)
        earliest = max(earliest, by.start_time_for_partition_key(around).timestamp())
    latest = min(until, by.end.timestamp()) if by.end else until
    if latest <= earliest:
        return ()
    between = dg.TimeWindow(datetime.fromtimestamp(earliest, UTC), datetime.fromtimestamp(latest, UTC))
    keys = by.get_partition_keys_in_time_window(between)
    ends = ((key, by.time_window_for_partition_key(key).end.timestamp()) for key in keys)
    return [(key, end) for key, end in ends if after < end <= until]
