"""Files whose notifications are hidden after a fault of the queue or the bucket: they are found at once, and once."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from botocore.exceptions import ReadTimeoutError

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.complete_listings import note_listing, place_of
from dagster_tidemark.engine.doubts import LANDING
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.sensors import landing, own_listings
from dagster_tidemark.sensors.own_listings import ListingsAfterFaults
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources import sqs
from dagster_tidemark.sources.listing import BucketUnavailable, FakeBucket, Listing
from dagster_tidemark.sources.notification_queue import Message
from dagster_tidemark.sources.s3 import S3Bucket
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.tags import LOOKED
from tests.tidemark.sensors.landing_ticks import LandingTicks
from tests.toys.feeds import CUSTOMERS, FEEDS, ORDERS, PRICES

TODAY = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
START = TODAY.date() - timedelta(days=9)
HOUR = f"{TODAY:%Y-%m-%d-%H}:00"
KEY = f"{ORDERS.prefix_of(HOUR)}a.csv"
# Dagster warns of its own nested resources.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


class LosesAnswers:
    """A real queue that executes a receive whose answer never arrives."""

    def __init__(self, queue: SqsQueue) -> None:
        self._queue = queue
        self.lost = list[Message]()

    def receive(self, wait_seconds: int) -> list[Message]:
        self.lost += self._queue.receive(wait_seconds)
        raise ReadTimeoutError(endpoint_url="the queue")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def observed(instance: dg.DagsterInstance) -> int:
    return len(instance.fetch_observations(dg.AssetKey(["raw", "orders"]), limit=10).records)


def test_file_whose_notification_was_received_without_an_answer_is_found_before_it_comes_again(
    instance: dg.DagsterInstance, cloud: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "HOLD_SECONDS", 60)
    monkeypatch.setattr(landing, "_WAIT_SECONDS", 1)
    tick = LandingTicks(instance, cloud, FEEDS, START)
    for feed in FEEDS:
        note_listing(instance, tick.location, feed.name, 1.0, place_of(feed, tick.bucket, START))
    real, losing = tick.queue, LosesAnswers(tick.queue.open())
    tick.put(KEY)
    tick.notify(KEY)
    tick.queue = SimpleNamespace(open=lambda: losing, queue="events")
    with pytest.raises(ReadTimeoutError):
        tick()
    assert len(losing.lost) == 1 and observed(instance) == 0
    tick.queue, began = real, time.monotonic()
    while observed(instance) == 0 and time.monotonic() < began + 50:
        tick()
    assert observed(instance) == 1
    assert tick.waiting() == 1, "the listing found the file, not the message"
    real.open().extend(losing.lost, 0)  # the minute is over
    tick()
    assert (observed(instance), tick.waiting()) == (1, 0), "the message changes nothing"


class Refusing:
    """A real bucket that refuses to list while `refuses` is set."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket, self.refuses = bucket, True

    def list(self, prefix: str) -> Listing:
        if self.refuses:
            raise BucketUnavailable("access denied")
        return self._bucket.list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)


def test_feed_is_named_until_its_partition_is_listed_without_waiting_for_the_message(
    instance: dg.DagsterInstance, cloud: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "_WAIT_SECONDS", 1)
    tick = LandingTicks(instance, cloud, FEEDS, START)
    for feed in FEEDS:
        note_listing(instance, tick.location, feed.name, 1.0, place_of(feed, tick.bucket, START))
    refusing = Refusing(tick.landing.open())
    tick.landing = SimpleNamespace(open=lambda: refusing)
    tick.put(KEY)
    tick.notify(KEY)

    def named() -> Any:
        return json.loads(instance_store.saved(instance, f"{LOOKED}{tick.location}/{LANDING}") or "")["parts"]

    for _ in range(2):  # the message is deferred for a minute
        tick()
        assert named() == {"orders": "orders could not be listed: access denied"}
    refusing.refuses, began = False, time.monotonic()
    while observed(instance) == 0 and time.monotonic() < began + 30:
        tick()
    assert observed(instance) == 1 and tick.waiting() == 1
    assert named() == {}


class Counting(FakeBucket):
    """A bucket that refuses prefixes while `refused` is set."""

    refused = ""

    def pages(self, prefix: str) -> Iterator[Listing]:
        if self.refused and prefix.startswith(self.refused):
            self.prefixes_listed.append(prefix)
            raise BucketUnavailable("access denied")
        yield from super().pages(prefix)

    def list(self, prefix: str) -> Listing:
        if self.refused and prefix.startswith(self.refused):
            self.prefixes_listed.append(prefix)
            raise BucketUnavailable("access denied")
        return super().list(prefix)


@pytest.fixture
def bucket() -> Counting:
    found = Counting(now=TODAY)
    found.put(KEY, b"1")
    return found


def test_newest_partitions_are_listed_once_per_recovery_however_long_the_queue_was_away(
    instance: dg.DagsterInstance, bucket: Counting
) -> None:
    ledger, after = ObservationLedger(instance), ListingsAfterFaults([ORDERS, CUSTOMERS], lost_for=5.0)
    after.note_answer(time.monotonic())
    assert after.step(ledger, bucket)[1] == [], "there was no fault"
    for _ in range(100):
        after.note_fault()
        assert after.step(ledger, bucket)[1] == []
    assert bucket.prefixes_listed == [], "nothing is listed while the queue is away"
    after.note_answer(time.monotonic())
    assert after.step(ledger, bucket)[1] == [], "a lost receive may still take messages"
    after.note_answer(time.monotonic() - 5.0)
    found, listed = after.step(ledger, bucket)
    assert listed == [ORDERS, CUSTOMERS] and [o.partition for o in found.changed] == [HOUR]
    cost = len(bucket.prefixes_listed)
    assert cost == 3, "today, yesterday, and the one object"
    after.note_answer(time.monotonic() - 5.0)
    assert after.step(ledger, bucket)[1] == [] and len(bucket.prefixes_listed) == cost
    after.note_fault()
    after.note_answer(time.monotonic() - 5.0)
    assert after.step(ledger, bucket)[1] == [], "a queue that fails again and again causes a listing per minute"
    after._listed_at -= 60.0
    after.note_answer(time.monotonic() - 5.0)
    assert after.step(ledger, bucket)[1] == [ORDERS, CUSTOMERS]


def test_feed_that_cannot_be_listed_after_a_fault_is_tried_again_after_a_pause(
    instance: dg.DagsterInstance, bucket: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, after = ObservationLedger(instance), ListingsAfterFaults([ORDERS, CUSTOMERS], lost_for=0.0)
    bucket.refused = "orders/"
    after.note_fault()
    after.note_answer(time.monotonic())
    found, listed = after.step(ledger, bucket)
    assert (found.failed, listed) == ({(ORDERS, None): "access denied"}, [])
    asked = len(bucket.prefixes_listed)
    assert after.step(ledger, bucket)[1] == [] and len(bucket.prefixes_listed) == asked, "it pauses"
    bucket.refused = ""
    after._again_at = 0.0
    found, listed = after.step(ledger, bucket)
    assert listed == [ORDERS, CUSTOMERS] and [o.partition for o in found.changed] == [HOUR]


def test_partition_that_could_not_be_listed_is_listed_again_without_its_message(
    instance: dg.DagsterInstance, bucket: Counting
) -> None:
    ledger, after = ObservationLedger(instance), ListingsAfterFaults(FEEDS, lost_for=0.0)
    place = (ORDERS, "2026-10-01-07:00")  # of any age
    old = f"{ORDERS.prefix_of(place[1])}a.csv"
    bucket.put(old, b"1")
    bucket.refused = "orders/"
    after.note_places({place: TODAY}, {place: "access denied"})
    assert after.unlisted == {place: "access denied"}
    assert after.step(ledger, bucket)[0].changed == [], "it pauses first"
    after._again_at = 0.0
    assert after.step(ledger, bucket)[0].failed == {place: "access denied"}
    bucket.refused, after._again_at = "", 0.0
    assert [o.partition for o in after.step(ledger, bucket)[0].changed] == [place[1]]
    assert after.unlisted == {}
    listed = len(bucket.prefixes_listed)
    assert after.step(ledger, bucket)[0].changed == [] and len(bucket.prefixes_listed) == listed
    after.note_places({place: TODAY}, {place: "access denied"})
    after.note_places({place: TODAY}, {})
    assert after.unlisted == {}, "its message came again first"


def test_pauses_between_attempts_grow_to_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, after, asked = [0.0], ListingsAfterFaults([PRICES], lost_for=0.0), list[float]()
    monkeypatch.setattr(own_listings, "time", SimpleNamespace(monotonic=lambda: now[0]))
    place = (PRICES, "2026-10-01")
    with dg.DagsterInstance.ephemeral() as instance:
        bucket = Counting(now=TODAY)
        bucket.refused = "prices/"
        after.note_places({place: TODAY}, {place: "access denied"})
        while now[0] < 200:
            now[0] += 1.0
            if after.step(ObservationLedger(instance, date.min), bucket)[0].failed:
                asked.append(now[0])
    assert asked[:4] == [5.0, 15.0, 35.0, 65.0] and asked[4] - asked[3] == 30.0
