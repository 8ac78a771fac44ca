"""The cold chain: when somebody has to act because a sensor is too warm.

Belongs here: the rule, on the readings of one sensor, in plain Python: it is asked within seconds by the run that takes
the readings, and by Spark over all of history (`cold_chain_history.py`). Does not belong here: which alert stands for
which episode, and who is told.
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
"""`read_at` (with a time zone), `temperature_c` and `store_id` of a reading; more does no harm."""


def too_warm(readings: Iterable[Reading]) -> Iterator[Episode]:
    """The episodes of one sensor that are worth an alert, as they end.

    An episode starts with a reading above 8.0 C and holds what follows until, before a reading below 6.0 C or after
    more than 15 minutes without any, it is over. It is worth an alert if there are at least 10 minutes from its first
    to its last reading: by the readings' own time, whenever they came. It is that of the store in which it started.

    Args:
        readings: In the order of their time, one a time.
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
    """Whether an episode that lasted until one reading does not hold the next."""
    return bool(reading["temperature_c"] < ENDS_BELOW_C or reading["read_at"] - last["read_at"] > SILENCE)


def _worth_an_alert(first: Reading, last: Reading) -> Iterator[Episode]:
    if last["read_at"] - first["read_at"] >= LASTS:
        yield Episode(first["read_at"], last["read_at"], {"store_id": first["store_id"]})


class TooWarm:
    """The rule as a stream's alerts ask for it."""

    name = "too_warm"
    silence = SILENCE

    def closes(self, fields: Reading) -> bool:
        """No episode goes on over such a reading."""
        return bool(fields["temperature_c"] < ENDS_BELOW_C)

    def episodes(self, said: Sequence[Reading]) -> list[Episode]:
        """The episodes of one sensor that are worth an alert."""
        return list(too_warm(said))


TOO_WARM = TooWarm()
