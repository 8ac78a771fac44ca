"""The grocer's messages as plain data: what its fridges say, and what is asked of its forecast.

Belongs here: bodies that depend only on the seed and on their place in time. Does not belong here: queues and clocks
(`pipelines.demo.post`).
"""

import json
import math
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from pipelines.demo.grocer import PRODUCTS, STORES

_SPACE = uuid.UUID("9a3f2c66-0a52-4f0c-8f86-6e1f0b7c6d11")
_EVERY = timedelta(minutes=1)
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

# Once in six hours each fridge is left open, at another time than the others.
_PERIOD_MINUTES = 360
_OPEN_MINUTES = 25


def readings_between(since: datetime, until: datetime, seed: int) -> Iterator[str]:
    """The readings of all fridges after one time up to another, one a minute each, in the order of their time."""
    first = math.floor((since - _EPOCH) / _EVERY) + 1
    for minute in range(first, math.floor((until - _EPOCH) / _EVERY) + 1):
        for store in STORES:
            yield _reading(store, minute, seed)


def _reading(store: int, minute: int, seed: int) -> str:
    at = _EPOCH + minute * _EVERY
    dice = Random(f"{seed} {store} {minute}")
    opened = (minute + store * _PERIOD_MINUTES // len(STORES)) % _PERIOD_MINUTES
    is_open = opened < _OPEN_MINUTES
    warmer = 6.0 * min(1.0, opened / 5) if is_open else 0.0
    said = {
        "device_id": f"fridge-{store:02}",
        "store_id": store,
        "read_at": at.isoformat(),
        "temperature_c": round(4.0 + warmer + dice.uniform(-0.5, 0.5), 2),
        "door_open": is_open,
    }
    if dice.random() < 0.001:
        said["temperature_c"] = "---"  # a sensor that lost its probe
    return json.dumps(said)


def request_at(at: datetime, seed: int) -> str:
    """Somebody asks for tomorrow's demand; now and then for a product that there is not."""
    dice = Random(f"{seed} request {at.isoformat()}")
    return json.dumps(
        {
            "request_id": str(uuid.uuid5(_SPACE, f"{seed} {at.isoformat()}")),
            "store_id": dice.choice(STORES),
            "product_id": 999 if dice.random() < 0.05 else dice.choice(PRODUCTS),
            "date": (at.date() + timedelta(days=1)).isoformat(),
        }
    )
