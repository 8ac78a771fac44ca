"""Differences between the declarations of two versions of the code.

Belongs here: declared facts of an asset that can cause runs, as plain data, and their differences in words. Does not
belong here: changes inside an asset's function (its code version covers them) and the runs that follow
(`planner.rehearsal`).
"""

from collections.abc import Mapping
from typing import Any

from dagster_tidemark.planner.contract_status import told
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.rehearsal import Changed
from dagster_tidemark.planner.wording import names

ADDED = "added"
"""The change of an asset that only the new code has."""

Declared = Mapping[str, Any]
"""Declared `code_version`, `partitions`, `reads`, `contract`, `asap` and `automated` of an asset, as in JSON."""


def declared(graph: Graph) -> dict[str, Declared]:
    """Return the declarations of a graph's assets, except sources."""
    return {key: _declared(node) for key, node in graph.nodes.items() if not node.source}


def changes(before: Mapping[str, Declared], now: Mapping[str, Declared]) -> dict[str, Changed]:
    """Return the assets of `now` whose declarations differ from `before`. Code versions are ignored."""
    found = {}
    for key, asset in now.items():
        if key not in before:
            found[key] = Changed(ADDED, asks_anew=True)
            continue
        said = [_said(name, before[key].get(name), asset.get(name)) for name in asset if name != "code_version"]
        if any(said):
            more = frozenset({*asset["reads"]} - {*before[key].get("reads", ())})
            found[key] = Changed("; ".join(filter(None, said)), bool(more) or _wants_more(before[key], asset), more)
    return found


def not_loaded(deployed: Mapping[str, Declared], graph: Graph) -> dict[str, str]:
    """Return the assets whose code on disk the platform has not loaded, each with the reason.

    The graph was read from disk just now. The result is empty if no platform has reported its loaded code.
    """
    if not deployed:
        return {}
    found = {}
    for key, node in graph.nodes.items():
        if node.source:
            continue
        if key not in deployed:
            found[key] = "not loaded yet"
        elif (loaded := deployed[key].get("code_version")) != node.code_version:
            found[key] = f"code {node.code_version} is not loaded yet, the platform has {loaded}"
    return found


def _declared(node: Node) -> Declared:
    return {
        "code_version": node.code_version,
        "partitions": node.cut,
        "reads": sorted({read.key for read in node.inputs}),
        "contract": told(node.contract) if node.contract else "",
        "asap": node.asap,
        "automated": node.automated,
    }


def _wants_more(before: Declared, now: Declared) -> bool:
    """Return True if an asset may need inputs that were never built, for a new contract or more partitions."""
    return any(before.get(name) != now[name] for name in ("contract", "asap", "partitions", "automated"))


def _said(name: str, before: Any, now: Any) -> str:
    if before == now:
        return ""
    if name == "reads":
        more, less = sorted({*now} - {*(before or ())}), sorted({*(before or ())} - {*now})
        said = [f"reads {names(more)}"] if more else []
        return "; ".join([*said, f"no longer reads {names(less)}"] if less else said)
    if isinstance(now, bool):
        return f"{name} now" if now else f"no longer {name}"
    return f"{name}: {before or 'none'} -> {now or 'none'}"
