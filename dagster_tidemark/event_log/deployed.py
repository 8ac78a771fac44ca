"""Declarations and text of the deployed code, kept in the instance's storage for `tidemark plan`."""

import base64
import json
import zlib
from collections.abc import Collection, Mapping

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.planner.code_changes import Declared, declared
from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.tags import DEPLOYED, DEPLOYED_CODE


def keep(instance: DagsterInstance, home: tuple[str | None, str | None], graph: Graph) -> None:
    """Keep a graph's declarations as the deployed code of a code location.

    Args:
        home: The names of the code location and its repository.
    """
    instance_store.save(instance, DEPLOYED + "/".join(str(part) for part in home), json.dumps(declared(graph)))


def kept(instance: DagsterInstance, graph: Graph) -> Mapping[str, Declared]:
    """Return, by asset, the declarations of the deployed code that shares most assets with a graph; empty if none."""
    found: Mapping[str, Declared] = {}
    for text in instance_store.saved_under(instance, DEPLOYED).values():
        said = {key: of for key, of in instance_store.members_of(text).items() if isinstance(of, dict)}
        if len(said.keys() & graph.nodes) > len(found.keys() & graph.nodes):
            found = said
    return found


def keep_code(
    instance: DagsterInstance, home: tuple[str | None, str | None], graph: Graph, texts: Mapping[str, str]
) -> None:
    """Keep the text of the deployed code, by the path of each file."""
    held = json.dumps({"assets": sorted(graph.nodes), "texts": dict(texts)})
    packed = base64.b64encode(zlib.compress(held.encode())).decode()
    instance_store.save(instance, DEPLOYED_CODE + "/".join(str(part) for part in home), packed)


def kept_code(instance: DagsterInstance, assets: Collection[str]) -> Mapping[str, str]:
    """Return the text of the deployed code that has most of these assets; empty if none was kept."""
    texts: Mapping[str, str] = {}
    most = 0
    for packed in instance_store.saved_under(instance, DEPLOYED_CODE).values():
        try:
            held = json.loads(zlib.decompress(base64.b64decode(packed)))
            shared, found = len(set(held["assets"]).intersection(assets)), dict(held["texts"])
        except (*instance_store.UNREADABLE, zlib.error):
            continue
        if shared > most:
            texts, most = found, shared
    return texts


def locations(instance: DagsterInstance, graph: Graph) -> frozenset[str]:
    """Return the names of the code locations that declare tables of a graph; empty if one has no known name."""
    tables = {key for key, node in graph.nodes.items() if not node.source}
    kept_under = instance_store.saved_under(instance, DEPLOYED).items()
    declared_by = {key: instance_store.members_of(text).keys() for key, text in kept_under}
    found = {key.removeprefix(DEPLOYED).split("/")[0] for key, assets in declared_by.items() if assets & tables}
    return frozenset() if str(None) in found else frozenset(found)
