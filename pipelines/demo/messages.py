"""The grocer's messages as plain data: fridge readings, requests for scores, and partners' deliveries.

Belongs here: bodies that depend only on the seed and the time. Does not belong here: queues and clocks
(`pipelines.demo.post`).
"""

import hashlib
import json
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from pipelines.demo.formats import orders_csv, orders_parquet
from pipelines.demo.grocer import PRODUCTS, STORES, order_lines

_SPACE = uuid.UUID("9a3f2c66-0a52-4f0c-8f86-6e1f0b7c6d11")
_EVERY = timedelta(minutes=1)
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

# Each fridge is left open once in six hours, at a different time for each fridge.
_PERIOD_MINUTES = 360
_OPEN_MINUTES = 25

_DELIVERED_EVERY = timedelta(minutes=10)
_PARTNERS = 900
"""First file number of the partner's orders, so that their ids differ from the order ids of the shop's good files."""


def readings_between(since: datetime, until: datetime, seed: int) -> Iterator[str]:
    """Yield one reading per fridge and minute after `since` up to `until`, in the order of time."""
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
    """Return a request for tomorrow's demand. One in twenty names an unknown product."""
    dice = Random(f"{seed} request {at.isoformat()}")
    return json.dumps(
        {
            "request_id": str(uuid.uuid5(_SPACE, f"{seed} {at.isoformat()}")),
            "store_id": dice.choice(STORES),
            "product_id": 999 if dice.random() < 0.05 else dice.choice(PRODUCTS),
            "date": (at.date() + timedelta(days=1)).isoformat(),
        }
    )


@dataclass(frozen=True)
class Dropped:
    """A partner's delivery.

    Args:
        files: Bodies by key.
        manifest: The message that reports the delivery as complete.
    """

    files: Mapping[str, bytes]
    manifest: str


def deliveries_between(since: datetime, until: datetime, seed: int) -> Iterator[Dropped]:
    """Yield a partner's delivery for every ten minutes after `since` up to `until`. One in six has wrong checksums."""
    first = math.floor((since - _EPOCH) / _DELIVERED_EVERY) + 1
    for number in range(first, math.floor((until - _EPOCH) / _DELIVERED_EVERY) + 1):
        yield _delivery(number, seed)


def _delivery(number: int, seed: int) -> Dropped:
    at, dice = _EPOCH + number * _DELIVERED_EVERY, Random(f"{seed} delivery {number}")
    hour = at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    delivery_id = f"partner-{at:%Y%m%d-%H%M}"
    files, listed = dict[str, bytes](), list[dict[str, object]]()
    for index, (name, encode) in enumerate((("north.csv", orders_csv), ("south.parquet", orders_parquet))):
        lines = order_lines(seed, hour, _PARTNERS + number % 6 * 2 + index, (hour, hour + timedelta(hours=1)), 100)
        body = encode(lines, dice)
        digest = hashlib.sha256(body if number % 6 else body + b"?").hexdigest()
        files[f"deliveries/{delivery_id}/{name}"] = body
        listed.append({"key": name, "size": len(body), "sha256": digest})
    return Dropped(files, json.dumps({"delivery_id": delivery_id, "files": listed}))
