"""Formats pauses, skips and rebuilds for a terminal."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dagster_tidemark.planner.overrides import Override, OverrideKind
from dagster_tidemark.planner.wording import moment, names

_DONE = {OverrideKind.PAUSE: "paused", OverrideKind.SKIP: "skipped", OverrideKind.REBUILD: "to be rebuilt"}


def lines(found: Sequence[Override], left: Mapping[str, int] = MappingProxyType({})) -> list[str]:
    """Return a line for each override.

    Args:
        left: Number of partitions that a rebuild has not reached or that a skip leaves out, by id.
    """
    return [_line(each, left) for each in found]


def _line(each: Override, left: Mapping[str, int]) -> str:
    covered = f" {each.partitions}" if each.partitions else ""
    concerned = [*each.assets, *(f"stream {stream}" for stream in each.streams)]
    of = f" ({names(concerned)})" if concerned != [each.what] else ""
    count = f", {left[each.id]} partitions" if each.id in left else ""
    ended = ""
    if each.ended_at is not None:
        ended = f"; ended {moment(each.ended_at)}" + (f" by {each.ended_by}" if each.ended_by else "")
    return (
        f"{each.id}: {each.what}{covered}{of} is {_DONE[each.kind]} since {moment(each.at)} {each.told()}{count}{ended}"
    )
