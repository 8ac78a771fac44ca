"""Versions and arrivals follow from what is listed, not from who told of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dagster_tidemark.sources.listing import FakeBucket, Listing, arrival, data_version
from dagster_tidemark.sources.misplaced import MOST_FOLDERS, told
from dagster_tidemark.sources.partition_listing import Walk, look, look_at_each, look_beside, look_beside_all
from tests.toys.feeds import ORDERS

HOUR = "2026-10-01-07:00"
PREFIX = ORDERS.prefix_of(HOUR)
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)


def test_data_version_does_not_depend_on_the_order_of_objects() -> None:
    bucket = FakeBucket()
    bucket.put(f"{PREFIX}a.csv", b"1")
    bucket.put(f"{PREFIX}b.csv", b"2")
    objects = look(bucket, ORDERS, HOUR).objects
    assert data_version(objects) == data_version(reversed(objects))


def test_overwrite_and_removal_of_an_object_change_the_data_version() -> None:
    bucket = FakeBucket(now=NOON)
    bucket.put(f"{PREFIX}a.csv", b"1")
    first = data_version(look(bucket, ORDERS, HOUR).objects)
    bucket.now += timedelta(seconds=5)
    bucket.put(f"{PREFIX}a.csv", b"1")
    second = data_version(look(bucket, ORDERS, HOUR).objects)
    bucket.delete(f"{PREFIX}a.csv")
    third = data_version(look(bucket, ORDERS, HOUR).objects)
    assert len({first, second, third}) == 3


def test_marker_files_subfolders_and_other_suffixes_are_not_data() -> None:
    bucket = FakeBucket()
    for name in ("_SUCCESS", ".a.csv", "", "a.xml", "deeper/a.csv"):
        bucket.put(f"{PREFIX}{name}", b"1")
    assert look(bucket, ORDERS, HOUR).objects == ()


def test_folders_of_hadoop_are_neither_data_nor_misplaced() -> None:
    bucket = FakeBucket(now=NOON)
    for key in (f"{PREFIX.rstrip('/')}_$folder$", f"{PREFIX}deeper_$folder$", f"{ORDERS.prefix}other_$folder$"):
        bucket.put(key, b"")
    walk = Walk(bucket, ORDERS)
    assert (list(walk), walk.beside) == ([], {})
    assert not replace(ORDERS, suffixes=("",), format="csv").is_named_like_data(f"{PREFIX}deeper_$folder$")


def test_listing_a_whole_feed_equals_listing_each_partition() -> None:
    bucket = FakeBucket()
    hours = [f"2026-10-01-{h:02}:00" for h in range(3)]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", hour.encode())
    assert dict(Walk(bucket, ORDERS)) == {hour: look(bucket, ORDERS, hour) for hour in hours}


def test_single_listing_of_a_feed_reports_exactly_the_misplaced_files() -> None:
    bucket = FakeBucket(now=NOON)
    for key in (f"{PREFIX}a.csv", f"{ORDERS.prefix}b.csv", f"{ORDERS.prefix}dt=2026-09-30/hour=07/c.csv"):
        bucket.put(key, b"1")
    beside = look_beside_all(bucket, ORDERS, start=NOON.date())
    assert {said.name: said.reason for said in beside.values()} == {
        f"{ORDERS.prefix}b.csv": "outside_layout",
        f"{ORDERS.prefix}dt=2026-09-30/hour=07/c.csv": "before_start_date",
    }
    assert bucket.prefixes_listed == [ORDERS.prefix]


def test_hours_of_a_day_are_listed_in_one_request() -> None:
    bucket = FakeBucket()
    hours = [f"2026-10-{d:02}-{h:02}:00" for d in (1, 2, 3) for h in range(24)]
    for hour in hours[::2]:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", hour.encode())
    looked = look_at_each(bucket, ORDERS, hours)
    assert len(bucket.prefixes_listed) == 3
    assert looked == {hour: look(bucket, ORDERS, hour) for hour in hours}


def test_arrival_of_a_change_is_that_of_its_oldest_new_object() -> None:
    bucket = FakeBucket(now=NOON)
    bucket.put(f"{PREFIX}old.csv", b"1")
    bucket.now = NOON + timedelta(minutes=10)
    bucket.put(f"{PREFIX}new.csv", b"2")
    bucket.now = NOON + timedelta(minutes=12)
    listing = look(bucket, ORDERS, HOUR)
    arrived = arrival(listing, previously_listed_at=NOON + timedelta(minutes=5), notified_at=None)
    assert arrived == NOON + timedelta(minutes=10)


def test_arrival_of_a_removal_is_its_notification_or_the_listing() -> None:
    empty = Listing((), NOON + timedelta(minutes=12))
    told = arrival(empty, previously_listed_at=NOON, notified_at=NOON + timedelta(minutes=3))
    assert told == NOON + timedelta(minutes=3)
    assert arrival(empty, previously_listed_at=NOON, notified_at=None) == NOON + timedelta(minutes=12)


def test_arrival_is_limited_to_the_time_between_two_listings() -> None:
    listing = Listing((), NOON)
    assert arrival(listing, previously_listed_at=None, notified_at=NOON + timedelta(hours=1)) == NOON
    before = NOON - timedelta(minutes=1)
    assert arrival(listing, previously_listed_at=before, notified_at=NOON - timedelta(hours=1)) == before


def test_misplaced_file_behind_many_marker_files_is_found() -> None:
    bucket = FakeBucket(now=NOON)
    folder = f"{ORDERS.prefix}incoming/"
    for n in range(1500):
        bucket.put(f"{folder}.part-{n:05}.crc", b"1")
    bucket.put(f"{folder}x.csv", b"1")
    (said,) = look_beside_all(bucket, ORDERS, start=NOON.date()).values()
    assert (said.name, said.is_more) == (f"{folder}x.csv", False)
    assert look_beside(bucket, ORDERS, folder, start=NOON.date(), now=NOON) == {folder: said}


def test_newest_misplaced_folders_are_listed_and_the_rest_counted() -> None:
    bucket = FakeBucket(now=NOON)
    for n in range(300):
        bucket.now += timedelta(seconds=1)
        bucket.put(f"{ORDERS.prefix}{n:03}/a.csv", b"1")
    first = told(look_beside_all(bucket, ORDERS, start=NOON.date()))
    assert len(first) == MOST_FOLDERS + 1
    assert f"{ORDERS.prefix}299/" in first and f"{ORDERS.prefix}000/" not in first
    assert told(first) == first
    assert sum(said.files for said in first.values()) == 300
    bucket.put(f"{ORDERS.prefix}000/b.csv", b"1")
    assert told(look_beside_all(bucket, ORDERS, start=NOON.date())) != first
    newer = {f"{ORDERS.prefix}zzz/": replace(first[f"{ORDERS.prefix}299/"], folder=f"{ORDERS.prefix}zzz/")}
    assert len(told(first | newer)) == MOST_FOLDERS + 1
