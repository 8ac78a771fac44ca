"""What a look at the landing bucket finds, and when a disappearance is believed."""

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from dagster_tidemark.event_log.observations import ObservationLedger, holds_files, mass_removal_check
from dagster_tidemark.execution.load_asset import observed_removals
from dagster_tidemark.sensors.change_detection import ask_again, observe
from dagster_tidemark.sensors.on_demand import observe_file, observe_partitions
from dagster_tidemark.sensors.reconcile_schedules import reconcile
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import NO_FILES, BucketUnavailable, FakeBucket, Listing
from dagster_tidemark.sources.removals import ACCEPTED, EXPIRED
from dagster_tidemark.tags import ARRIVED_AT, DATA_VERSION, OUTCOME
from tests.toys.feeds import CUSTOMERS, FEEDS, ORDERS

DAY = date(2026, 10, 1)
HOURS = ORDERS.partitions_of(DAY)
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)


@pytest.fixture
def ledger() -> Iterator[ObservationLedger]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ObservationLedger(ephemeral)


@pytest.fixture
def bucket() -> FakeBucket:
    return FakeBucket(now=NOON)


@pytest.fixture
def filled(ledger: ObservationLedger, bucket: FakeBucket) -> FakeBucket:
    """Three days of hours and the customers, all observed."""
    for day in (DAY, date(2026, 10, 2), date(2026, 10, 3)):
        for hour in ORDERS.partitions_of(day):
            bucket.put(key(hour), b"1")
    bucket.put("customers/latest.csv", b"1")
    assert len(reconcile(ledger, bucket, FEEDS).changed) == 73
    return bucket


def key(hour: str | None, name: str = "a.csv") -> str:
    return ORDERS.prefix_of(hour) + name


def test_later_start_date_causes_no_removals(ledger: ObservationLedger, filled: FakeBucket) -> None:
    ledger.start = date(2026, 10, 3)
    found = reconcile(ledger, filled, FEEDS)
    assert (found.changed, found.alarms, found.held) == ([], {}, 0)
    for hour in ORDERS.partitions_of(date(2026, 10, 3))[:8]:
        filled.delete(key(hour))
    gone = reconcile(ledger, filled, FEEDS)
    assert {o.partition for o in gone.changed} == set(ORDERS.partitions_of(date(2026, 10, 3))[:8])


def _landing(bucket: FakeBucket, start: date = date.min) -> Any:
    return SimpleNamespace(open=lambda: bucket, start=start)


@pytest.mark.parametrize("who", ["sensor", "reconcile", "a_day", "on_demand", "ask_again"])
def test_removal_share_ignores_partitions_before_the_start_date(bucket: FakeBucket, who: str) -> None:
    monday = date(2026, 10, 5)
    bucket.now = datetime(2026, 10, 6, tzinfo=UTC)
    for day in (date(2026, 10, 3), date(2026, 10, 4), monday):
        for hour in ORDERS.partitions_of(day):
            bucket.put(key(hour), b"1")
    with dg.DagsterInstance.ephemeral() as instance:
        reconcile(ObservationLedger(instance), bucket, [ORDERS])
        ledger = ObservationLedger(instance, monday)
        gone = ORDERS.partitions_of(monday)[:12]
        for hour in gone:
            bucket.delete(key(hour))
        looks = {
            "sensor": lambda: observe(ledger, bucket, {(ORDERS, hour): bucket.now for hour in gone}),
            "reconcile": lambda: reconcile(ledger, bucket, [ORDERS]),
            "a_day": lambda: reconcile(ledger, bucket, [ORDERS], days=[monday]),
            "on_demand": lambda: observe_partitions(
                dg.build_op_context(instance=instance), _landing(bucket, monday), ORDERS
            ),
            "ask_again": lambda: ask_again(ledger, bucket, ORDERS, gone),
        }
        looks[who]()
        holding = {p for p, tags in ledger.latest(ORDERS).items() if holds_files(tags)}
        assert holding == set(ORDERS.partitions_of(monday)), "12 of 24 are many; of 72 they would be few"
        assert set(observed_removals(instance, ORDERS, monday).holding) == holding, "nor does a load"


def test_only_complete_listings_without_held_removals_count_as_checks(
    ledger: ObservationLedger, filled: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def note(feed: Feed, at: float) -> None:
        assert at <= time.time()
        assert ledger.latest(feed), "its changes are reported before"
        listed.append(feed.name)

    reconcile(ledger, filled, FEEDS, days=[DAY], listed=note)
    assert listed == [], "some days are no complete listing"
    pages = FakeBucket.pages

    def denied(bucket: FakeBucket, prefix: str) -> Iterator[Listing]:
        yield from pages(bucket, prefix)
        if prefix.startswith("orders"):
            raise BucketUnavailable("access denied after the first page")

    with monkeypatch.context() as away:
        away.setattr(FakeBucket, "pages", denied)
        with pytest.raises(BucketUnavailable, match="access denied"):
            reconcile(ledger, filled, [ORDERS, CUSTOMERS], listed=note)
    assert listed == ["customers"], "the other feed could not be listed"
    for hour in HOURS:
        filled.delete(key(hour))
    for day in (date(2026, 10, 2), date(2026, 10, 3)):
        for hour in ORDERS.partitions_of(day):
            filled.delete(key(hour))
    assert reconcile(ledger, filled, [ORDERS], listed=note).held
    assert listed == ["customers"], "not all changes are reported"
    reconcile(ledger, filled, [ORDERS], accept_removals=True, listed=note)
    assert listed == ["customers", "orders"]


def test_overwrite_and_removal_are_observed_with_their_arrival_time(
    ledger: ObservationLedger, bucket: FakeBucket
) -> None:
    at = {(ORDERS, HOURS[7]): NOON}
    bucket.put(key(HOURS[7]), b"1")
    bucket.put(key(HOURS[8]), b"1")
    reconcile(ledger, bucket, [ORDERS])
    bucket.now += timedelta(seconds=30)
    bucket.put(key(HOURS[7]), b"1")
    (overwritten,) = observe(ledger, bucket, at).changed
    bucket.now += timedelta(seconds=30)
    bucket.delete(key(HOURS[7]))
    (removed,) = observe(ledger, bucket, at).changed
    assert observe(ledger, bucket, at).changed == []
    assert removed.tags[DATA_VERSION] == NO_FILES
    arrivals = [float(o.tags[ARRIVED_AT]) - NOON.timestamp() for o in (overwritten, removed)]
    assert arrivals == [30, 30], "nobody told when it was removed, so not before the last look"


def test_a_listing_older_than_the_last_observation_is_not_reported(
    ledger: ObservationLedger, bucket: FakeBucket
) -> None:
    bucket.put(key(HOURS[7]), b"1")
    observe(ledger, bucket, {(ORDERS, HOURS[7]): NOON})
    old, asked = Listing((), NOON - timedelta(minutes=1)), list[str]()

    def list_late(prefix: str) -> Listing:
        asked.append(prefix)
        return old if len(asked) == 1 else FakeBucket.list(bucket, prefix)

    bucket.list = list_late  # type: ignore[method-assign]
    assert observe(ledger, bucket, {(ORDERS, HOURS[7]): NOON}).changed == [], "looked at again, it is as it was"
    assert len(asked) == 2


def test_reconcile_finds_changes_without_notification_and_reports_them_once(
    ledger: ObservationLedger, filled: FakeBucket
) -> None:
    assert reconcile(ledger, filled, FEEDS).changed == []
    filled.put(key(HOURS[3], "late.csv"), b"1")
    filled.delete(key(HOURS[5]))
    found = reconcile(ledger, filled, FEEDS)
    assert {o.partition for o in found.changed} == {HOURS[3], HOURS[5]}
    assert reconcile(ledger, filled, FEEDS).changed == []


def test_reconcile_of_given_days_lists_only_those_days(ledger: ObservationLedger, filled: FakeBucket) -> None:
    filled.put(key(HOURS[3], "late.csv"), b"1")
    filled.delete(key(HOURS[5]))
    filled.prefixes_listed.clear()
    assert reconcile(ledger, filled, FEEDS, days=[date(2026, 10, 3)]).changed == []
    assert filled.prefixes_listed == ["orders/dt=2026-10-03/", "customers/latest.csv", "prices/dt=2026-10-03/"]
    assert len(reconcile(ledger, filled, FEEDS, days=[DAY]).changed) == 2


def test_requested_reload_of_a_partition_is_observed_once_as_new_data(
    ledger: ObservationLedger, filled: FakeBucket
) -> None:
    filled.now += timedelta(seconds=30)
    (before,) = {tags[DATA_VERSION] for p, tags in ledger.latest(ORDERS, [HOURS[3]]).items()}
    versions = []
    for _ in range(2):
        (again,) = ask_again(ledger, filled, ORDERS, [HOURS[3]]).changed
        assert float(again.tags[ARRIVED_AT]) == filled.now.timestamp(), "its lag begins now"
        versions.append(again.tags[DATA_VERSION])
        assert observe(ledger, filled, {(ORDERS, HOURS[3]): NOON}).changed == []
        assert reconcile(ledger, filled, FEEDS).changed == []
    assert len({before, *versions}) == 3
    filled.delete(key(HOURS[3]))
    (removed,) = ask_again(ledger, filled, ORDERS, [HOURS[3]]).changed
    assert removed.tags[DATA_VERSION] == NO_FILES


def test_few_vanished_partitions_are_observed_as_removed(ledger: ObservationLedger, filled: FakeBucket) -> None:
    for hour in HOURS[:9]:
        filled.delete(key(hour))
    found = reconcile(ledger, filled, [ORDERS])
    assert (len(found.changed), found.held, found.alarms) == (9, 0, {})


def test_vanished_feed_is_held_until_the_removal_is_accepted(ledger: ObservationLedger, filled: FakeBucket) -> None:
    filled.delete("customers/latest.csv")
    for _ in range(2):
        found = reconcile(ledger, filled, FEEDS)
        assert (found.changed, found.held) == ([], 1)
        assert "wrong bucket? Their rows stay" in found.alarms[CUSTOMERS]
    (accepted,) = reconcile(ledger, filled, FEEDS, accept_removals=True).changed
    assert accepted.tags[OUTCOME] == ACCEPTED
    assert reconcile(ledger, filled, FEEDS).alarms == {}


def test_mass_removal_check_fails_while_removals_are_held_and_reports_changes_only(
    ledger: ObservationLedger, filled: FakeBucket
) -> None:
    key = mass_removal_check(CUSTOMERS)

    def results() -> list[bool]:
        records = ledger._instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
        return [r.status is AssetCheckExecutionRecordStatus.SUCCEEDED for r in reversed(records)]

    filled.delete("customers/latest.csv")
    for _ in range(3):
        filled.now += timedelta(seconds=5)
        assert observe(ledger, filled, {(CUSTOMERS, None): filled.now}).held == 1
        reconcile(ledger, filled, FEEDS)
    assert results() == [True, False], "the first look at everything said that nothing was held"
    filled.put("customers/latest.csv", b"back")
    for _ in range(2):
        reconcile(ledger, filled, FEEDS)
    assert results() == [True, False, True]


def test_accepting_removals_includes_those_observed_before_the_alarm(
    ledger: ObservationLedger, filled: FakeBucket
) -> None:
    # A load that saw all of it gone has held back these too, and runs again only upon news.
    for hour in HOURS[:9]:
        filled.delete(key(hour))
    assert len(reconcile(ledger, filled, [ORDERS]).changed) == 9
    for hour in HOURS[9:]:
        filled.delete(key(hour))
    assert reconcile(ledger, filled, [ORDERS]).held == 15
    accepted = reconcile(ledger, filled, [ORDERS], accept_removals=True).changed
    assert {o.partition for o in accepted} == set(HOURS)
    assert {o.tags[OUTCOME] for o in accepted} == {ACCEPTED}
    for _ in range(2):
        assert reconcile(ledger, filled, [ORDERS], accept_removals=True).changed == []


def test_notified_removals_are_held_once_they_exceed_a_fifth_of_partitions(
    ledger: ObservationLedger, filled: FakeBucket
) -> None:
    held = []
    for hour in HOURS:  # 24 of 72, told one at a time
        filled.delete(key(hour))
        filled.now += timedelta(seconds=10)
        held.append(observe(ledger, filled, {(ORDERS, hour): filled.now}).held)
    assert held == [0] * 14 + [1] * 10, "15 are more than a fifth of 72"
    found = reconcile(ledger, filled, [ORDERS])
    assert (found.changed, found.held) == ([], 10)
    assert "of 72 partitions below orders/ vanished within 24 hours: wrong bucket?" in found.alarms[ORDERS]
    for hour in HOURS[14:]:
        filled.put(key(hour), b"back")
    assert reconcile(ledger, filled, [ORDERS]).alarms == {}


def test_removal_after_the_follow_period_is_observed_as_expired(ledger: ObservationLedger, filled: FakeBucket) -> None:
    filled.now += ORDERS.follow_for + timedelta(days=4)
    for day in (DAY, date(2026, 10, 2), date(2026, 10, 3)):
        for hour in ORDERS.partitions_of(day):
            filled.delete(key(hour))
    found = reconcile(ledger, filled, [ORDERS])
    assert (len(found.changed), found.alarms) == (72, {})
    assert {o.tags[OUTCOME] for o in found.changed} == {EXPIRED}


def test_feed_that_cannot_be_listed_does_not_block_other_feeds(ledger: ObservationLedger, bucket: FakeBucket) -> None:
    bucket.put(key(HOURS[7]), b"1")
    pages = bucket.pages

    def refused(prefix: str) -> Iterator[Listing]:
        if prefix.startswith("customers"):
            raise BucketUnavailable("AccessDenied")
        return pages(prefix)

    bucket.pages = refused  # type: ignore[method-assign]
    with pytest.raises(BucketUnavailable, match="customers: AccessDenied"):
        reconcile(ledger, bucket, [CUSTOMERS, ORDERS])
    assert set(ledger.latest(ORDERS)) == {HOURS[7]}


def test_on_demand_observation_is_kept_after_its_run_is_deleted(bucket: FakeBucket) -> None:
    @dg.observable_source_asset(key=["raw", "orders"], partitions_def=dg.HourlyPartitionsDefinition("2026-09-28-00:00"))
    def orders(context: dg.OpExecutionContext) -> dg.DataVersionsByPartition:
        return observe_partitions(context, _landing(bucket), ORDERS)

    @dg.observable_source_asset(key=["raw", "customers"])
    def customers(context: dg.OpExecutionContext) -> dg.ObserveResult:
        return observe_file(bucket, CUSTOMERS, context.instance)

    bucket.put(key(HOURS[7]), b"1")
    bucket.put(CUSTOMERS.prefix, b"1")
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            assets=[orders, customers], jobs=[dg.define_asset_job("observe", [orders, customers])]
        ).resolve_job_def("observe")
        for _ in range(2):
            run = job.execute_in_process(instance=instance)
            instance.delete_run(run.run_id)
        ledger = ObservationLedger(instance)
        assert set(ledger.latest(ORDERS)) == {HOURS[7]}
        assert set(ledger.latest(CUSTOMERS)) == {None}
