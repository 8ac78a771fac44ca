"""How the declarations of one version of the code differ from those of another.

Belongs here: what of an asset's declaration makes something run, as plain data, and the difference in words. Does not
belong here: what an asset's function does (its code version stands for that) and what then runs (`planner.rehearsal`).
"""

from collections.abc import Mapping
from typing import Any

from dagster_tidemark.planner.contract_status import told
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.rehearsal import Changed
from dagster_tidemark.planner.wording import names

Declared = Mapping[str, Any]
"""Of an asset its `code_version`, `partitions`, `reads`, `contract`, `asap` and `automated`, as JSON holds them."""


def declared(graph: Graph) -> dict[str, Declared]:
    """What each asset of a graph declares; sources apart."""
    return {key: _declared(node) for key, node in graph.nodes.items() if not node.source}


def changes(before: Mapping[str, Declared], now: Mapping[str, Declared]) -> dict[str, Changed]:
    """The assets of `now` that declare something else than before, other code versions apart."""
    found = {}
    for key, asset in now.items():
        if key not in before:
            found[key] = Changed("added", asks_anew=True)
            continue
        said = [_said(name, before[key].get(name), asset.get(name)) for name in asset if name != "code_version"]
        if any(said):
            more = frozenset({*asset["reads"]} - {*before[key].get("reads", ())})
            found[key] = Changed("; ".join(filter(None, said)), bool(more) or _wants_more(before[key], asset), more)
    return found


def not_loaded(deployed: Mapping[str, Declared], graph: Graph) -> dict[str, str]:
    """The assets of a graph, read from files just now, that a platform does not have so, in words.

    Nothing where no platform has told what it has loaded.
    """
    if not deployed:
        return {}
    found = {}
    for key, node in graph.nodes.items():
        if node.source:
            continue
        if key not in deployed:
            found[key] = "it is not loaded yet"
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
    """Whether it may need its inputs for a promise that it did not make, or for more partitions."""
    return any(before.get(name) != now[name] for name in ("contract", "asap", "partitions", "automated"))


def _said(name: str, before: Any, now: Any) -> str:
    if before == now:
        return ""
    if name == "reads":
        more, less = sorted({*now} - {*(before or ())}), sorted({*(before or ())} - {*now})
        said = [f"reads {names(more)}"] if more else []
        return "; ".join([*said, f"reads {names(less)} no more"] if less else said)
    if isinstance(now, bool):
        return f"{name} now" if now else f"not {name} any more"
    return f"{name}: {before or 'none'} -> {now or 'none'}"
