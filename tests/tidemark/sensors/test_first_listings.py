"""Complete listings of new feeds by the landing sensor: in slices, with a record, and beside notifications."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest

from dagster_tidemark import Feed, Grain
from dagster_tidemark.engine.complete_listings import FeedListing, note_listing, place_of, read_listings
from dagster_tidemark.event_log.observations import ObservationLedger, version_of
from dagster_tidemark.sensors import change_detection, landing, own_listings
from dagster_tidemark.sensors.change_detection import DetectedChanges, observe, observe_beside
from dagster_tidemark.sensors.own_listings import FirstListings
from dagster_tidemark.sensors.reconcile_schedules import reconcile
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.listing import BucketUnavailable, FakeBucket, Listing, data_version
from dagster_tidemark.sources.partition_listing import look
from tests.tidemark.sensors.landing_ticks import LandingTicks
from tests.toys.feeds import CUSTOMERS, FEEDS, ORDERS, PRICES

START = date(2026, 9, 28)
NOON = datetime(2026, 10, 20, 12, tzinfo=UTC)
DAYS = [f"2026-10-{day:02}" for day in range(1, 8)]
HOUR = "2026-10-01-07:00"
# Dagster warns of its own nested resources.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run")


class InPages(FakeBucket):
    """A bucket whose pages have two objects. The pages below `away` fail after the first one."""

    away: str | None = None

    def pages(self, prefix: str) -> Iterator[Listing]:
        last, first = "", self.list(prefix)
        while True:
            left = [landed for landed in self.list(prefix).objects if landed.key > last]
            yield replace(first, objects=tuple(left[:2]))
            if len(left) <= 2:
                return
            if self.away is not None and prefix.startswith(self.away):
                raise BucketUnavailable("the bucket does not answer")
            last = left[1].key


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def bucket() -> InPages:
    """Three files of each of seven days, none of them notified."""
    found = InPages(now=NOON)
    for day in DAYS:
        for name in "abc":
            found.put(f"prices/dt={day}/{name}.csv", b"1")
    return found


class Steps:
    """The listings of some feeds, one page per step."""

    def __init__(self, instance: dg.DagsterInstance, *feeds: Feed) -> None:
        self.instance, self.ledger = instance, ObservationLedger(instance, START)
        self.listings = FirstListings(instance, "here", feeds, "landing", START)
        self.said: list[str] = []

    def step(self, bucket: FakeBucket, seconds: float = 0.0) -> DetectedChanges:
        found, said = self.listings.step(self.instance, self.ledger, bucket, seconds or 1e-9)
        self.said += said
        return found

    def record(self, feed: Feed = PRICES) -> FeedListing:
        return read_listings(self.instance, "here", [feed.name])[feed.name]


def test_new_feed_is_listed_in_slices_and_the_record_names_the_progress(
    instance: dg.DagsterInstance, bucket: InPages
) -> None:
    steps = Steps(instance, PRICES)
    per_step = list[int]()
    told = list[str]()
    while not steps.said:
        per_step.append(len(steps.step(bucket).changed))
        told.append(steps.record().progress)
    assert sum(per_step) == len(DAYS) and max(per_step) == 1 and len(per_step) > 10, "a page of two files at a time"
    assert told[5] == "9 files in 3 partitions so far"
    assert steps.said == ["feed prices was listed completely for the first time: 21 files in 7 partitions"]
    assert (steps.record().place, steps.record().progress) == (place_of(PRICES, "landing", START), "")
    assert steps.record().at > 0 and steps.record().begun_at == 0.0
    listed = len(bucket.prefixes_listed)
    assert steps.step(bucket).changed == [] and len(bucket.prefixes_listed) == listed, "once"
    assert Steps(instance, PRICES).step(bucket).changed == [] and len(bucket.prefixes_listed) == listed
    assert reconcile(steps.ledger, bucket, [PRICES]).changed == [], "a complete listing finds nothing else"


@pytest.mark.parametrize("change", ["prefix", "bucket", "start", "keys"])
def test_feed_whose_place_changes_is_listed_again(instance: dg.DagsterInstance, bucket: InPages, change: str) -> None:
    regions = Feed("regions", "regions/", Grain.DAY, {"id": "bigint"}, keys={"region": ["emea"]})
    steps = Steps(instance, regions)
    steps.step(bucket, 5)
    assert len(steps.said) == 1
    changed = {
        "prefix": (replace(regions, prefix="prices/", keys={}, folders=None), "landing", START),
        "bucket": (regions, "another", START),
        "start": (regions, "landing", START - timedelta(days=9)),
        "keys": (replace(regions, keys={"region": ["emea", "apac"]}), "landing", START),
    }
    feed, name, start = changed[change]
    bucket.put("regions/dt=2026-10-01/region=apac/a.csv", b"1")
    again = FirstListings(instance, "here", [feed], name, start)
    found, said = again.step(instance, ObservationLedger(instance, start), bucket, 5)
    assert len(said) == 1
    assert len(found.changed) == {"prefix": len(DAYS), "keys": 1}.get(change, 0)


def test_notification_during_the_listing_counts_and_an_older_page_changes_nothing(
    instance: dg.DagsterInstance, bucket: InPages
) -> None:
    steps = Steps(instance, PRICES)
    steps.step(bucket)  # the first page has two of three files of the first day
    bucket.now += timedelta(seconds=5)
    bucket.put(f"prices/dt={DAYS[0]}/a.csv", b"another")
    bucket.put(f"prices/dt={DAYS[6]}/d.csv", b"1")
    observe(steps.ledger, bucket, {(PRICES, DAYS[0]): bucket.now, (PRICES, DAYS[6]): bucket.now})
    seen = dict(steps.ledger.latest(PRICES))
    while not steps.said:
        steps.step(bucket)
    for day in DAYS:
        latest = steps.ledger.latest(PRICES)[day]
        assert version_of(latest) == data_version(look(bucket, PRICES, day).objects)
        assert latest == seen.get(day, latest), "reported once"


def test_files_that_vanish_during_the_listing_are_judged_like_those_of_a_reconcile(
    instance: dg.DagsterInstance, bucket: InPages
) -> None:
    steps = Steps(instance, PRICES)
    observe(steps.ledger, bucket, {(PRICES, day): NOON for day in DAYS[:5]})
    bucket.now += timedelta(seconds=5)
    for name in "abc":
        bucket.delete(f"prices/dt={DAYS[0]}/{name}.csv")
    found = steps.step(bucket, 5)
    assert [o.partition for o in found.changed if version_of(o.tags) == data_version(())] == [DAYS[0]]
    assert {o.partition for o in found.changed} == {DAYS[0], DAYS[5], DAYS[6]}


def test_misplaced_files_are_reported_and_those_of_notifications_are_kept(
    instance: dg.DagsterInstance, bucket: InPages
) -> None:
    bucket.put("prices/dt=yesterday/a.csv", b"1")
    steps = Steps(instance, PRICES)
    while not steps.record().progress.startswith("18 files"):
        steps.step(bucket)
    bucket.put("prices/another/a.csv", b"1")  # its page has been read
    observe_beside(steps.ledger, bucket, {PRICES: ["prices/another/"]})
    steps.step(bucket, 5)
    assert set(steps.ledger.misplaced(PRICES) or {}) == {"prices/dt=yesterday/", "prices/another/"}


def test_feed_that_cannot_be_listed_is_named_and_does_not_stop_the_others(
    instance: dg.DagsterInstance, bucket: InPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.away = "prices/"
    bucket.put(CUSTOMERS.prefix, b"1")
    steps = Steps(instance, PRICES, CUSTOMERS)
    assert steps.step(bucket, 5).changed == []
    assert steps.record().progress == "it cannot be listed: the bucket does not answer"
    assert steps.record(CUSTOMERS).progress == "other feeds are listed first"
    assert steps.step(bucket, 5).changed == [], "it pauses"
    monkeypatch.setattr(own_listings, "_PAUSE_SECONDS", 0.0)
    steps.listings._again_at = 0.0
    assert [o.asset_key.path[-1] for o in steps.step(bucket, 5).changed] == ["customers"]
    assert steps.record(CUSTOMERS).at > 0
    bucket.away = None
    assert len(steps.step(bucket, 5).changed) == len(DAYS)
    assert steps.record().begun_at == 0.0


def test_feed_that_an_earlier_release_listed_nightly_is_not_listed_again(
    instance: dg.DagsterInstance, bucket: InPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe(ObservationLedger(instance, START), bucket, {(PRICES, DAYS[0]): NOON})
    assert len(Steps(instance, PRICES).step(bucket, 5).changed) == len(DAYS) - 1, "it was observed a moment ago"
    bucket.put(CUSTOMERS.prefix, b"1")
    observe(ObservationLedger(instance, START), bucket, {(CUSTOMERS, None): NOON})
    monkeypatch.setattr(own_listings, "_DAY_SECONDS", -60.0)
    steps = Steps(instance, CUSTOMERS, ORDERS)
    listed = len(bucket.prefixes_listed)
    steps.step(bucket, 5)
    assert bucket.prefixes_listed[listed:] == ["orders/"] * 2, "the other feed has no observation"
    moved = replace(CUSTOMERS, prefix="customers/moved.csv")
    bucket.put(moved.prefix, b"2")
    assert len(Steps(instance, moved).step(bucket, 5).changed) == 1, "the record knows the old prefix"


def test_many_partitions_of_one_page_are_reported_in_several_ticks(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = FakeBucket(now=NOON)
    for day in DAYS:
        bucket.put(f"prices/dt={day}/a.csv", b"1")
    monkeypatch.setattr(own_listings, "_MOST_PARTITIONS", 3)
    steps = Steps(instance, PRICES)
    assert [len(steps.step(bucket).changed) for _ in range(4)] == [3, 3, 1, 0]
    assert len(steps.said) == 1 and steps.record().at > 0


def test_partition_that_cannot_be_listed_again_keeps_the_listing_incomplete(
    instance: dg.DagsterInstance, bucket: InPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(instance, PRICES)
    steps.step(bucket)
    bucket.now += timedelta(seconds=5)
    bucket.put(f"prices/dt={DAYS[0]}/a.csv", b"another")
    observe(steps.ledger, bucket, {(PRICES, DAYS[0]): bucket.now})
    bucket.put(f"prices/dt={DAYS[0]}/d.csv", b"1")

    def _away(*_: object) -> Listing:
        raise BucketUnavailable("access denied")

    with monkeypatch.context() as away:
        away.setattr(change_detection, "look", _away)
        steps.step(bucket, 5)
    assert steps.said == [] and steps.record().progress == "it cannot be listed: access denied"


def test_listing_whose_report_failed_begins_again(instance: dg.DagsterInstance, bucket: InPages) -> None:
    class Away(ObservationLedger):
        def report(self, observations: object) -> None:
            raise ConnectionError("the event log is away")

    steps = Steps(instance, PRICES)
    ledger, steps.ledger = steps.ledger, Away(instance, START)
    with pytest.raises(ConnectionError):
        steps.step(bucket, 5)
    steps.ledger = ledger
    assert len(steps.step(bucket, 5).changed) == len(DAYS)


def test_sensor_on_the_real_cloud_lists_only_feeds_that_were_never_listed(
    instance: dg.DagsterInstance, cloud: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "_WAIT_SECONDS", 1)
    tick = LandingTicks(instance, cloud, FEEDS, START)
    for number in range(1001):  # more than a page
        tick.put(f"prices/dt={DAYS[number % 7]}/{number}.csv")
    hour = ORDERS.prefix_of(HOUR) + "a.csv"
    tick.put(hour)
    note_listing(instance, tick.location, "orders", 1.0, place_of(ORDERS, tick.bucket, START))
    for _ in range(3):  # a slow machine may need several slices
        tick()
    ledger = ObservationLedger(instance, START)
    assert set(ledger.latest(PRICES)) == set(DAYS)
    assert ledger.latest(ORDERS) == {}, "it was listed: notifications and reconcile find its files"
    listed = read_listings(instance, tick.location, [feed.name for feed in FEEDS])
    assert all(found.at > 0 and not found.begun_at for found in listed.values())
    tick.notify(hour)
    tick()
    assert set(ledger.latest(ORDERS)) == {HOUR}
