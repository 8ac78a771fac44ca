"""Control of Python's garbage collector, for histories of a million partitions and for imports.

A collection over a history takes more than a second, and the many small objects of a plan trigger several. The
objects of histories and plans have no reference cycles, so they are freed without the collector. The import of Dagster,
PySpark and a code location creates a million objects that stay: collections take a quarter of its time.

Belongs here: when the collector runs. Does not belong here: which facts a history keeps (`planner.history`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 50_000


@contextmanager
def paused() -> Iterator[None]:
    """Disable the garbage collector during the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def frozen(partitions: int, before: int) -> int:
    """Exclude all present objects from later collections, if a history has grown much since the last exclusion.

    Args:
        partitions: The number of partitions in the history.
        before: The number of partitions at the last exclusion; 0 if there was none.

    Returns:
        The number of partitions at the last exclusion, which may be this call.
    """
    if partitions - before < max(_MANY, before // 2):
        return before
    gc.collect()
    gc.freeze()
    return partitions


def thaw() -> None:
    """Include all objects in collections again, after an engine was dropped: a cycle may refer to its history."""
    gc.unfreeze()
