"""Records of code servers in the instance's storage, for other processes: the deployed code, and failed requests.

Belongs here: declarations and text of deployed code, for `tidemark plan`; a hash of the code, so that a process notices
a deploy; and failed requests. Only the process of the sensors knows that Dagster could not make a run, or that a
condition raised an error: without their record, `tidemark status` would show such targets as requested although they
are set aside. Does not belong here: parsing or comparing code (`code_versions`).
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.planner.code_changes import Declared, declared
from dagster_tidemark.planner.graph import Graph, Target
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import ASKED_IN_VAIN, DEPLOYED, DEPLOYED_CODE

Home = tuple[str | None, str | None]
"""The names of a code location and its repository."""


def keep(instance: DagsterInstance, home: Home, graph: Graph) -> None:
    """Keep a graph's declarations as the deployed code of a code location."""
    instance_store.save(instance, DEPLOYED + _name(home), json.dumps(declared(graph)))


def kept(instance: DagsterInstance, graph: Graph) -> Mapping[str, Declared]:
    """Return, by asset, the declarations of the deployed code that shares most assets with a graph; empty if none."""
    found: Mapping[str, Declared] = {}
    for text in instance_store.saved_under(instance, DEPLOYED).values():
        said = {key: of for key, of in instance_store.members_of(text).items() if isinstance(of, dict)}
        if len(said.keys() & graph.nodes) > len(found.keys() & graph.nodes):
            found = said
    return found


def keep_code(instance: DagsterInstance, home: Home, graph: Graph, texts: Mapping[str, str]) -> None:
    """Keep the text of the deployed code, by the path of each file."""
    held = json.dumps({"assets": sorted(graph.nodes), "texts": dict(texts)})
    packed = base64.b64encode(zlib.compress(held.encode())).decode()
    instance_store.save(instance, DEPLOYED_CODE + _name(home), packed)


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


_MOST_BYTES = 1_000_000
_WRITTEN_BY_PROGRAMS = {".db", ".duckdb", ".lock", ".log", ".pid", ".pyc", ".pyo", ".sqlite", ".sqlite3", ".tmp"}


@cache
def code_of(settings: Settings) -> str:
    """Return a hash of the location's and Tidemark's code, as it is on disk at the first call, soon after loading.

    Data files of the packages, such as SQL and YAML, count too. Files above 1 MB count by their name and size.
    """
    digest = hashlib.sha256()
    for package in sorted({settings.code_location, __name__.partition(".")[0]}):
        found = find_spec(package)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for name, content in _files_in(Path(folder)):
                digest.update(f"{package}/{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file below a folder, except hidden files and files that programs write."""
    for file in sorted(folder.rglob("*")):
        below = file.relative_to(folder)
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in below.parts)
        if is_hidden or file.suffix.lower() in _WRITTEN_BY_PROGRAMS or not file.is_file():
            continue
        size = file.stat().st_size
        is_counted_by_size = size > _MOST_BYTES and file.suffix != ".py"
        yield below.as_posix(), str(size).encode() if is_counted_by_size else file.read_bytes()


KEPT = (".py", ".sql", ".yaml", ".yml")
"""Endings of the files that are kept: code, queries and declarations of components."""
_MOST_CHARACTERS = 20_000_000


def code_texts(root: Path, package: str) -> dict[str, str]:
    """Return the text of a package's modules, queries and components by path; empty if all together are too large."""
    found: dict[str, str] = {}
    size = 0
    for path in sorted(root.joinpath(*package.split(".")).rglob("*")):
        if path.suffix not in KEPT or not path.is_file():
            continue
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue  # the import of this module reports the error
        size += len(text)
        if size > _MOST_CHARACTERS:
            return {}
        found[path.relative_to(root).as_posix()] = text
    return found


def keep_failed_requests(
    instance: DagsterInstance,
    home: Home,
    aside: Mapping[Target, str],
    unplannable: Mapping[str, str],
    ours: Collection[str],
) -> None:
    """Replace the record of a code location, and remove its assets from the records of its former names.

    Args:
        aside: Reason why requests fail, by target; (asset, None) means the whole asset.
        unplannable: Reason why an asset's runs cannot be planned, by asset.
        ours: The assets that this location builds. No other location on the instance builds them.
    """
    name = ASKED_IN_VAIN + _name(home)
    said = {"aside": [[*target, why] for target, why in aside.items()], "unplannable": dict(unplannable)}
    instance_store.save(instance, name, json.dumps(said))
    for other, text in instance_store.saved_under(instance, ASKED_IN_VAIN).items():
        before = _failures_in(text)
        left = {
            "aside": [row for row in before["aside"] if row[0] not in ours],
            "unplannable": {asset: why for asset, why in before["unplannable"].items() if asset not in ours},
        }
        if other != name and left != before:
            instance_store.save(instance, other, json.dumps(left))


def failed_requests(instance: DagsterInstance, graph: Graph) -> tuple[dict[Target, str], dict[str, str]]:
    """Return failed requests for a graph's assets, by any code location: `aside` and `unplannable`."""
    said = [_failures_in(text) for text in instance_store.saved_under(instance, ASKED_IN_VAIN).values()]
    aside = {(asset, partition): why for each in said for asset, partition, why in each["aside"]}
    unplannable = {asset: why for each in said for asset, why in each["unplannable"].items()}
    return (
        {target: why for target, why in aside.items() if target[0] in graph.nodes},
        {asset: why for asset, why in unplannable.items() if asset in graph.nodes},
    )


def _failures_in(text: str) -> dict[str, Any]:
    """Read a record of failed requests. A record of another release is empty."""
    try:
        found = json.loads(text)
        aside = [[asset, partition, str(why)] for asset, partition, why in found["aside"]]
        return {"aside": aside, "unplannable": dict(found["unplannable"])}
    except instance_store.UNREADABLE:
        return {"aside": [], "unplannable": {}}


def _name(home: Home) -> str:
    return "/".join(str(part) for part in home)
