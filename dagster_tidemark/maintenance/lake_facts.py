"""Facts about the tables of a location, read table by table within a limited time.

One table that cannot be read is named and left alone. As long as it is unknown which snapshots its properties name, no
table's snapshots expire. That holds for every table of the catalog, because other code locations read and preview, too.

Does not belong here: the facts of one table (`lakehouse.maintenance.facts`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from dagster_tidemark.lakehouse.maintenance.due import Action, DueAction, MaintenancePolicy, TableFacts, due_actions
from dagster_tidemark.lakehouse.maintenance.expirable import Pins
from dagster_tidemark.lakehouse.maintenance.facts import NotRead, TableNeeds, facts_of, needs_of, pins_of
from dagster_tidemark.lakehouse.session import error_line
from dagster_tidemark.lakehouse.stored_tables import table_names
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.maintenance.maintained_tables import TableUpkeep
from dagster_tidemark.maintenance.spare_time import OpenRuns

_REMOVES = (Action.EXPIRE, Action.ORPHANS)
_MANIFEST_SECONDS = 3.0


@dataclass
class LakeFacts:
    """The facts about tables, as far as they have been read.

    Args:
        tables: The tables of the location by name.
        needs: By table, the marks in its properties and branches that protect snapshots.
        facts: The facts about each table that exists.
        unreadable: Why a table cannot be read, by name.
        others: Other tables of the catalog; None as long as they are not listed.
        broken: A part of the code location that cannot be loaded; empty if there is none.
    """

    tables: Mapping[str, Table]
    policy: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    needs: dict[str, TableNeeds] = field(default_factory=dict)
    facts: dict[str, TableFacts] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] | None = None
    broken: str = ""
    _unlisted: str = "not so far"

    def list_others(self, lake: Catalog) -> None:
        """List the other tables of the catalog. If that fails, nothing is removed."""
        try:
            names = table_names(lake)
        except Exception as error:  # catalogs raise errors of any type
            self.others, self._unlisted = None, error_line(error)
            return
        self.others = tuple(name for name in names if name not in self.tables)

    def read_all_needs(self, lake: Catalog) -> None:
        """Read the needs that each table of the catalog shows."""
        self.list_others(lake)
        for name in (*self.tables, *(self.others or ())):
            self.read_needs(lake, name)

    def read_needs(self, lake: Catalog, name: str) -> IcebergTable | None:
        """Read the metadata of a table, and return it; None if the table is missing or unreadable."""
        if self.others is None:
            self.list_others(lake)
        try:
            found = lake.load_table(name)
            self.needs[name] = needs_of(found)
        except NoSuchTableError:
            self.needs[name] = TableNeeds()
            self.facts.pop(name, None)
            self.unreadable.pop(name, None)
            return None
        except Exception as error:  # the catalog, the store, the metadata or a property of this table
            self.needs.pop(name, None)
            self._give_up(name, error)
            return None
        self.unreadable.pop(name, None)
        return found

    def read(self, lake: Catalog, name: str, upkeep: TableUpkeep, runs: OpenRuns, now: float) -> IcebergTable | None:
        """Read the facts about a table, and return its metadata; None if the table is missing or unreadable."""
        found = self.read_needs(lake, name)
        if found is None:
            return None
        stop_at = time.monotonic() + _MANIFEST_SECONDS
        try:
            self.facts[name] = facts_of(
                self.tables[name],
                found,
                self.pins(runs, now),
                self.policy,
                now,
                upkeep.last,
                builds=runs.builds.get(name.replace(".", "/"), ""),
                stop=lambda: time.monotonic() > stop_at,
            )
        except NotRead:
            # The manifests that were read are kept, so the next attempt gets further.
            self.unreadable[name] = f"its manifests take more than {_MANIFEST_SECONDS:.0f} s to read; continuing later"
            return None
        except Exception as error:  # such as a property with a wrong value
            self._give_up(name, error)
            return None
        return found

    def pins(self, runs: OpenRuns, now: float) -> Pins:
        """Return what readers need. It is complete only if `missing` is empty."""
        return pins_of(self.needs.values(), min(runs.since, now), now)

    @property
    def missing(self) -> str:
        """Why the needs of readers are unknown; empty if all are known."""
        if self.broken:
            return f"a part of the code location is broken, whose needs are unknown: {self.broken}"
        if self.others is None:
            return f"the tables of the catalog are not listed: {self._unlisted}"
        name = next((name for name in (*self.tables, *self.others) if name not in self.needs), "")
        why = self.unreadable.get(name, "not read so far")
        return f"{name} may need snapshots, and is unreadable: {why}" if name else ""

    def due(self, name: str, now: float) -> Iterator[DueAction]:
        """Yield the due actions on a table. Nothing is removed while the needs of any table are unknown."""
        facts = self.facts.get(name)
        if facts is None or name in self.unreadable:
            return
        for each in due_actions(facts, self.policy, now):
            if each.action in _REMOVES and not each.waits and (why := self.missing):
                yield DueAction(name, each.action, each.reason, why)
            else:
                yield each

    def _give_up(self, name: str, error: Exception) -> None:
        said = error_line(error)
        self.unreadable[name] = said
        self.facts.pop(name, None)


def locations(lake: Catalog) -> dict[str, str]:
    """Return the folder of each table of the catalog, including tables of others.

    Raises:
        Exception: the catalog or a table cannot be read. Then no folder is known to be free of other tables.
    """
    return {name: lake.load_table(name).location() for name in table_names(lake)}
