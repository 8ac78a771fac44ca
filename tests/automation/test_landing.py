"""From notifications to observations: the same end whatever order, number or loss of messages."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import boto3
import dagster as dg
import pytest

from pipelines.automation import adapter
from pipelines.automation.landing import Tick, looks_for_strays, take
from pipelines.automation.ledger import EventLog
from pipelines.automation.observing import changes, observe
from pipelines.definitions import defs
from pipelines.feeds import FEEDS, ORDERS
from pipelines.settings import Settings
from pipelines.sources.hints import Zone
from pipelines.sources.listing import FakeBucket, data_version, look
from pipelines.sources.messages import DeleteRefused, FakeMessageSource, MessageSource, holding
from pipelines.sources.sqs import SqsQueue

HOUR = "2026-10-01-07:00"
KEY = f"{ORDERS.prefix_of(HOUR)}a.csv"
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
ZONE = Zone("landing", FEEDS, date(2026, 9, 28))


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
    records = instance.fetch_observations(dg.AssetKey(["raw", name]), limit=1000, ascending=True).records
    return [r.asset_observation for r in records if r.asset_observation]


def tick(instance: dg.DagsterInstance, bucket: FakeBucket, queue: MessageSource) -> Tick:
    with holding(queue) as hold:
        return take(hold, ZONE, bucket, EventLog(instance))


def test_a_notification_becomes_one_observation_with_version_and_arrival(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))
    assert str(tick(instance, bucket, queue)) == "received 1, partitions 1, observed 1, unchanged 0, refused 0"
    (observation,) = observations(instance)
    assert observation.partition == HOUR
    assert observation.tags[adapter.DATA_VERSION] == data_version(look(bucket, ORDERS, HOUR).objects)
    assert float(observation.tags[adapter.ARRIVED_AT]) == NOON.timestamp()
    assert (queue.waiting, queue.in_flight) == ([], {})


def test_ten_thousand_notifications_over_a_day_are_24_listings_and_24_observations(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    for n in range(10_000):
        key = f"{ORDERS.prefix_of(f'2026-10-01-{n % 24:02}:00')}{n}.csv"
        bucket.put(key, b"1")
        queue.send(event(key))
    assert str(tick(instance, bucket, queue)) == "received 10000, partitions 24, observed 24, unchanged 0, refused 0"
    assert (len(bucket.prefixes_listed), len(observations(instance))) == (24, 24)
    assert (queue.waiting, queue.in_flight) == ([], {})


def test_one_tick_looks_at_no_more_partitions_than_it_has_time_for(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    hours = [hour for day in range(1, 21) for hour in ORDERS.partitions_of(date(2026, 10, day))]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", b"1")
        queue.send(event(f"{ORDERS.prefix_of(hour)}a.csv"))
    looked = [len(tick(instance, bucket, queue).received.notified) for _ in range(2)]
    assert 400 <= looked[0] < 440
    assert sum(looked) == 480
    assert (queue.waiting, queue.in_flight) == ([], {})


def test_duplicates_are_unchanged(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    for _ in range(3):
        queue.send(event(KEY, KEY))
        tick(instance, bucket, queue)
    queue.send(event(KEY))
    assert str(tick(instance, bucket, queue)) == "received 1, partitions 1, observed 0, unchanged 1, refused 0"
    assert len(observations(instance)) == 1


def test_what_is_not_ours_stays_until_the_queue_gives_up_while_its_neighbours_go_on(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    foreign = ["junk", event("elsewhere/a.csv"), event(KEY, "elsewhere/a.csv")]
    for body in (foreign[0], event(KEY), *foreign[1:]):
        queue.send(body)
    done = tick(instance, bucket, queue)
    assert str(done) == "received 4, partitions 1, observed 1, unchanged 0, refused 3"
    assert "'elsewhere/a.csv' belongs to no declared feed" in done.received.refused[1]
    for _ in range(10):
        assert [m.body for m in queue.in_flight.values()] == foreign or queue.dead
        queue.redeliver()
        tick(instance, bucket, queue)
    assert [m.body for m in queue.dead] == foreign


def test_what_lies_outside_the_layout_is_named_and_acknowledged(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    queue.send(event("orders/a.csv", "orders/dt=2026-09-27/hour=00/a.csv"))
    done = tick(instance, bucket, queue)
    assert str(done).endswith("refused 0, outside the layout 2")
    assert [stray.key for stray in done.received.strays] == ["orders/a.csv", "orders/dt=2026-09-27/hour=00/a.csv"]
    assert queue.in_flight == {}


def test_a_load_of_a_neighbour_is_asked_for_so_that_a_stray_is_quarantined(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    for hour in ("2026-10-01-07:00", "2026-10-01-08:00", "2026-10-03-05:00"):
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", b"1")
        observe(EventLog(instance), bucket, {(ORDERS, hour): NOON})
    context = dg.build_sensor_context(instance, repository_def=defs.get_repository_def())

    def asked(*keys: str) -> list[tuple[str | None, str]]:
        requests = looks_for_strays(context, ZONE.read(event(*keys)).strays)
        assert all(r.asset_selection == [dg.AssetKey(["core", "orders"])] for r in requests)
        return [(r.partition_key, r.tags.get(adapter.DAYS, "")) for r in requests]

    assert asked("orders/a.csv", "orders/dt=2026-09-27/hour=00/a.csv") == [("2026-10-03-05:00", "2026-09-27")]
    assert asked("orders/dt=2026-10-01/a.csv") == [("2026-10-01-08:00", "2026-10-01")]
    assert asked("orders/dt=2026-10-02/a.csv") == [("2026-10-03-05:00", "2026-10-02")], "a day without any file"
    assert asked("prices/a.csv") == [], "nothing of that feed was ever seen"


def test_the_load_of_the_partition_in_which_a_stray_lies_is_asked_for(instance: dg.DagsterInstance) -> None:
    context = dg.build_sensor_context(instance, repository_def=defs.get_repository_def())

    def asked(*keys: str) -> list[str | None]:
        return [r.partition_key for r in looks_for_strays(context, ZONE.read(event(*keys)).strays)]

    hour = "orders/dt=2026-10-01/hour=07"
    assert asked(f"{hour}/too/deep.csv", f"{hour}/a.xlsx") == [HOUR], "though it holds no file"
    assert asked("prices/dt=2026-10-01/too/deep.csv") == ["2026-10-01"]
    assert asked("orders/dt=2999-10-01/hour=07/too/deep.csv") == [], "there is no such hour yet"
    assert asked(f"{hour}/_SUCCESS", f"{hour}/a.csv.tmp") == [], "nobody meant these as data"


def test_a_load_that_is_due_anyway_is_not_asked_for_a_second_time(instance: dg.DagsterInstance) -> None:
    context = dg.build_sensor_context(instance, repository_def=defs.get_repository_def())
    strays = ZONE.read(event("orders/dt=2026-10-01/hour=07/a.xlsx")).strays

    def also(asset: str, partition: str) -> int:
        due = dg.RunRequest(asset_selection=[dg.AssetKey.from_user_string(asset)], partition_key=partition)
        return len(looks_for_strays(context, strays, [due]))

    assert also("core/orders", HOUR) == 0
    assert also("core/orders", "2026-10-01-08:00") == 1
    assert also("marts/sales_hourly", HOUR) == 1


def test_nothing_is_deleted_before_its_observation_is_durable(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))

    class Away(EventLog):
        def report(self, observations: object) -> None:
            raise ConnectionError("the event log is away")

    with pytest.raises(ConnectionError), holding(queue) as hold:
        take(hold, ZONE, bucket, Away(instance))
    assert len(queue.in_flight) == 1
    queue.redeliver()
    assert len(tick(instance, bucket, queue).found.changed) == 1


def test_a_queue_that_keeps_what_it_should_delete_is_told_and_harmless(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    class Keeping(FakeMessageSource):
        def delete(self, messages: object) -> None:
            raise DeleteRefused("1 of 1 messages were not deleted")

    queue = Keeping()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))
    assert tick(instance, bucket, queue).kept == "1 of 1 messages were not deleted"
    queue.redeliver()
    assert str(tick(instance, bucket, queue)).startswith("received 1, partitions 1, observed 0, unchanged 1")


def test_two_sensors_on_one_queue_observe_each_change_once(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    queue = FakeMessageSource()
    keys = [f"{ORDERS.prefix_of(f'2026-10-01-{n % 24:02}:00')}{n}.csv" for n in range(480)]
    for key in keys:
        bucket.put(key, b"1")
        queue.send(event(key))
    with ThreadPoolExecutor(2) as sensors:
        ticks = [sensors.submit(tick, instance, bucket, queue) for _ in range(2)]
    assert sum(t.result().received.count for t in ticks) == 480
    assert (queue.waiting, queue.in_flight) == ([], {})
    assert len(observations(instance)) == 24


def test_two_sensors_on_a_real_queue_observe_each_change_once(
    instance: dg.DagsterInstance, bucket: FakeBucket, cloud: Settings
) -> None:
    client = boto3.client("sqs", **cloud.aws_options())
    name = f"two-{uuid.uuid4().hex}"
    url = client.create_queue(QueueName=name)["QueueUrl"]
    keys = [f"{ORDERS.prefix_of(f'2026-10-01-{n % 24:02}:00')}{n}.csv" for n in range(240)]
    for start in range(0, len(keys), 10):
        for key in keys[start : start + 10]:
            bucket.put(key, b"1")
        entries: Any = [{"Id": str(i), "MessageBody": event(key)} for i, key in enumerate(keys[start : start + 10])]
        client.send_message_batch(QueueUrl=url, Entries=entries)
    with ThreadPoolExecutor(2) as sensors:
        ticks = [sensors.submit(tick, instance, bucket, SqsQueue(client, name)) for _ in range(2)]
    assert sum(t.result().received.count for t in ticks) >= 240
    assert [t.result().kept for t in ticks] == [None, None]
    assert str(tick(instance, bucket, SqsQueue(client, name))).startswith("received 0")
    assert len(observations(instance)) == 24
    client.delete_queue(QueueUrl=url)


def test_the_tick_of_a_killed_daemon_does_no_harm_to_that_of_the_next(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    # Another process holds no lock of ours: it has looked, the new daemon looks later and is faster to say so.
    bucket.put(KEY, b"1")
    ledger = EventLog(instance)
    old = changes(ORDERS, {HOUR: look(bucket, ORDERS, HOUR)}, ledger.latest(ORDERS), ledger)
    bucket.now += timedelta(seconds=1)
    bucket.put(KEY, b"2")
    observe(ledger, bucket, {(ORDERS, HOUR): NOON})
    ledger.report(old.changed)
    # Whoever looks next sets it right.
    assert len(observe(ledger, bucket, {(ORDERS, HOUR): NOON}).changed) == 1
    version = data_version(look(bucket, ORDERS, HOUR).objects)
    assert observations(instance)[-1].tags[adapter.DATA_VERSION] == version
