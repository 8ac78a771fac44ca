"""From put_object to the commit in core.orders, against the two baselines.

Method: the contestants take turns, in an order that rotates from round to round. Each turn puts one file of 50 order
lines at a random phase, and waits for the Iceberg snapshot with its rows. The figure is the snapshot's own timestamp
minus the time before the put. All three get the same files, and must end with the same rows.

Before the first round, this project gets files of another hour, so that its Spark server is as warm as one that has
been up for a while. The baselines start a cold JVM for each run.
"""

import csv
import io
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from bench.contestants import Contestant, rows_of
from bench.plain import COLUMNS

_Contestant = TypeVar("_Contestant")

_LINES = 50
_WARM_UP = 20
_SECONDS_TO_COMMIT = 300


def measure(
    contestants: Sequence[Contestant], s3: Any, *, rounds: int, warm_up: bool = True, seed: int = 0
) -> dict[str, Any]:
    """Return the seconds per contestant and round, and the order of the turns.

    Args:
        contestants: This project first.

    Raises:
        AssertionError: their tables differ in the end.
    """
    phase = random.Random(seed)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0, tzinfo=None) - timedelta(hours=2)
    for number in range(_WARM_UP if warm_up else 0):
        before = hour - timedelta(hours=1)
        _put_to_commit(contestants[0], s3, _key(before, number), _file(before, number))
    seconds: dict[str, list[float]] = {c.name: [] for c in contestants}
    numbers = range(0 if warm_up else 1, rounds + 1)  # round 0 warms up
    order: list[list[str]] = []
    for number in numbers:
        turn = [*contestants[number % len(contestants) :], *contestants[: number % len(contestants)]]
        order.append([c.name for c in turn])

        def put(contestant: Contestant, key: str = _key(hour, number), body: bytes = _file(hour, number)) -> float:
            # A file meets a sensor of 30 s at any of its phases. The quicker contestants need no such long waits.
            time.sleep(phase.uniform(1, 31 if contestant.name == "stock" else 6) if warm_up else 0)
            return _put_to_commit(contestant, s3, key, body)

        for contestant, took in zip(turn, take_turns(put, turn, at_once=not warm_up), strict=True):
            print(f"round {number} {contestant.name}: {took:.2f} s", flush=True)
            if number:
                seconds[contestant.name].append(took)
    first, *others = [rows_of(c, hour) for c in contestants]
    for contestant, other in zip(contestants[1:], others, strict=True):
        assert first.equals(other.cast(first.schema)), f"{contestant.name} has different rows"
    assert first.num_rows == _LINES * len(numbers)
    return {
        "what": "seconds from put_object to the Iceberg snapshot",
        "rows in each table": first.num_rows,
        "order of turns": order[-rounds:],
        "contestants": {name: summary(values) for name, values in seconds.items()},
    }


def _key(hour: datetime, number: int) -> str:
    return f"orders/dt={hour:%Y-%m-%d}/hour={hour:%H}/{number:04}.csv"


def take_turns(measured: Callable[[_Contestant], float], turn: Sequence[_Contestant], *, at_once: bool) -> list[float]:
    """Return the result of each contestant, in the order of the turn.

    Args:
        at_once: True to measure all at once. Then the figures mean little, but the benchmark ends sooner.
    """
    with ThreadPoolExecutor(len(turn) if at_once else 1) as threads:
        return list(threads.map(measured, turn))


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Return median, 95th percentile, number and list of some durations in seconds."""
    # A single value is doubled, because `quantiles` has nothing to interpolate and raises on Python 3.11.
    cuts = statistics.quantiles(seconds if len(seconds) > 1 else [*seconds, *seconds], n=20, method="inclusive")
    return {
        "median": round(statistics.median(seconds), 2),
        "p95": round(cuts[-1], 2),
        "n": len(seconds),
        "raw": [round(s, 2) for s in seconds],
    }


def _put_to_commit(contestant: Contestant, s3: Any, key: str, body: bytes) -> float:
    begun = time.time()
    s3.put_object(Bucket=contestant.bucket, Key=key, Body=body)
    while time.time() < begun + _SECONDS_TO_COMMIT:
        time.sleep(1)  # the snapshot has its own timestamp, and frequent polling would slow the contestants down
        if not contestant.catalog.table_exists("core.orders"):
            continue
        table = contestant.catalog.load_table("core.orders")
        for snapshot in table.snapshots():
            if snapshot.timestamp_ms / 1000 < begun:
                continue
            found = table.scan(row_filter=f"source_file = '{key}'", snapshot_id=snapshot.snapshot_id)
            if found.count() == _LINES:
                return snapshot.timestamp_ms / 1000 - begun
    raise TimeoutError(f"{contestant.name} had not committed {key} after {_SECONDS_TO_COMMIT} s")


def _file(hour: datetime, number: int) -> bytes:
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(COLUMNS)
    for line in range(_LINES):
        at = hour + timedelta(seconds=line)
        writer.writerow([number, line, line % 7, line % 11, line % 3, 1 + line % 5, "3.9900", "0.1", at.isoformat()])
    return written.getvalue().encode()
