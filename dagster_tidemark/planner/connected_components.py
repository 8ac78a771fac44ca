"""Connected components of a graph, whatever the direction of its edges."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def connected(keys: Iterable[T], near: Callable[[T], Iterable[T]]) -> list[list[T]]:
    """Return the connected components of the keys. Keys keep their order; components are sorted by their first key.

    Args:
        near: Returns neighbors of a key. For an edge, one of the two keys must return the other. Neighbors outside
            `keys` are ignored.
    """
    ordered = list(dict.fromkeys(keys))
    beside: dict[T, set[T]] = {key: set() for key in ordered}
    for key in ordered:
        for other in near(key):
            if other in beside:
                beside[key].add(other)
                beside[other].add(key)
    part_of: dict[T, list[T]] = {}
    for key in ordered:
        if key not in part_of:
            part: list[T] = []
            new = [key]
            while new:
                one = new.pop()
                if one not in part_of:
                    part_of[one] = part
                    new += beside[one]
        part_of[key].append(key)
    return list({id(part): part for part in part_of.values()}.values())
