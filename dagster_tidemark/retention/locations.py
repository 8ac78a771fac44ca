"""Code locations on an instance, and the records that their planners still need.

Belongs here: the stored declarations and checkpoints of locations. Does not belong here: the choice of records
(`retention.choice`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.errors import Transient
from dagster_tidemark.event_log import checkpoint, deployed
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.tags import DEPLOYED, HISTORY


class PruneRefused(Transient):
    """It is unknown which records are still needed. The message names the record that cannot be read."""


@dataclass(frozen=True)
class OtherLocation:
    """Another code location of the library on the instance.

    Args:
        builds: Assets that it builds.
        reads: Assets that it reads.
        read_until: Storage id; its saved checkpoint has all events up to it. -1 without a readable checkpoint.
        unnoted: Assets with results that it has not written into its journal yet.
    """

    name: str
    builds: frozenset[str]
    reads: frozenset[str]
    read_until: int
    unnoted: frozenset[str]


@dataclass(frozen=True)
class KnownLocations:
    """The code locations of an instance.

    Args:
        ours: Names of the code locations that declare assets of the graph.
        open_runs: Runs that were open when a checkpoint was saved. A restart asks for their end.
        tails: Storage ids by which a restarted planner recognizes its position.
    """

    ours: frozenset[str]
    others: Sequence[OtherLocation]
    open_runs: frozenset[str] = frozenset()
    tails: frozenset[int] = frozenset()
    by_asset: Mapping[str, Sequence[OtherLocation]] = field(default_factory=dict)


def known_locations(instance: DagsterInstance, graph: Graph) -> KnownLocations:
    """Return the code locations that have stored their declarations on an instance.

    Raises:
        PruneRefused: a stored declaration cannot be read.
    """
    saved = instance_store.saved_under(instance, HISTORY).items()
    heads = {key: head for key, text in saved if (head := checkpoint.any_head(text)) is not None}
    ours = deployed.locations(instance, graph)
    tables = {key for key, node in graph.nodes.items() if not node.source}
    others = []
    for key, text in instance_store.saved_under(instance, DEPLOYED).items():
        name, said = key.removeprefix(DEPLOYED), _declared(key, text)
        if said and said.keys().isdisjoint(tables):
            others.append(_other(name, said, heads.get(f"{HISTORY}{min(said)}")))
    by_asset: dict[str, list[OtherLocation]] = {}
    for other in others:
        for asset in other.builds | other.reads:
            by_asset.setdefault(asset, []).append(other)
    tails = frozenset(int(id) for head in heads.values() for id, _ in head["reader"]["tail"][-1:])
    open_runs = frozenset(run for head in heads.values() for run in head["open_runs"])
    return KnownLocations(ours, others, open_runs, tails, by_asset)


def _declared(key: str, text: str) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
        return {asset: {"reads": list(of["reads"])} for asset, of in said.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PruneRefused(
            f"the declarations of the code location {key.removeprefix(DEPLOYED)} cannot be read, so it is unknown "
            "which events it needs; restart its code server with this release, which stores them again"
        ) from error


def _other(name: str, said: Mapping[str, Any], head: Mapping[str, Any] | None) -> OtherLocation:
    reads: Iterable[str] = (read for of in said.values() for read in of["reads"])
    builds, read = frozenset(said), frozenset(reads) - said.keys()
    if head is None:
        return OtherLocation(name, builds, read, -1, read)
    unnoted = frozenset(asset for asset, _ in head["rest"].get("touched", ()))
    return OtherLocation(name, builds, read, int(head["reader"]["after"]), unnoted)
