"""Time partitions: windows of any length, in any time zone, with any gaps.

Belongs here: the functions of `partition_keys.Keys` for a TimeWindowPartitionsDefinition. Each window comes from the
definition's schedule and is never computed from the length of other windows. With an `end_offset` of n, a partition
exists from the end of the window n windows earlier.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import dagster as dg

from dagster_tidemark.asset_graph.declarations import Refused
from dagster_tidemark.dagster_internals.partitions import PartitionsSubset, as_of, window_name
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.graph import Moment
from dagster_tidemark.sources.feed import Partition

_MANY = 100_000


def _refuse_uneven(definition: dg.TimeWindowPartitionsDefinition) -> None:
    """Raise Refused if a clock change would split a window, because Dagster then names later windows differently."""
    zone, year = ZoneInfo(definition.timezone), definition.start.year
    offsets = {datetime(year, month, 1, tzinfo=zone).utcoffset() or timedelta() for month in range(1, 13)}
    window = definition.get_next_partition_window(_time(definition.start_timestamp), respect_bounds=False)
    shift = max(offsets) - min(offsets)
    # Windows of more than an hour begin at fixed hours of the day, so clock changes do not change their names.
    if window is None or window.end - window.start > timedelta(hours=1) or not shift:
        return
    if shift % (window.end - window.start):
        minutes = int(shift.total_seconds() // 60)
        raise Refused(
            f"its windows do not divide the {minutes} minutes by which the clocks of {definition.timezone} change: "
            "use timezone='UTC', or daily windows"
        )


class TimePartitions:
    """Partitions of one time definition. Facts about keys are cached: Dagster takes 100 microseconds for each."""

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition, moment: Moment) -> None:
        _refuse_uneven(definition)
        self.definition, self.moment = definition, moment
        self._read: Callable[[Partition], Window | str] = lru_cache(maxsize=_MANY)(self._find)
        self.exists_from: Callable[[Partition], float] = lru_cache(maxsize=_MANY)(self._begins)
        self._listed: tuple[float, tuple[Partition, ...]] = (definition.start_timestamp, ())  # end of list, its keys
        self._ends: Sequence[Partition] = ()
        self._last_end = definition.start_timestamp
        self._steady: tuple[float, float] = (0.0, 0.0)  # start and end of a time span in which no partition appears

    def window(self, partition: Partition) -> Window | None:
        """Return the window of a partition; None for an invalid key."""
        found = self._read(partition)
        return None if isinstance(found, str) else found

    def problem(self, partition: Partition) -> str | None:
        """Return the reason why a key is invalid; None if it is valid."""
        found = self._read(partition)
        return found if isinstance(found, str) else None

    def exists(self, partition: Partition) -> bool:
        """Return True if a partition exists at the planner's moment."""
        return self.exists_from(partition) <= self.moment.now

    def order(self, partition: Partition) -> float:
        """Return the start of a partition's window (Unix seconds)."""
        window = self.window(partition)
        return float("-inf") if window is None else window.start

    def follows(self, earlier: Partition, later: Partition) -> bool:
        """Return True if the window of `later` is the next one after the window of `earlier`."""
        one, other = self.window(earlier), self.window(later)
        if one is None or other is None:
            return False
        return (self._after(one.end).start if self.definition.exclusions else one.end) == other.start

    def subset(self, partition: Partition) -> PartitionsSubset:
        """Return Dagster's subset with a partition. It is made from the window, because Dagster omits future keys."""
        window = self.window(partition)
        if window is None:
            return self.definition.empty_subset()
        return self.definition.get_partition_subset_in_time_window(
            dg.TimeWindow(_time(window.start), _time(window.end))
        )

    def keys(self) -> Sequence[Partition]:
        """Return all partitions that exist at the planner's moment. Each call only adds new keys to a cached list."""
        self._look()
        until, keys = self._listed
        if keys and not self.exists(keys[-1]):  # the clock was set back
            until, keys = self.definition.start_timestamp, ()
        if self._last_end > until:
            new = self.definition.get_partition_keys_in_time_window(dg.TimeWindow(_time(until), _time(self._last_end)))
            if new and self.exists(new[-1]):
                until, keys = self._last_end, (*keys, *new)
        self._listed = until, keys
        return keys

    def ends(self) -> Sequence[Partition]:
        """Return the first and last partition that exist at the planner's moment, without listing the others."""
        self._look()
        return self._ends

    def _look(self) -> None:
        now = self.moment.now
        if self._steady[0] <= now < self._steady[1]:
            return
        with as_of(self.moment):
            last = self.definition.get_last_partition_window()
            found = (self.definition.get_first_partition_key(), self.definition.get_last_partition_key())
        self._last_end = self.definition.start_timestamp if last is None else last.end.timestamp()
        self._ends = tuple(dict.fromkeys(p for p in found if p is not None and self.exists(p)))
        following = self._after(self._last_end)
        self._steady = now, self._exists_from(following)

    def _find(self, partition: Partition) -> Window | str:
        if partition is None:
            return "no partition, but the asset is partitioned"
        definition, end = self.definition, self.definition.end_timestamp
        try:
            window = definition.time_window_for_partition_key(partition)
            name = window_name(window, definition)
        except Exception as error:  # parsing an invalid key may raise any error
            return f"{partition!r} is not a partition key: {error}"
        found = Window(window.start.timestamp(), window.end.timestamp())
        if name != partition:
            return f"{partition!r} is not the start of a window"
        if found.start < definition.start_timestamp:
            return f"{partition!r} is before the first partition"
        if end is not None and found.end > end:
            return f"{partition!r} is after the last partition"
        return found

    def _begins(self, partition: Partition) -> float:
        window = self.window(partition)
        return float("inf") if window is None else self._exists_from(window)

    def _exists_from(self, window: Window) -> float:
        offset = self.definition.end_offset
        if offset == 1 and not self.definition.exclusions:
            return window.start  # equals the end of the previous window
        for _ in range(-offset):
            window = self._after(window.end)
        for _ in range(offset):
            window = self._before(window.start)
        return window.end

    def _after(self, at: float) -> Window:
        found = self.definition.get_next_partition_window(_time(at), respect_bounds=False)
        assert found is not None  # without bounds there is always one
        return Window(found.start.timestamp(), found.end.timestamp())

    def _before(self, at: float) -> Window:
        found = self.definition.get_prev_partition_window(_time(at), respect_bounds=False)
        assert found is not None
        return Window(found.start.timestamp(), found.end.timestamp())


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
