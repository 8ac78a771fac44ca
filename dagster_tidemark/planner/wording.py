"""Wording of decisions. Texts contain times and never ages, so that they change only if something happens."""

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from dagster_tidemark.planner.graph import Target

_NAMED = 3


def moment(at: float, zone: str = "UTC") -> str:
    """Return a time to the second, with its time zone."""
    return f"{datetime.fromtimestamp(at, ZoneInfo(zone)):%Y-%m-%d %H:%M:%S} {zone}"


def name(target: Target) -> str:
    """Return the name of an asset's partition."""
    return target[0] if target[1] is None else f"{target[0]} {target[1]}"


def names(all_: Iterable[str]) -> str:
    """Return the first few names, and the number of further names."""
    found = list(all_)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def counted(number: int, of: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def failed(attempts: int) -> str:
    """Return the number of failures in a row, in words."""
    return counted(attempts, "failed attempt")


def unanswered(times: int, next_try: float) -> str:
    """Return the text for a partition that was requested repeatedly and got no run."""
    return f"requested {times} times without a run, next at {moment(next_try)}"


def lost(ended_at: float) -> str:
    """Return the text for a run that the platform lost before it built its partition. The run is repeated."""
    return f"its run was lost at {moment(ended_at)}, before it built this"
