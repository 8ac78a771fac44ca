"""What comes as messages, and the alerts that follow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dagster_tidemark.streams import Alerting, Episode, Stream
from shop.tables import ALERTS
from shop.tables import READINGS as TABLE

LIMIT_C = 8.0
SILENCE = timedelta(minutes=15)


def warm(readings: Iterable[Mapping[str, Any]]) -> Iterator[Episode]:
    """Yield each time without silence in which a sensor was above the limit for ten minutes."""
    first: Mapping[str, Any] | None = None
    last: Mapping[str, Any] | None = None
    for reading in [*readings, None]:
        is_over = reading is None or reading["temperature_c"] <= LIMIT_C
        if first is not None and last is not None and (is_over or reading["read_at"] - last["read_at"] > SILENCE):
            if last["read_at"] - first["read_at"] >= timedelta(minutes=10):
                yield Episode(first["read_at"], last["read_at"], {})
            first = None
        first = first or (None if is_over else reading)
        last = reading


class Warm:
    """The rule of the alerts."""

    name = "warm"
    silence = SILENCE

    def closes(self, fields: Mapping[str, Any]) -> bool:
        """Return True if no episode continues over this reading."""
        return bool(fields["temperature_c"] <= LIMIT_C)

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> list[Episode]:
        """Return a sensor's episodes."""
        return list(warm(said))


READINGS = Stream(
    name="readings",
    table=TABLE,
    queue="cold-chain-readings",
    required=("device_id", "read_at", "temperature_c"),
    rules={"absurd": lambda fields: -100 <= fields["temperature_c"] <= 100},
    time="read_at",
    reaction=Alerting(rule=Warm(), table=ALERTS, key="device_id", facts=(), queue="alerts"),
)

STREAMS = (READINGS,)
