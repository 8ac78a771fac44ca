"""Partitions that are days, named by their number since 1970."""

from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.sources.feed import Partition

DAY = 86_400.0


def day(partition: Partition) -> Window:
    """Return the window of a day."""
    return Window(int(partition or 0) * DAY, (int(partition or 0) + 1) * DAY)


def days(_asset: str, after: float, until: float) -> list[str]:
    """Return the days that end within a period, of the first sixty."""
    return [str(n) for n in range(60) if after < (n + 1) * DAY <= until]
