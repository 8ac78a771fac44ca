"""State of the contracts at the last evaluation by the sensor `contracts`, kept in the instance's storage.

`tidemark status` reads it without loading the code location. Belongs here: the rows, and how they are kept. Does not
belong here: later doubts (`engine.doubts`), and how rows are shown (`cli.status_view`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.doubts import Watched
from dagster_tidemark.planner.contract_status import is_set_aside, told
from dagster_tidemark.planner.contracts import FreshnessStatus
from dagster_tidemark.planner.decisions import ContractStatus, Decision, Plan
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.wording import name, names
from dagster_tidemark.tags import OVERVIEW

CHECK = "contract"
"""The name of the check that reports the state of a contract."""
SET_ASIDE = "set aside"
_VERSION = 2


@dataclass(frozen=True)
class StandingRow:
    """State of an asset. Times in Unix seconds.

    Args:
        contract: The contract in words; empty if it has none.
        state: A freshness status. Without a contract, it is `set aside` or empty.
        oldest: Arrival of the oldest data that it does not contain.
        pending: Number of its partitions with pending work.
        due: Time of its next request for a run.
        reason: Reason for the state, or for waiting.
        set_aside: Partitions that the planner ignores, each with the reason.
        source: True if its data comes from outside.
        asap: True if its tag makes it run as soon as anything is pending.
        shown: True if it always has a row. Other sources have one only if files or rows were refused.
        sensor: The sensor that requests its runs.
        sources: Its direct and indirect sources.
        infeasible: Why its contract cannot be kept even if nothing fails; empty if it can.
    """

    asset: str
    contract: str
    state: str
    oldest: float | None
    pending: int
    due: float | None
    reason: str
    set_aside: tuple[str, ...]
    source: bool
    asap: bool
    shown: bool
    sensor: str
    sources: tuple[str, ...]
    infeasible: str = ""


@dataclass(frozen=True)
class Kept:
    """A saved overview.

    Args:
        at: Time of the evaluation (Unix seconds).
        code: The code that the location had loaded (`deployed.code_of`).
        left: Number of partitions that a rebuild has not reached, or that a skip leaves out, by its id.
    """

    at: float
    code: str
    watched: Watched
    rows: tuple[StandingRow, ...]
    left: Mapping[str, int] = field(default_factory=dict)


def keep(instance: DagsterInstance, location: str, found: Kept) -> None:
    """Save an overview. It replaces the last one."""
    rows = [list(vars(row).values()) for row in found.rows]
    value: dict[str, Any] = {
        "version": _VERSION,
        "at": found.at,
        "code": found.code,
        "watched": found.watched.as_dict(),
        "rows": rows,
        "left": dict(found.left),
    }
    instance_store.save(instance, OVERVIEW + location, json.dumps(value))


def kept(instance: DagsterInstance, location: str) -> Kept | None:
    """Return the overview that was saved last, or None. Overviews of other versions are ignored."""
    value = instance_store.members_of(instance_store.saved(instance, OVERVIEW + location))
    if value.get("version") != _VERSION:
        return None
    try:
        rows = tuple(StandingRow(*_values(row)) for row in value["rows"])
        return Kept(value["at"], value["code"], Watched.from_dict(value["watched"]), rows, value.get("left", {}))
    except instance_store.UNREADABLE:  # another release wrote this version with other members
        return None


def _values(row: Sequence[Any]) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in row]


def standing_rows(
    graph: Graph, plan: Plan, standings: Mapping[str, ContractStatus], unkept: Mapping[str, str] | None = None
) -> list[StandingRow]:
    """Return a row for each asset, in the order of the graph.

    Args:
        unkept: Why contracts cannot be kept even if nothing fails, by asset.
    """
    rows = (_row(node, graph, plan, standings.get(key)) for key, node in graph.nodes.items())
    return [replace(row, infeasible=(unkept or {}).get(row.asset, "")) for row in rows]


def _row(node: Node, graph: Graph, plan: Plan, standing: ContractStatus | None) -> StandingRow:
    decisions = plan.of(node.key)
    aside = is_set_aside(node, plan)
    looked_after = bool(node.automated or node.left_out or node.contract)
    return StandingRow(
        asset=node.key,
        contract="" if node.contract is None else told(node.contract),
        state=str(standing.verdict) if standing is not None else SET_ASIDE if aside else "",
        oldest=min((d.oldest_arrival for d in decisions if d.oldest_arrival is not None), default=None),
        pending=len(decisions),
        due=min((decision.due_at for decision in decisions if decision.due_at is not None), default=None),
        reason=_reason(node, plan, standing, decisions),
        set_aside=_aside(node, plan, standing),
        source=node.source or not (node.automated or node.left_out),
        asap=node.asap,
        shown=looked_after or bool(plan.aside(node.key)),
        sensor=node.sensor,
        sources=tuple(sorted(graph.sources_of.get(node.key, ()))),
    )


def _aside(node: Node, plan: Plan, standing: ContractStatus | None) -> tuple[str, ...]:
    own = (f"{name((node.key, partition))}: {why}" for partition, why in plan.aside(node.key).items())
    return tuple(sorted({*own, *(standing.set_aside if standing is not None else ())}))


def _reason(node: Node, plan: Plan, standing: ContractStatus | None, decisions: Sequence[Decision]) -> str:
    said = (FreshnessStatus.NOT_JUDGED, FreshnessStatus.UNKNOWN)
    if standing is not None and (standing.partition is not None or standing.set_aside or standing.verdict in said):
        return standing.reason
    if standing is None and plan.aside(node.key):
        return f"set aside: {is_set_aside(node, plan) or names(_aside(node, plan, None))}"
    first = min(decisions, key=lambda decision: decision.due_at or float("inf"), default=None)
    if first is None:
        return ""
    return f"{first.partition or ''} {first.state}: {first.reason}".strip()
