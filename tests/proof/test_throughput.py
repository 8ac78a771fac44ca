"""How fast notifications become observations, and what that costs in listings."""

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from urllib.parse import quote_plus

import boto3
import pytest

from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.local.cloud.server import ObjectFolder, StoredObject
from dagster_tidemark.local.dagster.home import opened_home
from dagster_tidemark.sensors.landing import Taken, take
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.listing import Listing
from dagster_tidemark.sources.notification_queue import holding
from dagster_tidemark.sources.s3 import S3Bucket
from dagster_tidemark.sources.s3_events import LandingZone
from dagster_tidemark.sources.sqs import SqsQueue
from tests.conftest import end_service, make_settings, start_service
from tests.proof.conftest import Report
from tests.toys.feeds import FEEDS, ORDERS

OBJECTS = 20_000
PARTITIONS = 200
WANTED = 278  # events a second: a million files an hour


class CountedBucket(S3Bucket):
    """A bucket that counts what it is asked."""

    lists = 0
    seconds = 0.0

    def list(self, prefix: str) -> Listing:
        self.lists += 1
        begun = time.monotonic()
        try:
            return super().list(prefix)
        finally:
            self.seconds += time.monotonic() - begun


HOURS = [h for day in range(1, 10) for h in ORDERS.partitions_of(date(2026, 10, day))][:PARTITIONS]
KEYS = [f"{ORDERS.prefix_of(HOURS[n % PARTITIONS])}{n:05} ü+.csv" for n in range(OBJECTS)]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Settings]:
    """A cloud of its own that holds the objects, with a notification of each on its queue."""
    settings = make_settings(tmp_path)
    folder = ObjectFolder(tmp_path / "objects")
    folder.add_bucket(settings.landing_bucket)
    etag = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
    for key in KEYS:
        folder.write(settings.landing_bucket, StoredObject(key, b"x", etag, "2026-10-20T00:00:00"))
    process = start_service(
        "dagster_tidemark.local.cloud.server", settings, settings.port_cloud, tmp_path / "cloud.log", seconds=240
    )
    queue = SqsQueue(boto3.client("sqs", **settings.aws_options()), settings.events_queue)
    for start in range(0, OBJECTS, 10):
        entries = [{"Id": str(i), "MessageBody": event(key)} for i, key in enumerate(KEYS[start : start + 10])]
        queue._client.send_message_batch(QueueUrl=queue._url, Entries=entries)  # type: ignore[arg-type]
    yield settings
    end_service(process)


def event(key: str) -> str:
    s3 = {"bucket": {"name": "landing"}, "object": {"key": quote_plus(key), "size": 1}}
    return json.dumps(
        {"Records": [{"eventName": "ObjectCreated:Put", "eventTime": "2026-10-20T00:00:00.000Z", "s3": s3}]}
    )


def test_a_million_files_an_hour_are_observed(filled: Settings, report: Report) -> None:
    settings = filled
    s3 = boto3.client("s3", **settings.aws_options())
    queue = SqsQueue(boto3.client("sqs", **settings.aws_options()), settings.events_queue)
    bucket = CountedBucket(lambda: s3, settings.landing_bucket)
    zone = LandingZone(settings.landing_bucket, FEEDS, settings.start_date)
    ticks: list[tuple[Taken, float]] = []
    with opened_home(settings) as instance:
        begun = time.monotonic()
        while sum(tick.received.count for tick, _ in ticks) < OBJECTS:
            with holding(queue) as hold:
                tick = take(hold, zone, bucket, ObservationLedger(instance, zone.start))
            assert tick.received.count, "the queue is empty too early"
            ticks.append((tick, time.monotonic() - begun))
        seconds = time.monotonic() - begun
    observed = sum(len(tick.found.changed) for tick, _ in ticks)
    report(
        "throughput",
        {
            "objects": OBJECTS,
            "partitions": PARTITIONS,
            "seconds from the first receive to the last delete": round(seconds, 1),
            "events a second": round(OBJECTS / seconds),
            "ticks": [f"{at:.1f} s: {tick}" for tick, at in ticks],
            "LIST calls": bucket.lists,
            "seconds in LIST": round(bucket.seconds, 1),
            "observations": observed,
        },
    )
    assert bucket.lists <= PARTITIONS * len(ticks)
    assert observed >= PARTITIONS
    assert OBJECTS / seconds >= WANTED
