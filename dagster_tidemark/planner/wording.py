"""How decisions are worded. Nothing that changes while nothing happens: a moment, never an age."""

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from dagster_tidemark.planner.graph import Target

_NAMED = 3


def moment(at: float, zone: str = "UTC") -> str:
    """Return a time to the second, with its time zone."""
    return f"{datetime.fromtimestamp(at, ZoneInfo(zone)):%Y-%m-%d %H:%M:%S} {zone}"


def name(target: Target) -> str:
    """An asset's partition."""
    return target[0] if target[1] is None else f"{target[0]} {target[1]}"


def names(all_: Iterable[str]) -> str:
    """A few of many names."""
    found = list(all_)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def failed(attempts: int) -> str:
    """Return the number of failures in a row, in words."""
    return f"{attempts} failed attempt" + ("s" if attempts != 1 else "")


def unanswered(times: int, next_try: float) -> str:
    """Of what was asked for again and again, and Dagster made no run of it."""
    return f"asked for {times} times and no run came, next at {moment(next_try)}"


def lost(ended_at: float) -> str:
    """Of what a run was to build that ended with the platform; nobody is to blame, and it is run again."""
    return f"its run was lost at {moment(ended_at)}, before it built this"
