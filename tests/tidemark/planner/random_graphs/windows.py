"""When a partition's window ends, and from when on the partition exists."""

import dagster as dg

from tests.tidemark.planner.random_graphs.play import Day
from tests.tidemark.planner.random_graphs.shapes import Table, Target, definition


def window_of(day: Day, table: Table, target: Target) -> tuple[float, float]:
    """When a partition's window ends, and from when on it exists (0 where it is not of time), Unix seconds."""
    by = definition(day.world, table.grain)
    key = target[1]
    if isinstance(by, dg.MultiPartitionsDefinition):
        key = by.get_partition_key_from_str(str(key)).keys_by_dimension["day"]
        by = definition(day.world, "days")
    if not isinstance(by, dg.TimeWindowPartitionsDefinition):
        return 0.0, _key_exists_from(day, table, target)
    window = by.time_window_for_partition_key(str(key))
    exists = window.start if day.world.offset > 0 else window.end
    if day.world.offset < 0:
        (_, exists) = by.get_next_partition_window(window.end, respect_bounds=False) or window
    return window.end.timestamp(), max(exists.timestamp(), _key_exists_from(day, table, target))


def _key_exists_from(day: Day, table: Table, target: Target) -> float:
    if "dynamic" not in table.grain and "static" not in table.grain:
        return 0.0
    keys, what = set(str(target[1]).split("|")), ("add_key", "remove_key", "declare_key")
    added = [e.at for e in day.world.events if e.what in what and e.of[0] in keys]
    return day.simulation.time(seconds=max(added, default=0.0))
