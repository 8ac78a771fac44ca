"""The offsets of a time zone from UTC, as plain data.

Spark's workers may have no time zone database, so the offsets are sent with the declaration. Does not belong here:
conversion of values (`lakehouse.parsing.value_forms`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

_FIRST, _LAST = datetime(1900, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_STEP = timedelta(days=7)  # shorter than the shortest time between two changes: Morocco's month of Ramadan


@dataclass(frozen=True)
class ZoneTable:
    """Offsets of a zone.

    Args:
        begins: Start of each offset in seconds since 1970 (UTC). The first offset also applies before its start.
        offsets: The offsets from UTC in seconds.
    """

    begins: tuple[int, ...]
    offsets: tuple[int, ...]


@cache
def zone_table(name: str) -> ZoneTable:
    """Return the offsets of a zone in the years 1900 to 2099. The first and the last offset also apply outside."""
    zone = ZoneInfo(name)

    def offset(at: datetime) -> int:
        return int((at.astimezone(zone).utcoffset() or timedelta()).total_seconds())

    begins, offsets = [int(_FIRST.timestamp())], [offset(_FIRST)]
    at = _FIRST
    while at < _LAST:
        after = at + _STEP
        if offset(after) != offsets[-1]:
            before, later = at, after
            while later - before > timedelta(seconds=1):
                middle = before + (later - before) // 2
                middle = middle.replace(microsecond=0)
                before, later = (before, middle) if offset(middle) != offsets[-1] else (middle, later)
            begins.append(int(later.timestamp()))
            offsets.append(offset(later))
            at = later
        else:
            at = after
    return ZoneTable(tuple(begins), tuple(offsets))
