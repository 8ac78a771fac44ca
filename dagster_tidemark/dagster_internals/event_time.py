"""The clock that stamps the events of an instance."""

from dagster._time import get_current_timestamp


def now() -> float:
    """Return the time (Unix seconds) of the clock that stamps the instance's events. The clock may be simulated."""
    return get_current_timestamp()
