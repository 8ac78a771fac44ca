"""Pauses that double with each failure in a row."""


def growing_pause(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after a number of failures in a row.

    Args:
        first: Seconds after the first failure.
        longest: Maximum number of seconds, at most a thousand times `first`.
    """
    return min(first * 2.0 ** min(failures - 1, 10), longest)
