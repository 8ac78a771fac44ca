"""Promises about sources that code locations declare, kept for the graphs that this process makes.

An expected arrival holds functions and calendars, which no metadata of an asset can hold. So a graph finds the promises
here, by the key of the source. Does not belong here: their meaning (`planner.contracts`).
"""

from collections.abc import Sequence

from dagster_tidemark.planner.contracts import InputPromise

_declared: dict[str, tuple[InputPromise, ...]] = {}


def declare_promises(location: str, promises: Sequence[InputPromise]) -> None:
    """Remember the promises that a code location declares. They replace its earlier ones."""
    _declared[location] = tuple(promises)


def promises_of(source: str) -> tuple[InputPromise, ...]:
    """Return the promises about a source."""
    return tuple(each for every in _declared.values() for each in every if each.source == source)
