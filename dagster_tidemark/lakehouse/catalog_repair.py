"""Comparison of the catalog with the metadata files in the warehouse, and its repair after a restore.

A restored catalog may lack tables, or be older or newer than the warehouse. Each table's folder has its last metadata
files, so that a table can be registered again. Belongs here: what is found for each table, and the changes of the
catalog. Does not belong here: the rows of a table, which are built again (`tidemark rebuild`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, ValidationError
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.maintenance.orphans import plain
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.stored_tables import table_names

_FILE = re.compile(r"v?(\d+)(?:-[^/]*)?\.metadata\.json$")
_GENERATION = re.compile(r"_generation_(\d+)$")
_CANDIDATES = 3


class CatalogState(StrEnum):
    """Result of the comparison for one table."""

    OK = "ok"
    UNREGISTERED = "not in the catalog"
    BEHIND = "the catalog is older than the warehouse"
    UNREADABLE = "the metadata file of the catalog is gone"
    AMBIGUOUS = "two metadata files are the newest"
    DAMAGED = "files are gone"
    LOST = "no metadata file is left"


REPAIRABLE = frozenset({CatalogState.UNREGISTERED, CatalogState.BEHIND, CatalogState.UNREADABLE})


@dataclass(frozen=True)
class ComparedTable:
    """A table of the catalog or of the warehouse.

    Args:
        newest: The newest metadata file in its folder, or the candidates of `AMBIGUOUS`, separated by commas.
        said: Details in words.
    """

    name: str
    state: CatalogState
    newest: str = ""
    said: str = ""


class NotRepaired(Terminal):
    """Error if the catalog is not changed, because the request does not fit what the comparison has found."""


@dataclass(frozen=True)
class _Metadata:
    """A metadata file: its version, and the table that is read from it."""

    version: int
    table: IcebergTable

    @property
    def location(self) -> str:
        return self.table.metadata_location

    @property
    def order(self) -> tuple[int, int]:
        return self.table.metadata.last_updated_ms, self.version


def compared(lake: Catalog, warehouse: str) -> list[ComparedTable]:
    """Return each table of the catalog and of the warehouse with the state of its entry.

    Args:
        warehouse: The folder of all tables. Tables elsewhere are read, and their files are not listed.
    """
    files = _listed(lake, warehouse)
    folders = _folders(files, plain(warehouse))
    names = {*folders, *table_names(lake)}
    known = frozenset(plain(path) for path, _ in files)
    return [_compared_or_damaged(lake, name, folders.get(name, {}), known, plain(warehouse)) for name in sorted(names)]


def repair(lake: Catalog, found: ComparedTable) -> None:
    """Make the catalog name the newest metadata file of a table. A second call after a crash completes the first.

    Raises:
        NotRepaired: the state of the table is not one that a registration mends.
    """
    if found.state not in REPAIRABLE:
        raise NotRepaired(f"{found.name}: expected a table to register, found: {found.state}; see --drop")
    forget(lake, found.name)
    parts = tuple(found.name.split("."))[:-1]
    for end in range(1, len(parts) + 1):
        try:
            lake.create_namespace(parts[:end])
        except NamespaceAlreadyExistsError:
            continue
    lake.register_table(found.name, found.newest)


def forget(lake: Catalog, name: str) -> None:
    """Remove a table from the catalog. Its files stay."""
    try:
        lake.drop_table(name)
    except NoSuchTableError:
        return


def _listed(lake: Catalog, warehouse: str) -> list[tuple[str, int]]:
    """Return each file of the warehouse as a URI, with its modification time (ns)."""
    at = urlsplit(warehouse)
    io: Any = load_file_io(lake.properties, warehouse)
    path = f"{at.netloc}{at.path}" if at.netloc else at.path
    system: fs.FileSystem = io.fs_by_scheme(at.scheme or "file", at.netloc or None)
    prefix = f"{at.scheme}://" if at.scheme else ""
    selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
    return [
        (f"{prefix}{each.path}", each.mtime_ns or 0)
        for each in system.get_file_info(selector)
        if each.type is fs.FileType.File
    ]


def _folders(files: Collection[tuple[str, int]], root: str) -> dict[str, dict[str, int]]:
    """Return the metadata files of each table by its name, with their modification times."""
    by_folder: dict[str, dict[str, int]] = {}
    for uri, changed in files:
        folder, _, name = plain(uri).rstrip("/").rpartition("/metadata/")
        if folder and _FILE.search(name):
            by_folder.setdefault(folder.removeprefix(root).replace("/", "."), {})[uri] = changed
    newest: dict[str, int] = {}
    for folder in by_folder:
        base, generation = _base(folder)
        newest[base] = max(newest.get(base, 1), generation)
    named = {}
    for folder, found in by_folder.items():
        base, generation = _base(folder)
        named[base if generation == newest[base] else f"{base}_generation_{generation}"] = found
    return named


def _base(folder: str) -> tuple[str, int]:
    """Return the name without the number of a generation, and the number: 1 for the first (see `Table.generation`)."""
    match = _GENERATION.search(folder)
    return (folder[: match.start()], int(match[1])) if match else (folder, 1)


def _compared_or_damaged(
    lake: Catalog, name: str, files: Mapping[str, int], known: frozenset[str], root: str
) -> ComparedTable:
    try:
        return _compared(lake, name, files, known, root)
    except (ValueError, ValidationError) as error:  # a file that is no metadata; faults of the store are raised
        return ComparedTable(name, CatalogState.DAMAGED, said=f"a metadata file cannot be read: {error_line(error)}")


def _compared(lake: Catalog, name: str, files: Mapping[str, int], known: frozenset[str], root: str) -> ComparedTable:
    current, fault, registered = None, "", True
    try:
        current = lake.load_table(name)
    except NoSuchTableError:
        registered = False
    except Exception as error:  # each store has its own errors; only a missing file is a verdict
        if not _is_missing(error):
            raise
        fault = error_line(error)
    newest = _newest(lake, files)
    if not newest:
        return ComparedTable(name, CatalogState.LOST if current is None else CatalogState.OK, said=fault)
    state = CatalogState.UNREGISTERED if not registered else CatalogState.UNREADABLE
    if current is not None:
        same = [each for each in newest if each.table.metadata.table_uuid == current.metadata.table_uuid]
        is_behind = same and _version(current.metadata_location) < same[0].version
        state, newest = (CatalogState.BEHIND, same) if is_behind else (CatalogState.OK, [])
    if len(newest) > 1:
        return ComparedTable(name, CatalogState.AMBIGUOUS, ", ".join(each.location for each in newest), str(state))
    table = newest[0].table if newest else current
    assert table is not None
    lacking = list(_lacking(table, known, root))
    if lacking:
        said = f"{len(lacking)} files, such as {lacking[0]}"
        return ComparedTable(name, CatalogState.DAMAGED, table.metadata_location, said)
    return ComparedTable(name, state, table.metadata_location, fault)


def _newest(lake: Catalog, files: Mapping[str, int]) -> list[_Metadata]:
    """Return the newest metadata file of a folder; several if they have the same version of the same table.

    A folder may have files of a former table of the same name. Their versions may be higher.
    """
    chosen = {*sorted(files, key=_version)[-_CANDIDATES:], *sorted(files, key=lambda uri: files[uri])[-_CANDIDATES:]}
    read = [_Metadata(_version(uri), StaticTable.from_metadata(uri, lake.properties)) for uri in chosen]
    if not read:
        return []
    last = max(read, key=lambda each: each.order)
    lineage = [each for each in read if each.table.metadata.table_uuid == last.table.metadata.table_uuid]
    top = max(each.version for each in lineage)
    return sorted((each for each in lineage if each.version == top), key=lambda each: each.order)


def _version(location: str) -> int:
    found = _FILE.search(location)
    return int(found[1]) if found else -1


def _lacking(table: IcebergTable, known: frozenset[str], root: str) -> Iterator[str]:
    """Yield files that the current snapshot needs and the warehouse lacks. Files outside the warehouse are left out."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    needed = [snapshot.manifest_list]
    if _has(snapshot.manifest_list, known, root):
        manifests = snapshot.manifests(table.io)
        needed += [each.manifest_path for each in manifests]
        for each in manifests:
            if _has(each.manifest_path, known, root):
                needed += [entry.data_file.file_path for entry in each.fetch_manifest_entry(table.io)]
    yield from (file for file in needed if not _has(file, known, root))


def _has(file: str, known: frozenset[str], root: str) -> bool:
    return plain(file) in known or not plain(file).startswith(root)


def _is_missing(error: BaseException) -> bool:
    """Return True if an error means that a file does not exist, and not that the store does not answer."""
    return isinstance(error, FileNotFoundError)
