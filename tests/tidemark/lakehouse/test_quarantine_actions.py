"""What people do about things that were turned away, on real Spark and S3."""

import dataclasses
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from pyspark.sql import SparkSession

from dagster_tidemark.cli import quarantine_work
from dagster_tidemark.cli.quarantine_work import CannotHandle, QuarantineTarget
from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.event_log.observations import QUARANTINE as CHECK
from dagster_tidemark.event_log.observations import ObservationLedger, misplaced_check
from dagster_tidemark.lakehouse.loading import quarantine_actions
from dagster_tidemark.lakehouse.loading.dry_run import rehearse
from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.loading.quarantine_actions import Selection
from dagster_tidemark.lakehouse.loading.quarantine_counts import backlog_of
from dagster_tidemark.sources.partition_listing import look_beside_all
from dagster_tidemark.sources.s3 import S3Bucket
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

BAD = line(9).replace(",0.1,", ",7,")  # a discount of seven
LENIENT = {"discount_out_of_range": "discount BETWEEN 0 AND 10"}


def with_rules(load: Load, rules: dict[str, str]) -> Load:
    return dataclasses.replace(load, feed=dataclasses.replace(load.feed, rules={**load.feed.rules, **rules}))


@pytest.fixture
def place(spark: SparkSession, landing: S3Bucket, orders: Load):  # type: ignore[no-untyped-def]
    with dg.DagsterInstance.ephemeral() as instance:
        yield QuarantineTarget(spark, landing, instance, ObservationLedger(instance), {orders.asset: orders})


def waiting(spark: SparkSession, load: Load) -> list[tuple[str, int]]:
    return [(b.reason, b.count) for b in backlog_of(spark, load.asset) if not b.is_waived]


@pytest.mark.proof  # a minute
def test_waiver_applies_to_its_file_version_however_often_it_is_read(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD))
    put(key(orders, "b.parquet"), b"no parquet")
    loading(orders, HOUR)
    assert waiting(spark, orders) == [("discount_out_of_range", 1), ("unreadable", 1)]
    assert quarantine_actions.waive(spark, Selection(orders.asset), "the till was broken", run_id="w") == 2
    assert waiting(spark, orders) == []
    put(key(orders, "c.csv"), csv(line(2)))
    newer = dataclasses.replace(orders, code_version="2")
    loaded = loading(newer, HOUR)
    assert (len(loaded.read_again), waiting(spark, orders)) == (1, []), "read again, with other code"
    assert {b.reason: b.is_waived for b in loaded.backlog} == {"discount_out_of_range": True, "unreadable": True}
    [shown] = quarantine_actions.entries(spark, Selection(orders.asset, ["unreadable"])).collect()
    assert shown.because == "the till was broken"
    a_second()
    put(key(orders, "a.csv"), csv(line(1), BAD))
    loading(newer, HOUR)
    assert waiting(spark, orders) == [("discount_out_of_range", 1)], "a new version is a new matter"
    assert quarantine_actions.unwaive(spark, Selection(orders.asset)) == 1
    assert waiting(spark, orders) == [("discount_out_of_range", 1), ("unreadable", 1)]


def test_quarantine_entries_are_selected_by_asset_reason_file_and_time(
    spark: SparkSession, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a_1.csv"), csv(BAD, BAD.replace("3,1.25", "x,1.25")))
    put(key(orders, "ab1.csv"), csv(BAD))
    loading(orders, HOUR)

    def of(**options: object) -> list[tuple[str, str]]:
        found = quarantine_actions.entries(spark, Selection(orders.asset, **options)).collect()  # type: ignore[arg-type]
        return sorted((row.source_file.rpartition("/")[2], row.reason) for row in found)

    all_of_them = [("a_1.csv", "bad_type"), ("a_1.csv", "discount_out_of_range"), ("ab1.csv", "discount_out_of_range")]
    assert of() == all_of_them
    assert of(reasons=["bad_type"]) == all_of_them[:1]
    assert of(file="*/a_1.csv") == all_of_them[:2], "an underscore is one"
    assert of(key=key(orders, "ab1.csv")) == all_of_them[2:]
    assert of(since=datetime.now(UTC) - timedelta(minutes=5)) == all_of_them
    assert of(since=datetime.now(UTC) + timedelta(minutes=5)) == []


def test_quarantine_entries_sent_back_are_read_again_with_the_current_rules(
    spark: SparkSession, place: QuarantineTarget, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD))
    put(key(orders, "good.csv"), csv(line(2)))
    loading(orders, HOUR)
    lenient = with_rules(orders, LENIENT)
    assert loading(lenient, HOUR).files_read == 0, "a rule alone is no new code"
    assert quarantine_work.send_back(place, Selection(orders.asset, ["unreadable"])) == {}
    assert quarantine_work.send_back(place, Selection(orders.asset)) == {orders.asset: [HOUR]}
    [tags] = place.ledger.latest(orders.feed, [HOUR]).values()
    assert quarantined(spark, orders) == [("a.csv", 2, "discount_out_of_range")], "until it is read"
    assert quarantine_work.send_back(place, Selection(orders.asset)) == {orders.asset: [HOUR]}, (
        "a command may be repeated"
    )
    assert place.ledger.latest(orders.feed, [HOUR])[HOUR] != tags, "and asks again"
    loading(lenient, HOUR)
    assert quantities(spark, orders) == {1: 3, 2: 3, 9: 3}
    assert quarantined(spark, orders) == []
    assert loading(lenient, HOUR).files_read == 0


@pytest.mark.proof
def test_only_quarantined_files_are_reread_where_rows_of_expired_files_are_kept(
    spark: SparkSession, put: Put, delete: Delete, loading: Loading, orders: Load
) -> None:
    kept = renamed(orders, follow_for=timedelta(days=1))
    for name, body in (("a.csv", csv(line(1), BAD)), ("b.parquet", b"no parquet"), ("old.csv", csv(line(2)))):
        put(key(kept, name), body)
    loading(kept, HOUR)
    delete(key(kept, "old.csv"))
    assert quarantine_actions.send_back(spark, Selection(), kept) == [HOUR]
    loaded = loading(with_rules(kept, LENIENT), HOUR)
    assert (loaded.read_again, loaded.added_to, loaded.files_read) == ([], [HOUR], 1)
    assert quantities(spark, kept) == {1: 3, 2: 3, 9: 3}
    assert quarantined(spark, kept) == [("b.parquet", 0, "unreadable")]


def test_rehearsal_reports_the_rejections_of_the_next_load(
    spark: SparkSession, landing: S3Bucket, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD, line(2, quantity=500), line(3, quantity=600).replace(",0.1,", ",x,")))
    put(key(orders, "b.csv"), csv(line(4, quantity=500)))
    put(key(orders, "c.parquet"), b"no parquet")
    loading(orders, HOUR)
    before = quarantined(spark, orders)
    strict = with_rules(orders, {**LENIENT, "too_many": "quantity < 100"})
    said = rehearse(spark, landing, strict, [HOUR])
    assert quarantined(spark, orders) == before, "it writes nothing"
    assert said.reasons == {
        ("bad_type", "bad_type"): 1,
        ("discount_out_of_range", None): 1,
        (None, "too_many"): 2,
        ("unreadable", "unreadable"): 1,
    }
    assert (said.rows, said.rejected, said.largest_share) == ({HOUR: 5}, {HOUR: 3}, 0.6)
    told = [(change.file.rpartition("/")[2], change.row_number, change.now, change.then) for change in said.changes]
    assert told == [
        ("a.csv", 2, "discount_out_of_range", None),
        ("a.csv", 3, None, "too_many"),
        ("b.csv", 1, None, "too_many"),
    ]
    loaded = loading(dataclasses.replace(strict, code_version="2"), HOUR)
    assert (loaded.rows_read, loaded.rows_rejected) == (5, 3)
    then = [entry for entry in quarantined(spark, orders) if entry[2] != "no rows"]
    assert then == [
        ("a.csv", 3, "too_many"), ("a.csv", 4, "bad_type"), ("b.csv", 1, "too_many"), ("c.parquet", 0, "unreadable")
    ]  # fmt: skip


def test_patch_uploads_a_corrected_copy_that_overrides_the_quarantined_file(
    spark: SparkSession, place: QuarantineTarget, put: Put, loading: Loading, orders: Load, tmp_path: Path
) -> None:
    put(key(orders, "a.csv"), csv(line(1), BAD, line(2)))
    put(key(orders, "good.csv"), csv(line(3)))
    loading(orders, HOUR)
    corrected = tmp_path / "fixed.csv"
    corrected.write_text(csv(line(2, quantity=7), line(9)))
    with pytest.raises(CannotHandle, match="no entry has the file"):
        quarantine_work.patch(place, key(orders, "good.csv"), corrected, "")
    a_second()
    target = quarantine_work.patch(place, key(orders, "a.csv"), corrected, "the till was broken")
    assert target == key(orders, "a.patch1.csv")
    assert quarantine_work.patch(place, key(orders, "a.csv"), corrected, "again") == target, "a command may be repeated"
    said = event_storage.latest_check_metadata(
        place.instance, dg.AssetCheckKey(dg.AssetKey(orders.asset.split("/")), CHECK)
    )
    assert said is not None
    assert (said["rows"], said["waived"]) == (0, 1), "its check says so at once"
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 3, 2: 7, 3: 3, 9: 3}
    [entry] = quarantine_actions.entries(spark, Selection(orders.asset)).collect()
    assert entry.because == f"patched by {target}: again"


@pytest.mark.proof  # a minute
def test_misplaced_files_can_be_waived_until_another_one_is_found(
    spark: SparkSession, place: QuarantineTarget, put: Put, loading: Loading, orders: Load
) -> None:
    def reconciled() -> bool:
        found = look_beside_all(place.bucket, orders.feed, start=date(2026, 9, 28))
        place.ledger.tell_misplaced(orders.feed, found)
        loading(orders, HOUR, misplaced=found.values())
        return passes()

    def passes() -> bool:
        check = misplaced_check(orders.feed)
        latest = place.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])
        return latest[check].status is AssetCheckExecutionRecordStatus.SUCCEEDED

    put(key(orders, "a.csv"), csv(line(1)))
    for name in ("dt=2020-01-01/hour=00/old.csv", "stray.csv"):
        put(orders.feed.prefix + name, csv(line(2)))
    assert not reconciled()
    assert quarantine_work.waive(place, Selection(orders.asset, ["before_start_date"]), "the archive stays here") == 1
    assert not passes(), "one of two"
    assert quarantine_work.waive(place, Selection(orders.asset), "all of it") == 2
    assert passes()
    assert reconciled(), "nothing new"
    put(orders.feed.prefix + "dt=2020-01-01/hour=01/older.csv", csv(line(3)))
    assert not reconciled(), "a new version is a new matter"
    assert place.ledger.waived(orders.feed).keys() == {orders.feed.prefix + "stray.csv"}
    quarantine_work.waive(place, Selection(orders.asset), "that too")
    assert passes()
    quarantine_work.unwaive(place, Selection(orders.asset, ["outside_layout"]))
    assert not passes()


def test_patch_refuses_a_feed_of_one_object_and_suggests_overwriting_it(
    spark: SparkSession, place: QuarantineTarget, put: Put, loading: Loading, customers: Load, tmp_path: Path
) -> None:
    put(customers.feed.prefix, "customer_id,name\nx,A\n1,B\n")
    loading(customers, None)
    of_one = dataclasses.replace(place, loads={customers.asset: customers})
    (tmp_path / "latest.csv").write_text("customer_id,name\n")
    with pytest.raises(CannotHandle, match="overwrite it with the corrected file"):
        quarantine_work.patch(of_one, customers.feed.prefix, tmp_path / "latest.csv", "")
