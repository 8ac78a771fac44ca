"""Which partitions to look at, and what is there: the same work whether a thousand or a million objects are known."""

import json
import time
from datetime import date, timedelta
from statistics import median

import dagster as dg

from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.sensors.change_detection import look_at_feed
from dagster_tidemark.sensors.landing import take
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.listing import FakeBucket
from dagster_tidemark.sources.notification_queue import FakeMessageSource, holding
from dagster_tidemark.sources.s3_events import LandingZone
from tests.proof.conftest import Report
from tests.toys.feeds import FEEDS, ORDERS

OBJECTS_A_PARTITION = 40
TOUCHED = 24
ROUNDS = 15
ZONE = LandingZone("landing", FEEDS)


def hours(count: int) -> list[Partition]:
    days = (date(2024, 1, 1) + timedelta(days=n) for n in range(count // 24 + 1))
    return [hour for day in days for hour in ORDERS.partitions_of(day)][:count]


class Known:
    """A bucket and an event log that know so many objects."""

    def __init__(self, objects: int) -> None:
        self.bucket = FakeBucket()
        self.hours = hours(objects // OBJECTS_A_PARTITION)
        for hour in self.hours:
            for n in range(OBJECTS_A_PARTITION):
                self.bucket.put(f"{ORDERS.prefix_of(hour)}{n:03}.csv", b"x")
        self.instance = dg.DagsterInstance.ephemeral()
        look_at_feed(ObservationLedger(self.instance), self.bucket, ORDERS)

    def tick(self, round_: int) -> float:
        """Seconds for a tick upon a change in each of some partitions."""
        queue = FakeMessageSource()
        self.bucket.now += timedelta(seconds=5)
        for hour in self.hours[-TOUCHED:]:
            key = f"{ORDERS.prefix_of(hour)}000.csv"
            self.bucket.put(key, str(round_).encode())
            s3 = {"bucket": {"name": "landing"}, "object": {"key": key}}
            queue.send(json.dumps({"Records": [{"eventTime": "2026-10-01T12:00:00Z", "s3": s3}]}))
        begun = time.process_time()  # others may use the machine
        with holding(queue) as hold:
            done = take(hold, ZONE, self.bucket, ObservationLedger(self.instance, ZONE.start))
        took = time.process_time() - begun
        assert len(done.found.changed) == TOUCHED
        return took


def test_tick_time_does_not_grow_with_the_number_of_known_objects(report: Report) -> None:
    few, many = Known(1000), Known(1_000_000)
    for known in (few, many):
        known.tick(-1)
    # In turns, so that what else happens on the machine meets both alike.
    seconds = [(few.tick(n), many.tick(n)) for n in range(ROUNDS)]
    of_few, of_many = (median(taken) for taken in zip(*seconds, strict=True))
    report(
        "planning",
        {
            "partitions touched": TOUCHED,
            "CPU seconds a tick with 1,000 objects": round(of_few, 4),
            "CPU seconds a tick with 1,000,000 objects": round(of_many, 4),
            "ratio": round(of_many / of_few, 3),
        },
    )
    assert of_many <= 1.1 * of_few
