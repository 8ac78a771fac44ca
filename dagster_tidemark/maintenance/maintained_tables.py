"""The tables that maintenance looks after, and the last maintenance of each, kept in the instance's storage."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE, WAIVERS
from dagster_tidemark.lakehouse.maintenance.due import Action, LastAction
from dagster_tidemark.lakehouse.maintenance.maintenance_table import MAINTENANCE
from dagster_tidemark.lakehouse.maintenance.orphans import OrphanSearch
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.tags import MAINTAINED


@dataclass(frozen=True)
class TableUpkeep:
    """The last maintenance of a table.

    Args:
        last: The last run of each action.
        searched: The last search for orphan files.
    """

    last: Mapping[Action, LastAction] = field(default_factory=dict)
    searched: OrphanSearch | None = None

    def with_action(self, action: Action, done: LastAction) -> "TableUpkeep":
        """Return the upkeep after an action."""
        return replace(self, last={**self.last, action: done})


def maintained_tables(tables: Iterable[Table], streams: Sequence[Stream | Deliveries] = ()) -> dict[str, Table]:
    """Return every table of a location by name: declared tables, tables of streams and alerts, and the library's."""
    of_streams = [stream.table for stream in streams]
    reactions = [stream.reaction for stream in streams if isinstance(stream, Stream) and stream.reaction]
    followed = [table for each in reactions if isinstance(table := getattr(each, "table", None), Table)]
    every = (*tables, *of_streams, *followed, QUARANTINE, WAIVERS, MAINTENANCE)
    return {table.name: table for table in reversed(every)}


def saved_upkeep(instance: DagsterInstance, location: str, tables: Iterable[str]) -> dict[str, TableUpkeep]:
    """Return the last maintenance of some tables, by name. An unreadable record counts as none."""
    names = list(tables)
    saved = instance_store.saved_values(instance, [_key(location, name) for name in names])
    return {name: _read(saved.get(_key(location, name))) for name in names}


def save_upkeep(instance: DagsterInstance, location: str, table: str, upkeep: TableUpkeep) -> None:
    """Save the last maintenance of a table."""
    searched = upkeep.searched
    value = {
        "version": _VERSION,
        "last": {str(action): vars(done) for action, done in upkeep.last.items()},
        "searched": None if searched is None else {"at": searched.at, "files": sorted(searched.files)},
    }
    instance_store.save(instance, _key(location, table), json.dumps(value))


_VERSION = 1


def _key(location: str, table: str) -> str:
    return f"{MAINTAINED}{location}/{table}"


def _read(text: str | None) -> TableUpkeep:
    value = instance_store.members_of(text)
    if value.get("version") != _VERSION:
        return TableUpkeep()
    try:
        searched = value["searched"]
        return TableUpkeep(
            {Action(name): LastAction(**done) for name, done in value["last"].items()},
            None if searched is None else OrphanSearch(searched["at"], frozenset(searched["files"])),
        )
    except instance_store.UNREADABLE:  # for example an action that this release does not have
        return TableUpkeep()
