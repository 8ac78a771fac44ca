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


def test_the_same_objects_have_the_same_version_in_any_order() -> None:
    bucket = FakeBucket()
    bucket.put(f"{PREFIX}a.csv", b"1")
    bucket.put(f"{PREFIX}b.csv", b"2")
    objects = look(bucket, ORDERS, HOUR).objects
    assert data_version(objects) == data_version(reversed(objects))


def test_an_overwrite_with_the_same_bytes_is_another_version_and_a_removal_too() -> None:
    bucket = FakeBucket(now=NOON)
    bucket.put(f"{PREFIX}a.csv", b"1")
    first = data_version(look(bucket, ORDERS, HOUR).objects)
    bucket.now += timedelta(seconds=5)
    bucket.put(f"{PREFIX}a.csv", b"1")
    second = data_version(look(bucket, ORDERS, HOUR).objects)
    bucket.delete(f"{PREFIX}a.csv")
    third = data_version(look(bucket, ORDERS, HOUR).objects)
    assert len({first, second, third}) == 3


def test_markers_folders_and_other_endings_are_no_data() -> None:
    bucket = FakeBucket()
    for name in ("_SUCCESS", ".a.csv", "", "a.xml", "deeper/a.csv"):
        bucket.put(f"{PREFIX}{name}", b"1")
    assert look(bucket, ORDERS, HOUR).objects == ()


def test_one_look_at_all_equals_a_look_at_each() -> None:
    bucket = FakeBucket()
    hours = [f"2026-10-01-{h:02}:00" for h in range(3)]
    for hour in hours:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", hour.encode())
    assert dict(Walk(bucket, ORDERS)) == {hour: look(bucket, ORDERS, hour) for hour in hours}


def test_one_look_beside_all_partitions_finds_what_is_misplaced_and_nothing_else() -> None:
    bucket = FakeBucket(now=NOON)
    for key in (f"{PREFIX}a.csv", f"{ORDERS.prefix}b.csv", f"{ORDERS.prefix}dt=2026-09-30/hour=07/c.csv"):
        bucket.put(key, b"1")
    beside = look_beside_all(bucket, ORDERS, start=NOON.date())
    assert {said.name: said.reason for said in beside.values()} == {
        f"{ORDERS.prefix}b.csv": "outside_layout",
        f"{ORDERS.prefix}dt=2026-09-30/hour=07/c.csv": "before_start_date",
    }
    assert bucket.prefixes_listed == [ORDERS.prefix]


def test_the_hours_of_a_day_are_one_list_and_the_same_answer() -> None:
    bucket = FakeBucket()
    hours = [f"2026-10-{d:02}-{h:02}:00" for d in (1, 2, 3) for h in range(24)]
    for hour in hours[::2]:
        bucket.put(f"{ORDERS.prefix_of(hour)}a.csv", hour.encode())
    looked = look_at_each(bucket, ORDERS, hours)
    assert len(bucket.prefixes_listed) == 3
    assert looked == {hour: look(bucket, ORDERS, hour) for hour in hours}


def test_a_change_arrived_with_its_oldest_new_object() -> None:
    bucket = FakeBucket(now=NOON)
    bucket.put(f"{PREFIX}old.csv", b"1")
    bucket.now = NOON + timedelta(minutes=10)
    bucket.put(f"{PREFIX}new.csv", b"2")
    bucket.now = NOON + timedelta(minutes=12)
    listing = look(bucket, ORDERS, HOUR)
    arrived = arrival(listing, previously_listed_at=NOON + timedelta(minutes=5), notified_at=None)
    assert arrived == NOON + timedelta(minutes=10)


def test_a_removal_arrived_when_somebody_told_of_it_else_now() -> None:
    empty = Listing((), NOON + timedelta(minutes=12))
    told = arrival(empty, previously_listed_at=NOON, notified_at=NOON + timedelta(minutes=3))
    assert told == NOON + timedelta(minutes=3)
    assert arrival(empty, previously_listed_at=NOON, notified_at=None) == NOON + timedelta(minutes=12)


def test_an_arrival_lies_between_the_two_listings() -> None:
    listing = Listing((), NOON)
    assert arrival(listing, previously_listed_at=None, notified_at=NOON + timedelta(hours=1)) == NOON
    before = NOON - timedelta(minutes=1)
    assert arrival(listing, previously_listed_at=before, notified_at=NOON - timedelta(hours=1)) == before


def test_markers_hide_nothing_that_lies_behind_them() -> None:
    bucket = FakeBucket(now=NOON)
    folder = f"{ORDERS.prefix}incoming/"
    for n in range(1500):
        bucket.put(f"{folder}.part-{n:05}.crc", b"1")
    bucket.put(f"{folder}x.csv", b"1")
    (said,) = look_beside_all(bucket, ORDERS, start=NOON.date()).values()
    assert (said.name, said.is_more) == (f"{folder}x.csv", False)
    assert look_beside(bucket, ORDERS, folder, start=NOON.date(), now=NOON) == {folder: said}


def test_of_very_many_folders_the_newest_are_told_one_by_one_and_no_other_is_hidden() -> None:
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
