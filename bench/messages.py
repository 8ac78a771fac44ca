"""From a reading to the alert on the other queue, against a stock sensor that starts a run.

Method: each round has its own cold-chain sensor. Its last reading makes it too warm for ten minutes by its own clock.
The figure is the time from sending that reading to receiving the alert. The contestants take turns, at a random phase.
Both store the readings in an Iceberg table before they send alerts.
"""

import json
import random
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.latency import summary, take_turns
from dagster_tidemark.sources.sqs import SqsQueue

_SECONDS_TO_ALERT = 300
_WARM_UP = 3
_TURNS = 5  # of this project in each round: a turn takes seconds, and a 95th percentile needs many values


@dataclass
class Listener:
    """A code location that takes readings from one queue and sends alerts to another."""

    name: str
    readings: SqsQueue
    alerts: SqsQueue


def measure(listeners: Sequence[Listener], *, rounds: int, warm_up: bool = True, seed: int = 0) -> dict[str, Any]:
    """Return the seconds per contestant and round.

    Args:
        listeners: This project first.
    """
    phase = random.Random(seed)
    seconds: dict[str, list[float]] = {listener.name: [] for listener in listeners}
    for _ in range(_WARM_UP if warm_up else 0):
        _reading_to_alert(listeners[0])
    for number in range(0 if warm_up else 1, rounds + 1):  # round 0 warms up
        rotated = [*listeners[number % len(listeners) :], *listeners[: number % len(listeners)]]
        turn = [each for each in rotated for _ in range(_TURNS if each.name != "stock" and warm_up else 1)]

        def send(listener: Listener) -> float:
            time.sleep(phase.uniform(1, 31 if listener.name == "stock" else 3) if warm_up else 0)
            return _reading_to_alert(listener)

        for listener, took in zip(turn, take_turns(send, turn, at_once=not warm_up), strict=True):
            print(f"round {number} {listener.name}: {took:.2f} s", flush=True)
            if number:
                seconds[listener.name].append(took)
    ratio = statistics.median(seconds[listeners[0].name]) / statistics.median(seconds[listeners[-1].name])
    return {
        "what": "seconds from the reading that makes an alert due to the alert on the other queue",
        "ratio of the medians": round(ratio, 4),
        "contestants": {name: summary(values) for name, values in seconds.items()},
    }


def reading(device: str, at: datetime, temperature: float) -> str:
    """Return the body of a message."""
    said = {"device_id": device, "store_id": 1, "read_at": at.isoformat(), "temperature_c": temperature}
    return json.dumps(said | {"door_open": False})


def _reading_to_alert(listener: Listener) -> float:
    device, start = f"device-{uuid.uuid4().hex[:8]}", datetime.now(UTC) - timedelta(minutes=30)
    listener.readings.send([reading(device, start + timedelta(minutes=m), 9.0) for m in (0, 6)])
    time.sleep(1)
    begun = time.time()
    listener.readings.send([reading(device, start + timedelta(minutes=11), 9.0)])
    while time.time() < begun + _SECONDS_TO_ALERT:
        messages = listener.alerts.receive(5)
        received = time.time()
        listener.alerts.delete(messages)
        if any(json.loads(message.body)["device_id"] == device for message in messages):
            return received - begun
    raise TimeoutError(f"{listener.name} had not alerted after {_SECONDS_TO_ALERT} s")
