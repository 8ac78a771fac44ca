"""Python's garbage collector and a history of a million partitions.

A walk over such a history takes more than a second, and the many small objects of a plan cause several walks. The facts
of a history and a plan form no reference cycles, so they are freed without the collector.

Belongs here: when the collector walks. Does not belong here: which facts a history keeps (`planner.history`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 50_000


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector from starting a walk."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def frozen(partitions: int, before: int) -> int:
    """Exclude all present objects from later walks, if a history has grown much since the last exclusion.

    Args:
        partitions: The number of partitions in the history.
        before: Their number at the last exclusion; 0 if there was none.

    Returns:
        Their number at the last exclusion, which may be this call.
    """
    if partitions - before < max(_MANY, before // 2):
        return before
    gc.collect()
    gc.freeze()
    return partitions


def thaw() -> None:
    """Include all objects in later walks again, after an engine was dropped: a cycle may refer to its history."""
    gc.unfreeze()
