"""The cold chain's alert rule: when a sensor has been too warm for too long.

Belongs here: the rule, on the readings of one sensor, in plain Python. The run that receives the readings evaluates it
within seconds, and Spark evaluates it over all of history (`cold_chain_history.py`). Does not belong here: storing and
sending the alerts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dagster_tidemark.streams import Episode

STARTS_ABOVE_C = 8.0
ENDS_BELOW_C = 6.0
SILENCE = timedelta(minutes=15)
LASTS = timedelta(minutes=10)

Reading = Mapping[str, Any]
"""`read_at` (with a time zone), `temperature_c` and `store_id` of a reading; other fields are ignored."""


def too_warm(readings: Iterable[Reading]) -> Iterator[Episode]:
    """Yield the episodes of one sensor that are worth an alert, each when it ends.

    An episode starts with a reading above 8.0 C. It ends before a reading below 6.0 C, or after more than 15 minutes
    without a reading. It is worth an alert if its first and last reading are at least 10 minutes apart, by the
    readings' own time and not by their arrival. Its store is the store of its first reading.

    Args:
        readings: The sensor's readings in the order of time, one per time.
    """
    first = None
    last = None
    for reading in readings:
        if first is not None and last is not None and _is_over(last, reading):
            yield from _worth_an_alert(first, last)
            first = None
        if first is None and reading["temperature_c"] > STARTS_ABOVE_C:
            first = reading
        last = reading
    if first is not None and last is not None:
        yield from _worth_an_alert(first, last)


def _is_over(last: Reading, reading: Reading) -> bool:
    """Return True if an episode with the last reading `last` ends before `reading`."""
    return bool(reading["temperature_c"] < ENDS_BELOW_C or reading["read_at"] - last["read_at"] > SILENCE)


def _worth_an_alert(first: Reading, last: Reading) -> Iterator[Episode]:
    if last["read_at"] - first["read_at"] >= LASTS:
        yield Episode(first["read_at"], last["read_at"], {"store_id": first["store_id"]})


class TooWarm:
    """The rule in the form that a stream's alerts use."""

    name = "too_warm"
    silence = SILENCE

    def closes(self, fields: Reading) -> bool:
        """Return True if a reading ends any episode."""
        return bool(fields["temperature_c"] < ENDS_BELOW_C)

    def episodes(self, said: Sequence[Reading]) -> list[Episode]:
        """Return the episodes of one sensor that are worth an alert."""
        return list(too_warm(said))


TOO_WARM = TooWarm()
