"""The connected parts of a graph: what hangs together, whatever the direction."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def connected(keys: Iterable[T], near: Callable[[T], Iterable[T]]) -> list[list[T]]:
    """The parts of some keys, each in the order of the keys, the parts in the order of the first of each.

    Args:
        near: What a key hangs together with, in one direction at least; what is none of the keys does not count.
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
