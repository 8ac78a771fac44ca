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
from botocore.exceptions import EndpointConnectionError

from dagster_tidemark.event_log.observations import QUARANTINE, ObservationLedger, holds_files
from dagster_tidemark.sensors import change_detection
from dagster_tidemark.sensors.change_detection import changes, observe
from dagster_tidemark.sensors.landing import Taken, loads_for_misplaced, take
from dagster_tidemark.sensors.reconcile_schedules import reconcile
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import BucketUnavailable, FakeBucket, Listing, data_version
from dagster_tidemark.sources.notification_queue import (
    DeleteRefused,
    FakeMessageSource,
    Message,
    MessageSource,
    QueueUnavailable,
    holding,
)
from dagster_tidemark.sources.partition_listing import look
from dagster_tidemark.sources.s3_events import LandingZone
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, LISTED_AT
from tests.toys.definitions import defs
from tests.toys.feeds import CUSTOMERS, FEEDS, ORDERS

HOUR = "2026-10-01-07:00"
KEY = f"{ORDERS.prefix_of(HOUR)}a.csv"
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
AUTOMATED = dg.AutomationCondition.eager()
ZONE = LandingZone("landing", FEEDS, date(2026, 9, 28))


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


def tick(instance: dg.DagsterInstance, bucket: FakeBucket, queue: MessageSource) -> Taken:
    with holding(queue) as hold:
        return take(hold, ZONE, bucket, ObservationLedger(instance, ZONE.start))


def test_a_notification_becomes_one_observation_with_version_and_arrival(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))
    assert str(tick(instance, bucket, queue)) == "received 1, partitions 1, observed 1, unchanged 0, refused 0"
    (observation,) = observations(instance)
    assert observation.partition == HOUR
    assert observation.tags[DATA_VERSION] == data_version(look(bucket, ORDERS, HOUR).objects)
    assert float(observation.tags[ARRIVED_AT]) == NOON.timestamp()
    assert (queue.waiting, queue.in_flight) == ([], {})


def test_10000_notifications_of_one_day_cause_24_listings_and_24_observations(
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


def test_one_tick_lists_only_as_many_partitions_as_time_allows(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    hours = [hour for day in range(1, 21) for hour in ORDERS.partitions_of(date(2026, 10, day))]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", b"1")
        queue.send(event(f"{ORDERS.prefix_of(hour)}a.csv"))
    ticks = [tick(instance, bucket, queue).received for _ in range(2)]
    looked = [len(received.notified) for received in ticks]
    assert ["400 partitions" in received.backlog for received in ticks] == [True, False], "not read to its end"
    assert 400 <= looked[0] < 440
    assert sum(looked) == 480
    assert (queue.waiting, queue.in_flight) == ([], {})


def test_duplicate_notifications_are_reported_as_unchanged(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    for _ in range(3):
        queue.send(event(KEY, KEY))
        tick(instance, bucket, queue)
    queue.send(event(KEY))
    assert str(tick(instance, bucket, queue)) == "received 1, partitions 1, observed 0, unchanged 1, refused 0"
    assert len(observations(instance)) == 1


@pytest.mark.parametrize("age", [timedelta(days=-400), timedelta(days=400), timedelta(0), timedelta(milliseconds=-300)])
def test_changed_file_arrives_by_its_next_listing_whatever_its_modification_time(
    instance: dg.DagsterInstance, bucket: FakeBucket, age: timedelta
) -> None:
    ledger, beside = ObservationLedger(instance), f"{ORDERS.prefix_of(HOUR)}b.csv"
    bucket.put(KEY, b"1")
    reconcile(ledger, bucket, [ORDERS])
    for n, (key, body) in enumerate(((KEY, b"2"), (KEY, b"3"), (beside, b"1"), (beside, b"22"))):
        bucket.now += timedelta(milliseconds=700)
        bucket.put(key, body, NOON - age)
        reconcile(ledger, bucket, [ORDERS])
        found = observations(instance)
        assert len(found) == n + 2
        assert float(found[-2].tags[LISTED_AT]) <= float(found[-1].tags[ARRIVED_AT]) <= float(found[-1].tags[LISTED_AT])
    bucket.now += timedelta(days=1)
    bucket.delete(beside)
    reconcile(ledger, bucket, [ORDERS])
    assert float(observations(instance)[-1].tags[ARRIVED_AT]) <= bucket.now.timestamp()


def test_foreign_messages_stay_until_dead_lettered_and_others_are_processed(
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


def test_key_outside_the_layout_is_reported_and_its_message_acknowledged(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    queue.send(event("orders/a.csv", "orders/dt=2026-09-27/hour=00/a.csv"))
    done = tick(instance, bucket, queue)
    assert str(done).endswith("refused 0, outside the layout 2")
    assert [stray.key for stray in done.received.strays] == ["orders/a.csv", "orders/dt=2026-09-27/hour=00/a.csv"]
    assert queue.in_flight == {}


def context_of(
    instance: dg.DagsterInstance, cursor: str | None = None, of: dg.Definitions = defs
) -> dg.SensorEvaluationContext:
    return dg.build_sensor_context(instance, cursor=cursor, repository_def=of.get_repository_def())


def misplaced(instance: dg.DagsterInstance, feed: Feed = ORDERS) -> dict[str, str]:
    """Folder to the reason why its files are misplaced, as the event log tells it."""
    return {folder: said.reason for folder, said in (ObservationLedger(instance).misplaced(feed) or {}).items()}


def with_one_misplaced(instance: dg.DagsterInstance, bucket: FakeBucket) -> ObservationLedger:
    """An hour with a file, observed, and one that is misplaced beside it."""
    queue = FakeMessageSource()
    for key in (KEY, "orders/a.csv"):
        bucket.put(key, b"1")
    queue.send(event(KEY, "orders/a.csv"))
    tick(instance, bucket, queue)
    return ObservationLedger(instance)


def test_misplaced_file_is_recorded_before_its_message_is_deleted(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    keys = ("orders/a.csv", "orders/dt=2026-09-27/hour=00/a.csv", "orders/dt=9999-12-31/hour=23/a.csv")
    for key in keys:
        bucket.put(key, b"1")
    queue.send(event(*keys))
    tick(instance, bucket, queue)
    reasons = {
        "orders/": "outside_layout",
        "orders/dt=2026-09-27/": "before_start_date",
        "orders/dt=9999-12-31/": "in_the_future",
    }
    assert misplaced(instance) == reasons
    bucket.delete(keys[0])
    queue.send(event(keys[0]))
    tick(instance, bucket, queue)
    assert "orders/" not in misplaced(instance), "a removed-object event ends it"


def test_reconcile_finds_misplaced_files_without_any_message(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    ledger = ObservationLedger(instance, date(2026, 9, 28))
    for key in (KEY, "orders/a.csv", "orders/dt=2026-10-01/b.csv", "orders/backup/c.csv", "customers/latest.csv.old"):
        bucket.put(key, b"1")
    reconcile(ledger, bucket, FEEDS)
    assert set(misplaced(instance)) == {"orders/", "orders/dt=2026-10-01/", "orders/backup/"}
    assert set(misplaced(instance, CUSTOMERS)) == {"customers/latest.csv"}
    told = instance.event_log_storage.get_maximum_record_id()
    reconcile(ledger, bucket, FEEDS)
    assert instance.event_log_storage.get_maximum_record_id() == told, "unchanged, nothing is written"
    bucket.delete("orders/dt=2026-10-01/b.csv")
    reconcile(ledger, bucket, [ORDERS], days=[date(2026, 10, 1)])
    assert set(misplaced(instance)) == {"orders/", "orders/backup/"}, "a look at a day tells of that day"


def test_sensor_and_reconcile_report_a_large_misplaced_folder_identically(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue, ledger = FakeMessageSource(), ObservationLedger(instance, date(2026, 9, 28))
    for n in range(1200):
        bucket.put(f"orders/backup/{n}.csv", b"1")
    queue.send(event("orders/backup/7.csv"))
    tick(instance, bucket, queue)
    told = ledger.misplaced(ORDERS)
    assert told and (told["orders/backup/"].files, told["orders/backup/"].is_more) == (1000, True)
    reconcile(ledger, bucket, [ORDERS])
    assert ledger.misplaced(ORDERS) == told


def test_flood_of_misplaced_files_causes_one_run(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    queue, ledger = FakeMessageSource(), ObservationLedger(instance)
    for hour in ("2026-10-01-07:00", "2026-10-03-05:00"):
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", b"1")
        observe(ledger, bucket, {(ORDERS, hour): NOON})
    context = context_of(instance)
    assert loads_for_misplaced(context, ledger, FEEDS) == []
    for n in range(500):
        bucket.put(f"orders/{n}/a.csv", b"1")
        queue.send(event(f"orders/{n}/a.csv"))
    tick(instance, bucket, queue)
    (request,) = loads_for_misplaced(context, ledger, FEEDS)
    assert (request.asset_selection, request.partition_key) == ([dg.AssetKey(["core", "orders"])], "2026-10-03-05:00")
    assert loads_for_misplaced(context_of(instance, context.cursor), ledger, FEEDS) == []
    assert len(loads_for_misplaced(context_of(instance), ledger, FEEDS)) == 1, "killed before the run was asked for"


def of_files(
    name: str,
    raw: dg.AssetSpec,
    condition: dg.AutomationCondition[dg.AssetKey] | None = AUTOMATED,
    by: dg.PartitionsDefinition | None = None,
    **options: Any,
) -> dg.AssetsDefinition:
    """An asset that is loaded from a source, as its check says."""

    @dg.asset(
        name=name,
        deps=[raw],
        partitions_def=by or raw.partitions_def,
        check_specs=[dg.AssetCheckSpec(QUARANTINE, asset=name)],
        automation_condition=condition,
        **options,
    )
    def load() -> dg.MaterializeResult:  # type: ignore[type-arg]
        return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True, check_name=QUARANTINE)])

    return load


def test_reader_with_other_partitions_is_not_requested_for_misplaced_files(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    hours, days = dg.HourlyPartitionsDefinition("2026-09-28-00:00"), dg.DailyPartitionsDefinition("2026-09-28")
    raw = dg.AssetSpec(["raw", "orders"], partitions_def=hours)
    load = of_files("load", raw)

    report = of_files("report", raw, by=days)

    @dg.asset(deps=[raw], partitions_def=hours)
    def by_hour() -> None: ...

    ledger = with_one_misplaced(instance, bucket)
    by_hand = of_files("by_hand", raw, condition=None)
    location = dg.Definitions([raw, load, report, by_hour, by_hand])
    (request,) = loads_for_misplaced(context_of(instance, of=location), ledger, [ORDERS])
    assert request.asset_selection == [dg.AssetKey("load")]


@pytest.mark.parametrize("other", ["external", "config", "half of an operation"])
def test_feed_reader_that_cannot_run_alone_does_not_block_the_load(
    other: str, instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    hours = dg.HourlyPartitionsDefinition("2026-09-28-00:00")
    raw = dg.AssetSpec(["raw", "orders"], partitions_def=hours)
    load = of_files("load", raw)

    @dg.multi_asset(
        specs=[
            dg.AssetSpec("one", deps=[raw], automation_condition=AUTOMATED),
            dg.AssetSpec("two", deps=["one"], automation_condition=AUTOMATED),
        ],
        partitions_def=hours,
        check_specs=[dg.AssetCheckSpec(QUARANTINE, asset="one")],
    )
    def both() -> Iterator[dg.MaterializeResult[None]]:
        yield dg.MaterializeResult(
            asset_key="one", check_results=[dg.AssetCheckResult(passed=True, check_name=QUARANTINE)]
        )
        yield dg.MaterializeResult(asset_key="two")

    child: Any = {
        "external": dg.AssetSpec("board", deps=[raw], partitions_def=hours),
        "config": of_files("of_people", raw, config_schema={"needed": str}),
    }.get(other, both)
    ledger = with_one_misplaced(instance, bucket)
    location = dg.Definitions([raw, load, child])
    (request,) = loads_for_misplaced(context_of(instance, of=location), ledger, [ORDERS])
    together = ["one", "two"] if child is both else []
    assert request.asset_selection == [dg.AssetKey(name) for name in ["load", *together]]
    result = location.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=list(request.asset_selection), partition_key=request.partition_key, instance=instance
    )
    assert result.success


def test_due_load_is_not_requested_again_for_misplaced_files(instance: dg.DagsterInstance, bucket: FakeBucket) -> None:
    ledger = with_one_misplaced(instance, bucket)

    def also(asset: str) -> int:
        due = dg.RunRequest(asset_selection=[dg.AssetKey.from_user_string(asset)], partition_key=HOUR)
        return len(loads_for_misplaced(context_of(instance), ledger, FEEDS, [due]))

    assert also("core/orders") == 0
    assert also("marts/sales_hourly") == 1


@pytest.mark.parametrize("sent", [3, 12])
def test_messages_received_before_a_queue_failure_are_processed(
    sent: int, instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    class Flapping(FakeMessageSource):
        answers = True

        def receive(self, wait_seconds: int) -> list[Message]:
            if not self.answers:
                raise EndpointConnectionError(endpoint_url="http://sqs")
            self.answers = False
            return super().receive(wait_seconds)

    queue = Flapping()
    for n in range(sent):
        key = f"{ORDERS.prefix_of(HOUR)}{n}.csv"
        bucket.put(key, b"1")
        queue.send(event(key))
    assert tick(instance, bucket, queue).received.count == min(sent, 10)
    assert len(queue.waiting) == max(sent - 10, 0) and not queue.in_flight
    with pytest.raises(EndpointConnectionError):
        tick(instance, bucket, queue)


def test_file_renamed_to_another_suffix_counts_as_removed_for_the_guard(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue, ledger = FakeMessageSource(), ObservationLedger(instance)
    hours = [f"2026-10-01-{n:02}:00" for n in range(24)]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", b"1")
    reconcile(ledger, bucket, [ORDERS])
    bucket.now += timedelta(minutes=5)
    for hour in hours:
        bucket.delete(f"{ORDERS.prefix_of(hour)}a.csv")
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv.zst", b"1")
        queue.send(event(f"{ORDERS.prefix_of(hour)}a.csv.zst"))
    done = tick(instance, bucket, queue)
    assert "wrong bucket?" in done.found.alarms[ORDERS]
    assert (done.found.held, done.found.changed) == (24, [])
    assert all(holds_files(tags) for tags in ledger.latest(ORDERS).values())


def test_partitions_with_only_misplaced_files_cause_no_removal_alarm(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    ledger = ObservationLedger(instance)
    hours = [f"2026-10-01-{n:02}:00" for n in range(24)]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.xlsx", b"1")
    bucket.put(f"{ORDERS.prefix_of('2026-10-02-00:00')}a.csv", b"1")
    found = reconcile(ledger, bucket, [ORDERS])
    assert (len(found.changed), found.alarms) == (25, {})
    bucket.now += timedelta(minutes=5)
    for hour in hours:
        bucket.delete(f"{ORDERS.prefix_of(hour)}a.xlsx")
    found = reconcile(ledger, bucket, [ORDERS])
    assert (len(found.changed), found.alarms) == (24, {})


class Refusing(FakeBucket):
    """A bucket that refuses some prefixes, or everything."""

    refused: tuple[str, ...] = ()

    def list(self, prefix: str) -> Listing:
        if prefix.startswith(self.refused):
            raise BucketUnavailable("AccessDenied")
        return super().list(prefix)


def test_partition_that_cannot_be_listed_keeps_only_its_own_messages(instance: dg.DagsterInstance) -> None:
    queue, bucket = FakeMessageSource(), Refusing(now=NOON)
    hours = [f"2026-10-01-{n:02}:00" for n in range(24)]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", b"1")
        queue.send(event(f"{ORDERS.prefix_of(hour)}a.csv"))
    bucket.refused = (ORDERS.prefix_of(hours[7]),)
    done = tick(instance, bucket, queue)
    assert "observed 23, unchanged 0, refused 0, could not be listed 1" in str(done)
    (message,) = queue.in_flight.values()
    assert hours[7][11:13] in message.body and queue.hidden[message.receipt] == 60, "it comes back later"
    queue.redeliver()
    tick(instance, bucket, queue)
    assert queue.hidden[message.receipt] == 120, "later each time: each receive is one less"
    bucket.refused = ()
    queue.redeliver()
    assert len(tick(instance, bucket, queue).found.changed) == 1
    assert (queue.waiting, queue.in_flight, queue.dead) == ([], {}, [])


class Asked(Refusing):
    """The same, and it keeps what it was asked; `away` is what is the matter with all of it."""

    away: str = ""
    refusals = 0

    def probe(self) -> None:
        if self.away:
            raise BucketUnavailable(self.away)

    def list(self, prefix: str) -> Listing:
        self.refusals += prefix.startswith(self.refused)
        return super().list(prefix)


def told_of(bucket: FakeBucket, count: int) -> FakeMessageSource:
    """A queue that tells of this many partitions, in which files lie."""
    queue = FakeMessageSource()
    for n in range(count):
        key = f"{ORDERS.prefix_of(f'2026-10-{1 + n // 24:02}-{n % 24:02}:00')}a.csv"
        bucket.put(key, b"1")
        queue.send(event(key))
    return queue


def test_unreachable_bucket_stops_the_listing_at_once(instance: dg.DagsterInstance) -> None:
    bucket = Asked(now=NOON)
    queue = told_of(bucket, 24)
    bucket.refused, bucket.away = ("",), "connection refused"
    done = tick(instance, bucket, queue)
    assert "could not be listed 24" in str(done)
    assert list(done.found.failed.values()) == ["AccessDenied", *["connection refused"] * 23]
    assert bucket.refusals == 1
    assert len(queue.in_flight) == 24


def test_folders_that_cannot_be_listed_do_not_stop_the_others(instance: dg.DagsterInstance) -> None:
    bucket = Asked(now=NOON)
    queue = told_of(bucket, 24)
    bucket.refused = tuple(ORDERS.prefix_of(f"2026-10-01-{n:02}:00") for n in range(5))
    assert "observed 19, unchanged 0, refused 0, could not be listed 5" in str(tick(instance, bucket, queue))
    assert len(queue.in_flight) == 5


def test_flood_of_misplaced_folders_is_listed_over_several_ticks(instance: dg.DagsterInstance) -> None:
    bucket, queue = Asked(now=NOON), FakeMessageSource()
    days = [date(2020, 1, 1) + timedelta(days=n) for n in range(1000)]
    for day in days:
        bucket.put(f"orders/dt={day}/a.csv", b"1")
        queue.send(event(f"orders/dt={day}/a.csv"))
    bucket.refused = (f"orders/dt={days[0]}/",)
    done = tick(instance, bucket, queue)
    looked = sum(map(len, done.received.beside.values()))
    assert 400 <= looked < 440
    assert len(misplaced(instance)) == 201, "one that cannot be listed keeps no other from being told"
    assert "could not be listed 1" in str(done)


def test_many_folders_that_cannot_be_listed_count_as_a_bucket_failure(instance: dg.DagsterInstance) -> None:
    bucket = Asked(now=NOON)
    queue = told_of(bucket, 100)
    bucket.refused = ("",)
    assert "could not be listed 100" in str(tick(instance, bucket, queue))
    assert bucket.refusals == 50


def test_folders_that_do_not_answer_take_only_part_of_a_tick(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Asked(now=NOON)
    queue = told_of(bucket, 24)
    bucket.refused = ("",)
    monkeypatch.setattr(change_detection, "monotonic", lambda: 6.0 * bucket.refusals)
    assert "could not be listed 24" in str(tick(instance, bucket, queue))
    assert bucket.refusals == 3


def test_no_message_is_received_while_the_bucket_is_unavailable(instance: dg.DagsterInstance) -> None:
    class Away(FakeBucket):
        def probe(self) -> None:
            raise BucketUnavailable("bucket landing does not answer: connection refused")

    queue = FakeMessageSource()
    queue.send(event(KEY))
    sensor = defs.get_repository_def().get_sensor_def("landing")
    resources = {"tidemark_landing": Opens(Away(now=NOON)), "tidemark_events_queue": Opens(queue)}
    context = dg.build_sensor_context(instance, resources=resources, repository_def=defs.get_repository_def())
    result = sensor(context)
    assert isinstance(result, dg.SkipReason) and "no message is received until the bucket answers" in str(result)
    assert len(queue.waiting) == 1


def test_denied_dead_letter_count_does_not_end_the_sensor_tick(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    class Foreign(FakeMessageSource):
        def dead_letters(self) -> int | None:
            raise QueueUnavailable("AccessDenied")

    queue = Foreign()
    bucket.name = "landing"  # type: ignore[attr-defined]
    bucket.put(KEY, b"1")
    queue.send(event(KEY))
    sensor = defs.get_repository_def().get_sensor_def("landing")
    resources = {"tidemark_landing": Opens(bucket), "tidemark_events_queue": Opens(queue)}
    with dg.build_sensor_context(instance, resources=resources, repository_def=defs.get_repository_def()) as context:
        sensor(context)
    assert len(observations(instance)) == 1
    assert (queue.waiting, queue.in_flight) == ([], {})


class Opens:
    """A resource that opens what it is given."""

    def __init__(self, opened: object) -> None:
        self._opened = opened

    def open(self) -> object:
        return self._opened


@pytest.mark.parametrize("behind", [timedelta(seconds=1), timedelta(hours=1)])
def test_listing_of_a_server_whose_clock_is_behind_counts_as_new(
    instance: dg.DagsterInstance, bucket: FakeBucket, behind: timedelta
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))
    tick(instance, bucket, queue)
    bucket.now -= behind
    bucket.put(KEY, b"2")
    queue.send(event(KEY))
    assert len(tick(instance, bucket, queue).found.changed) == 1
    first, second = observations(instance)
    assert second.tags[DATA_VERSION] == data_version(look(bucket, ORDERS, HOUR).objects)
    assert float(second.tags[LISTED_AT]) >= float(first.tags[LISTED_AT])
    assert queue.in_flight == {}


def test_message_is_deleted_only_after_its_observation_is_stored(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    queue = FakeMessageSource()
    bucket.put(KEY, b"1")
    queue.send(event(KEY))

    class Away(ObservationLedger):
        def report(self, observations: object) -> None:
            raise ConnectionError("the event log is away")

    with pytest.raises(ConnectionError), holding(queue) as hold:
        take(hold, ZONE, bucket, Away(instance))
    assert len(queue.in_flight) == 1
    queue.redeliver()
    assert len(tick(instance, bucket, queue).found.changed) == 1


def test_refused_message_deletion_is_reported_and_causes_no_second_observation(
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


def test_stale_observation_of_a_killed_daemon_is_corrected_by_the_next_tick(
    instance: dg.DagsterInstance, bucket: FakeBucket
) -> None:
    # Another process holds no lock of ours: it has looked, the new daemon looks later and is faster to say so.
    bucket.put(KEY, b"1")
    ledger = ObservationLedger(instance)
    old = changes(ORDERS, {HOUR: look(bucket, ORDERS, HOUR)}, ledger.latest(ORDERS), ledger)
    bucket.now += timedelta(seconds=1)
    bucket.put(KEY, b"2")
    observe(ledger, bucket, {(ORDERS, HOUR): NOON})
    ledger.report(old.changed)
    # Whoever looks next sets it right.
    assert len(observe(ledger, bucket, {(ORDERS, HOUR): NOON}).changed) == 1
    version = data_version(look(bucket, ORDERS, HOUR).objects)
    assert observations(instance)[-1].tags[DATA_VERSION] == version
