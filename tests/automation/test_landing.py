"""From notifications to observations: the same end whatever order, number or loss of messages."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from pipelines.automation import adapter, landing
from pipelines.automation.landing import FeedVanished, drain, feed_changes, observe, report
from pipelines.feeds import CUSTOMERS, FEEDS, ORDERS
from pipelines.sources.listing import FakeBucket, data_version, look
from pipelines.sources.messages import FakeMessageSource

HOUR = "2026-10-01-07:00"
KEY = f"{ORDERS.prefix_of(HOUR)}a.csv"
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def bucket() -> FakeBucket:
    return FakeBucket(now=NOON)


def event(*keys: str) -> str:
    record = {"eventTime": "2026-10-01T12:00:01Z", "s3": {"bucket": {"name": "landing"}}}
    return json.dumps({"Records": [{**record, "s3": {**record["s3"], "object": {"key": key}}} for key in keys]})


def observations(instance: dg.DagsterInstance, name: str = "orders") -> list[dg.AssetObservation]:
    records = instance.fetch_observations(dg.AssetKey(["raw", name]), limit=100, ascending=True).records
    return [r.asset_observation for r in records if r.asset_observation]


def tick(instance: dg.DagsterInstance, bucket: FakeBucket, queue: FakeMessageSource) -> int:
    received = drain(queue, "landing", FEEDS)
    observed = observe(instance, bucket, received.notified)
    queue.delete(received.messages)
    return observed


def test_a_notification_becomes_one_observation_with_version_and_arrival(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))
    assert tick(instance, bucket, queue) == 1
    (observation,) = observations(instance)
    assert observation.partition == HOUR
    assert observation.tags[adapter.DATA_VERSION] == data_version(look(bucket, ORDERS, HOUR).objects)
    assert float(observation.tags[adapter.ARRIVED_AT]) == NOON.timestamp()
    assert (queue.waiting, queue.in_flight) == ([], {})


def test_duplicates_and_many_records_of_a_partition_are_one_observation(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    for n in range(30):
        bucket.put(f"{ORDERS.prefix_of(HOUR)}{n}.csv", b"1")
        queue.send(event(f"{ORDERS.prefix_of(HOUR)}{n}.csv", KEY))
        queue.send(event(f"{ORDERS.prefix_of(HOUR)}{n}.csv"))
    assert tick(instance, bucket, queue) == 1
    queue.send(event(KEY))
    assert tick(instance, bucket, queue) == 0, "nothing changed since"
    assert len(observations(instance)) == 1


def test_what_is_not_ours_stays_while_its_neighbours_go_on(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    for body in ("junk", event(KEY), event("elsewhere/a.csv")):
        queue.send(body)
    assert tick(instance, bucket, queue) == 1
    assert [m.body for m in queue.in_flight.values()] == ["junk", event("elsewhere/a.csv")]


def test_a_crash_before_the_observation_leaves_the_message(
    instance: dg.DagsterInstance, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))

    def crash(*_: object) -> None:
        raise ConnectionError("the event log is away")

    with monkeypatch.context() as broken, pytest.raises(ConnectionError):
        broken.setattr(landing, "report", crash)
        tick(instance, bucket, queue)
    queue.redeliver()
    assert tick(instance, bucket, queue) == 1


def test_an_overwrite_and_a_removal_are_changes(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    at = {(ORDERS, HOUR): NOON}
    bucket.put(KEY, b"1")
    observe(instance, bucket, at)
    bucket.now += timedelta(seconds=30)
    bucket.put(KEY, b"1")
    assert observe(instance, bucket, at) == 1
    bucket.delete(KEY)
    assert observe(instance, bucket, at) == 1
    assert observe(instance, bucket, at) == 0
    arrivals = [float(o.tags[adapter.ARRIVED_AT]) for o in observations(instance)]
    assert arrivals == [
        NOON.timestamp(),
        (NOON + timedelta(seconds=30)).timestamp(),
        (NOON + timedelta(seconds=30)).timestamp(),
    ]


def test_looking_at_everything_finds_what_no_notification_told(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    bucket.put(KEY, b"1")
    bucket.put(f"{ORDERS.prefix_of('2026-10-01-08:00')}a.csv", b"1")
    bucket.put("customers/latest.csv", b"1")
    for expected in (3, 0):
        found = [change for feed in FEEDS for change in feed_changes(feed, bucket, instance)]
        report(instance, found)
        assert len(found) == expected
    assert observe(instance, bucket, {(ORDERS, HOUR): NOON, (CUSTOMERS, None): NOON}) == 0, "one version for both ways"


def test_a_vanished_file_is_found_and_a_vanished_feed_is_refused(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    other = f"{ORDERS.prefix_of('2026-10-01-08:00')}a.csv"
    bucket.put(KEY, b"1")
    bucket.put(other, b"1")
    report(instance, feed_changes(ORDERS, bucket, instance))
    bucket.delete(other)
    (gone,) = feed_changes(ORDERS, bucket, instance)
    assert gone.partition == "2026-10-01-08:00"
    bucket.delete(KEY)
    with pytest.raises(FeedVanished, match="wrong bucket"):
        feed_changes(ORDERS, bucket, instance)


def test_a_listing_older_than_the_last_observation_is_not_reported(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    bucket.put(KEY, b"1")
    observe(instance, bucket, {(ORDERS, HOUR): NOON})
    bucket.now = NOON - timedelta(minutes=1)
    bucket.put(KEY, b"2")
    assert observe(instance, bucket, {(ORDERS, HOUR): NOON}) == 0
