"""Pauses that double with each failure in a row, and their ends."""


def growing_pause(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after a number of failures in a row.

    Args:
        first: Seconds after the first failure.
        longest: Maximum number of seconds, at most a thousand times `first`.
    """
    return min(first * 2.0 ** min(failures - 1, 10), longest)


def end_of_pause(since: float, seconds: float, now: float) -> float:
    """Return the end of a pause; 0 if the clock was set back since its begin. All times are Unix seconds.

    The clocks of two hosts may differ by less than the pause.
    """
    return 0.0 if since > now + seconds else since + seconds
