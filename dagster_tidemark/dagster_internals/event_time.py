"""The clock that stamps the events of an instance."""

from dagster._time import get_current_timestamp


def now() -> float:
    """Return the time in Unix seconds by the clock that stamps the instance's events, which may be a simulated one."""
    return get_current_timestamp()
