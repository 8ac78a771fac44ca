"""Files that are added, changed and lost: the table is what a fresh load would make, and no more is read."""

import dataclasses
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from dagster_tidemark import LINEAGE, Table
from dagster_tidemark.lakehouse.loading import load as load_module
from dagster_tidemark.lakehouse.loading.load import Load, Observed, run_load
from dagster_tidemark.sources.feed import Feed, Grain, OnRemoval
from dagster_tidemark.sources.listing import ObjectVersion
from dagster_tidemark.sources.s3 import S3Bucket
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import (
    HOUR,
    Delete,
    Loading,
    Put,
    a_second,
    csv,
    key,
    line,
    quantities,
    quarantined,
    renamed,
)


class Counting(S3Bucket):
    """The landing bucket, with the keys that were fetched."""

    def __init__(self, bucket: S3Bucket) -> None:
        super().__init__(bucket._connect, bucket.name)
        self.fetched: list[str] = []

    def read(self, of: ObjectVersion) -> bytes:
        self.fetched.append(of.key)
        return super().read(of)


def snapshots(spark: SparkSession, load: Load) -> int:
    return spark.sql(f"SELECT * FROM {load.table.identifier}.snapshots").count()


def test_added_file_is_merged_in_one_commit_without_reading_old_files(
    spark: SparkSession, put: Put, landing: S3Bucket, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2, 3)))
    counting = Counting(landing)
    run_load(spark, counting, orders, [HOUR], run_id="1")
    a_second()
    put(key(orders, "b.csv"), csv(line(2, 4), line(3)))

    loaded = run_load(spark, counting, orders, [HOUR], run_id="2")

    assert (loaded.read_again, loaded.added_to) == ([], [HOUR])
    assert counting.fetched == [key(orders, "a.csv"), key(orders, "b.csv")]
    assert quantities(spark, orders) == {1: 3, 2: 4, 3: 3}
    assert loaded.content[HOUR].rows == 3
    assert snapshots(spark, orders) == 2


def test_corrected_file_replaces_rows_and_moved_file_loads_into_its_new_partition(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    later = "2026-10-01-08:00"
    put(key(orders, "orders.csv"), csv(line(1), line(11)))
    put(key(orders, "moved.csv"), csv(line(2, at="2026-10-01T08:15:00Z")))
    loading(orders, HOUR)
    assert ("moved.csv", 1, "wrong_hour") in quarantined(spark, orders)
    put(key(orders, "orders_v2.csv"), csv(line(1, 9)))
    delete(key(orders, "moved.csv"))
    put(key(orders, "moved.csv", later), csv(line(2, at="2026-10-01T08:15:00Z")))
    loading(orders, HOUR, later)
    assert quantities(spark, orders) == {1: 9, 11: 3, 2: 3}, "a row that the correction lacks stays"
    assert quarantined(spark, orders) == []


def test_older_file_listed_late_loses_to_newer_rows_and_is_not_reread(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a.csv lands first, and is not listed yet when b.csv is loaded.
    put(key(orders, "a.csv"), csv(line(1, 5), line(2, 5)))
    a_second()
    put(key(orders, "b.csv"), csv(line(1, 6)))
    put(key(orders, "c.csv"), csv(line(2, 6)))
    with monkeypatch.context() as patched:
        patched.setattr(load_module, "look", without("a.csv", load_module.look))
        loading(orders, HOUR)
    assert loading(orders, HOUR).added_to == [HOUR]
    assert quantities(spark, orders) == {1: 6, 2: 6}
    assert quarantined(spark, orders) == [("a.csv", 0, "no rows")]
    again = loading(orders, HOUR)
    assert (again.read_again, again.added_to, again.backlog) == ((), (), [])
    delete(key(orders, "b.csv"))
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 5, 2: 6}, "what lost to a file that is gone comes back"
    assert quarantined(spark, orders) == []


def without(name: str, look: Callable[..., object]) -> Callable[..., object]:
    """`look`, through a bucket that does not list this file yet."""

    def _look(spark: object, landing: S3Bucket, *rest: object) -> object:
        class Behind(S3Bucket):
            def list(self, prefix: str) -> object:  # type: ignore[override]
                listing = super().list(prefix)
                return dataclasses.replace(
                    listing, objects=tuple(o for o in listing.objects if not o.key.endswith(name))
                )

        return look(spark, Behind(landing._connect, landing.name), *rest)

    return _look


def test_file_that_loses_its_last_row_is_not_read_again(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    a_second()
    put(key(orders, "b.csv"), csv(line(1, 9)))
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 9}
    assert quarantined(spark, orders) == [("a.csv", 0, "no rows")]
    assert loading(orders, HOUR).added_to == ()


def test_added_changed_and_deleted_files_of_several_partitions_load_in_one_commit(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    hours = [f"2026-10-01-{h:02}:00" for h in range(4)]
    at = [f"2026-10-01T{h:02}:15:00Z" for h in range(4)]
    for h, hour in enumerate(hours):
        put(key(orders, "a.csv", hour), csv(line(h, at=at[h])))
        put(key(orders, "b.csv", hour), csv(line(10 + h, at=at[h])))
    loading(orders, *hours)
    a_second()
    put(key(orders, "c.csv", hours[0]), csv(line(0, 7, at[0]), line(20, 7, at[0])))
    put(key(orders, "a.csv", hours[1]), csv(line(21, 7, at[1]), "22,1,3,4,5,many,1,0," + at[1]))
    delete(key(orders, "a.csv", hours[2]))
    loaded = loading(orders, *hours)
    assert (loaded.added_to, loaded.read_again) == ([hours[0]], [hours[1], hours[2]])
    assert quantities(spark, orders) == {0: 7, 3: 3, 10: 3, 11: 3, 12: 3, 13: 3, 20: 7, 21: 7}
    # a.csv of the first hour lost its only row.
    assert quarantined(spark, orders) == [("a.csv", 0, "no rows"), ("a.csv", 2, "bad_type")]
    assert snapshots(spark, orders) == 2


def test_files_of_a_load_that_died_are_read_again_by_the_next(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die_at(at: str) -> Callable[[str], None]:
        def _reached(boundary: str) -> None:
            if boundary == at:
                raise Died

        return _reached

    put(key(orders, "a.csv"), csv(line(1), "2,1,3,4,5,many,1,0,2026-10-01T07:15:00Z"))
    put(key(orders, "b.csv"), csv("3,1,3,4,5,many,1,0,2026-10-01T07:15:00Z"))
    for at in ("between_quarantine_and_table", "before_commit", "after_commit"):
        with monkeypatch.context() as patched, pytest.raises(Died):
            patched.setattr(load_module, "reached", die_at(at))
            loading(orders, HOUR)
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 3}
    assert quarantined(spark, orders) == [("a.csv", 2, "bad_type"), ("b.csv", 0, "no rows"), ("b.csv", 1, "bad_type")]
    assert loading(orders, HOUR).added_to == ()


EXPIRED = {"follow_for": timedelta(days=1)}


@pytest.mark.parametrize("options", [EXPIRED, {"removals": OnRemoval.KEEP}])
def test_partition_with_expired_files_keeps_their_rows_and_loads_added_files(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load, options: dict[str, object]
) -> None:
    kept = renamed(orders, **options)
    put(key(kept, "a.csv"), csv(line(1), line(2)))
    put(key(kept, "b.csv"), csv(line(3)))
    loading(kept, HOUR)
    delete(key(kept, "a.csv"))
    after = loading(kept, HOUR)
    assert after.fates[HOUR].expired == {key(kept, "a.csv")}
    assert (after.read_again, after.added_to) == ((), ())
    bumped = dataclasses.replace(kept, code_version="2")
    a_second()
    put(key(kept, "c.csv"), csv(line(2, 8)))
    loaded = loading(bumped, HOUR)
    assert loaded.added_to == [HOUR]
    assert loaded.kept_from == {HOUR: {"1"}}
    assert quantities(spark, kept) == {1: 3, 2: 8, 3: 3}
    put(key(kept, "b.csv"), csv(line(4)))
    loading(bumped, HOUR)
    assert quantities(spark, kept) == {1: 3, 2: 8, 4: 3}, "an overwritten file is exchanged"


def put_hours(put: Put, orders: Load, count: int) -> list[str]:
    """The first hours of a day, a file with one row in each."""
    hours = [f"2026-10-01-{h:02}:00" for h in range(count)]
    for h, hour in enumerate(hours):
        put(key(orders, "a.csv", hour), csv(line(h, at=f"2026-10-01T{h:02}:15:00Z")))
    return hours


@pytest.mark.parametrize("change", ["prefix", "endings"])
def test_rows_of_a_deleted_file_outside_the_changed_feed_are_removed(
    change: str, spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    jsonl = '{"order_id":2,"line_number":1,"customer_id":3,"product_id":4,"store_id":5,"quantity":3,'
    put(key(orders, "a.csv"), csv(line(1), line(3)))
    put(key(orders, "b.jsonl"), jsonl + '"unit_price_usd":1.25,"discount":0.1,"ordered_at":"2026-10-01T07:15:00Z"}\n')
    loading(orders, HOUR)
    delete(key(orders, "b.jsonl"))
    changed = {"prefix": {"prefix": f"v2/{orders.feed.prefix}"}, "endings": {"suffixes": (".csv",)}}[change]
    other = dataclasses.replace(orders, feed=dataclasses.replace(orders.feed, **changed))  # type: ignore[arg-type]
    if change == "prefix":
        delete(key(orders, "a.csv"))
        put(key(other, "a.csv"), csv(line(1)))
    loaded = loading(other, HOUR)
    assert key(orders, "b.jsonl") in loaded.fates[HOUR].gone
    assert quantities(spark, orders) == ({1: 3} if change == "prefix" else {1: 3, 3: 3})


NUMBERS = Load(
    Feed("numbers", "numbers/", Grain.DAY, {"n": "bigint"}, required=("n",)),
    Table("core.numbers", {"day": "date", "n": "bigint"} | LINEAGE, ("day", "n"), partitioned_by="day"),
    lambda rows: rows,
    code_version="1",
)


def test_rows_follow_the_folder_of_a_partition_that_is_renamed(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading
) -> None:
    load, days = renamed(NUMBERS), [f"2026-10-0{day}" for day in range(1, 5)]

    def found() -> dict[int, int]:
        return {row.n: row.day.day for row in spark.table(load.table.identifier).collect()}

    for n, day in enumerate(days[:3], 1):
        put(load.feed.prefix_of(day) + "a.csv", f"n\n{n}\n")
    loading(load, *days[:3])
    delete(load.feed.prefix_of(days[0]) + "a.csv")
    put(load.feed.prefix_of(days[3]) + "a.csv", "n\n1\n")
    loading(load, days[0], days[3])
    assert found() == {1: 4, 2: 2, 3: 3}, "the partition column comes from the folder"
    delete(load.feed.prefix_of(days[1]) + "a.csv")
    put(f"{load.feed.prefix}dt=second/a.csv", "n\n2\n")
    loading(load, days[1])
    assert found() == {1: 4, 3: 3}, "no partition has the new folder"


def test_rows_of_an_old_prefix_are_kept_while_the_new_is_empty(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    moved = dataclasses.replace(orders, feed=dataclasses.replace(orders.feed, prefix=f"v2/{orders.feed.prefix}"))
    assert "wrong bucket?" in (loading(moved, HOUR).alarm or "")
    assert quantities(spark, orders) == {1: 3}


@pytest.mark.proof
def test_load_replaces_600_changed_files_beside_an_expired_file(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    kept = renamed(orders, follow_for=timedelta(days=1))
    names = range(1, 601)
    put(key(kept, "gone.csv"), csv(line(0)))
    for n in names:
        put(key(kept, f"{n}.csv"), csv(line(n)))
    loading(kept, HOUR)
    delete(key(kept, "gone.csv"))
    a_second()
    for n in names:
        put(key(kept, f"{n}.csv"), csv(line(n, quantity=7)))
    loading(kept, HOUR)
    assert quantities(spark, kept) == {0: 3} | dict.fromkeys(names, 7)


def test_rows_of_a_vanished_feed_are_kept_until_the_removal_is_accepted(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load, landing: S3Bucket
) -> None:
    hours = put_hours(put, orders, 3)
    first = loading(orders, *hours)
    landing._client.create_bucket(Bucket="empty-bucket")
    empty = S3Bucket(landing._connect, "empty-bucket")
    bumped = dataclasses.replace(orders, code_version="2")
    for partitions in (hours, hours[:1]):
        held = run_load(spark, empty, bumped, partitions, run_id=str(uuid.uuid4()))
        assert held.alarm is not None
        assert "wrong bucket?" in held.alarm
        assert held.snapshot_id == first.snapshot_id
        assert held.content == {p: first.content[p] for p in partitions}
    accepted = run_load(
        spark, empty, orders, hours, run_id=str(uuid.uuid4()), observed=lambda: Observed(accepted=hours)
    )
    assert accepted.content[hours[0]].rows == 0
    assert quantities(spark, orders) == {}


def test_removal_of_a_tenth_partition_within_a_day_is_held(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    hours = put_hours(put, orders, 12)
    loading(orders, *hours)
    for hour in hours[:9]:
        delete(key(orders, "a.csv", hour))
    assert sorted(loading(orders, *hours).read_again) == hours[:9]
    delete(key(orders, "a.csv", hours[9]))
    seen = dict.fromkeys(hours[:9], datetime.now(UTC))
    held = loading(orders, *hours, observed=lambda: Observed(vanished=seen))
    assert held.alarm is not None
    assert "10 of 12 partitions" in held.alarm
    assert quantities(spark, orders) == {9: 3, 10: 3, 11: 3}
    assert loading(orders, *hours).read_again == [hours[9]], "by itself it is one of three"


def test_files_before_the_start_date_do_not_reduce_the_removed_share(
    put: Put, delete: Delete, loading: Loading, orders: Load, spark: SparkSession
) -> None:
    hours = put_hours(put, orders, 12)
    for hour in hours:
        for day in range(20, 26):
            put(key(orders, "old.csv", f"2026-09-{day}{hour[10:]}"), "")
    loading(orders, *hours)
    for hour in hours:
        delete(key(orders, "a.csv", hour))
    bumped = dataclasses.replace(orders, code_version="2")
    held = loading(bumped, *hours, observed=lambda: Observed(holding=hours))
    assert held.alarm is not None
    assert len(quantities(spark, orders)) == 12


def test_new_code_version_reads_each_built_partition_once(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    hours = [f"2026-10-01-{h:02}:00" for h in range(3)]
    for h, hour in enumerate(hours):
        put(key(orders, "a.csv", hour), csv(line(h, at=f"2026-10-01T{h:02}:15:00Z")))
    loading(orders, *hours)
    bumped = dataclasses.replace(orders, code_version="2")
    assert loading(bumped, *hours).read_again == hours
    assert loading(bumped, *hours).read_again == ()


@pytest.mark.parametrize("second_looks_at", sample(["look", "before_commit", "after_commit"], "before_commit"))
@pytest.mark.parametrize("begins", sample(["empty", "filled"], "filled"))
def test_overlapping_loads_of_a_partition_never_double_or_lose_a_row(
    spark: SparkSession,
    other_spark: SparkSession,
    put: Put,
    delete: Delete,
    landing: S3Bucket,
    orders: Load,
    begins: str,
    second_looks_at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two sessions. The second run does all it does while the first stands still at each of its points in turn."""
    if begins == "filled":
        put(key(orders, "z.csv"), csv(line(1), line(9)))
        run_load(spark, landing, orders, [HOUR], run_id="0")
        a_second()
    put(key(orders, "a.csv"), csv(line(1, 4), line(2, 4)))
    first_thread = threading.get_ident()
    ran = []

    def second() -> None:
        put(key(orders, "a.csv"), csv(line(1, 5), line(3, 5)))  # meanwhile the file changes, and another comes
        put(key(orders, "b.csv"), csv(line(4, 5)))
        ran.append(run_load(other_spark, landing, orders, [HOUR], run_id=str(uuid.uuid4())))

    def once() -> None:
        if not ran and threading.get_ident() == first_thread and not running:
            running.append(True)
            a_second()
            second()

    running: list[bool] = []
    look = load_module.look

    def stands_still_after_looking(*args: object) -> object:
        found = look(*args)  # type: ignore[arg-type]
        once()
        return found

    if second_looks_at == "look":
        monkeypatch.setattr(load_module, "look", stands_still_after_looking)
    else:
        monkeypatch.setattr(load_module, "reached", lambda boundary: once() if boundary == second_looks_at else None)
    run_load(spark, landing, orders, [HOUR], run_id="1")
    assert len(ran) == 1
    monkeypatch.undo()
    expected = {1: 5, 3: 5, 4: 5} | ({9: 3} if begins == "filled" else {})
    if second_looks_at == "after_commit":
        assert ran[0].read_again == [HOUR]
    assert quantities(spark, orders) == expected
    assert quarantined(spark, orders) == []
    assert run_load(spark, landing, orders, [HOUR], run_id="3").read_again == (), "and nothing is left to do"


def test_commits_to_other_partitions_do_not_make_a_load_begin_again(
    spark: SparkSession,
    other_spark: SparkSession,
    put: Put,
    landing: S3Bucket,
    orders: Load,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow load of a busy table would repeat itself up to 20 times, and report nothing meanwhile."""
    later = "2026-10-01-08:00"
    put(key(orders, "a.csv"), csv(line(1)))
    put(key(orders, "b.csv", later), csv(line(2, at="2026-10-01T08:15:00Z")))
    first_thread, looks, running = threading.get_ident(), list[object](), list[bool]()
    look = load_module.look

    def counted(*args: object) -> object:
        if threading.get_ident() == first_thread and args[0] is spark:
            looks.append(args[3])
        return look(*args)  # type: ignore[arg-type]

    def other(boundary: str) -> None:
        if boundary == "before_commit" and not running:
            running.append(True)
            put(key(orders, "late.csv"), csv(line(3)))
            run_load(other_spark, landing, orders, [later], run_id=str(uuid.uuid4()))

    monkeypatch.setattr(load_module, "look", counted)
    monkeypatch.setattr(load_module, "reached", other)
    loaded = run_load(spark, landing, orders, [HOUR], run_id="1")
    assert looks == [[HOUR]] and loaded.files_read == 1
    monkeypatch.undo()
    assert quantities(spark, orders) == {1: 3, 2: 3}, "a file that arrives after the listing is for the next load"
    assert run_load(spark, landing, orders, [HOUR], run_id="2").added_to == [HOUR]
    assert quantities(spark, orders) == {1: 3, 2: 3, 3: 3}
