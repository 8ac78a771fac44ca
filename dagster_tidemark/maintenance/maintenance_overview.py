"""Due maintenance of a location at the last tick of its sensor, kept in the instance's storage.

`tidemark status` and `tidemark plan` print it. Does not belong here: the decision (`lakehouse.maintenance.due`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_time, instance_store
from dagster_tidemark.lakehouse.maintenance.due import Action, DueAction
from dagster_tidemark.planner.wording import names
from dagster_tidemark.tags import MAINTENANCE_DUE

_VERSION = 1
_SHOWN = 5
_HOLDS_FOR = 900.0


@dataclass(frozen=True)
class MaintenanceOverview:
    """Due maintenance at one time.

    Args:
        at: Unix seconds.
        why_not: Why no maintenance runs now; empty if it was requested.
        due: The due actions.
        unreadable: Why a table's metadata cannot be read, by name.
    """

    at: float
    why_not: str = ""
    due: tuple[DueAction, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield a line for each table with due maintenance, and for each unreadable table, at most five each."""
        by_table: dict[str, list[DueAction]] = {}
        for each in self.due:
            by_table.setdefault(each.table, []).append(each)
        for table, actions in list(by_table.items())[:_SHOWN]:
            would = ", ".join(f"{each.action} ({each.reason})" for each in actions)
            waits = next((each.waits for each in actions if each.waits), "")
            why = (waits if all(each.waits for each in actions) else "") or self.why_not
            yield f"maintenance of {table}: would {would}; " + (f"not now: {why}" if why else "requested")
        if len(by_table) > _SHOWN:
            yield f"maintenance is due for {len(by_table) - _SHOWN} more tables: {names(list(by_table)[_SHOWN:])}"
        unknown = sorted(self.unreadable.items())
        for table, why in unknown[:_SHOWN]:
            yield f"maintenance of {table}: unknown: {why}"
        if len(unknown) > _SHOWN:
            yield f"maintenance is unknown for {len(unknown) - _SHOWN} more tables"


def keep_overview(instance: DagsterInstance, location: str, found: MaintenanceOverview) -> None:
    """Save an overview. It replaces the last one."""
    value = {
        "version": _VERSION,
        "at": found.at,
        "why_not": found.why_not,
        "due": [[d.table, str(d.action), d.reason, d.waits, d.usual_seconds] for d in found.due],
        "unreadable": dict(found.unreadable),
    }
    instance_store.save(instance, MAINTENANCE_DUE + location, json.dumps(value))


def kept_overview(instance: DagsterInstance, location: str) -> MaintenanceOverview | None:
    """Return the overview that was saved last; None if there is none, or if the sensor has not run lately.

    Other versions are ignored.
    """
    value = instance_store.members_of(instance_store.saved(instance, MAINTENANCE_DUE + location))
    if value.get("version") != _VERSION:
        return None
    try:
        due = tuple(DueAction(table, Action(action), *rest) for table, action, *rest in value["due"])
        found = MaintenanceOverview(value["at"], value["why_not"], due, value["unreadable"])
        return found if found.at >= event_time.now() - _HOLDS_FOR else None
    except instance_store.UNREADABLE:  # for example an action that this release does not have
        return None
