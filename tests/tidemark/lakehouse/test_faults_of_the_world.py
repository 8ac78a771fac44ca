"""A fault of storage or engine says nothing of a file: nothing is turned away for it, and nothing is lost."""

import dataclasses
import gzip
import io
from collections.abc import Callable
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.readers import batch, small_files
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.listing import BucketUnavailable, ObjectChanged, ObjectUnavailable, ObjectVersion
from dagster_tidemark.sources.s3 import S3Bucket
from tests.sampling import sample
from tests.tidemark.lakehouse.conftest import (
    HOUR,
    Delete,
    Loading,
    Put,
    a_second,
    both_sizes,
    csv,
    key,
    line,
    put_archived,
    quantities,
    quarantined,
)
from tests.tidemark.storage_faults import WORKERS, Fault, faults

OTHER = "2026-10-01-08:00"


class Faulty(S3Bucket):
    """The landing bucket, with a fault for some keys when their bytes are asked for."""

    def __init__(self, bucket: S3Bucket, fault: Callable[[str], Exception | None]) -> None:
        super().__init__(bucket._connect, bucket.name)
        self._fault = fault

    def _get(self, of: ObjectVersion, **options: object) -> bytes:
        if fault := self._fault(of.key):
            raise fault
        return super()._get(of, **options)


def refusing(bucket: S3Bucket, name: str, *, archived: bool = False) -> Faulty:
    """The landing bucket, which does not give files of a name."""
    said = "InvalidObjectState" if archived else "AccessDenied"

    def _fault(of: str) -> Exception | None:
        return ObjectUnavailable(of, said, archived=archived) if of.endswith(name) else None

    return Faulty(bucket, _fault)


def test_bucket_error_during_a_partition_reread_fails_the_load(
    spark: SparkSession, landing: S3Bucket, put: Put, loading: Loading, orders: Load, size: str
) -> None:
    for n in range(3):
        put(key(orders, f"{n}.csv"), csv(line(n + 1)))
    loading(orders, HOUR)
    newer = dataclasses.replace(orders, code_version="2")
    expired = Faulty(landing, lambda of: BucketUnavailable("ExpiredToken") if of.endswith("1.csv") else None)
    with pytest.raises(BucketUnavailable):
        run_load(spark, expired, newer, [HOUR], run_id="expired")
    assert quantities(spark, orders) == {1: 3, 2: 3, 3: 3}
    assert quarantined(spark, orders) == []
    assert loading(newer, HOUR).files_read == 3, "read again once it is back"


@pytest.mark.parametrize("name", sample(["a.csv", "a.csv.gz", "a.parquet"], "a.csv.gz"))
def test_files_unreadable_only_by_spark_workers_are_reported_and_keep_their_rows(
    spark: SparkSession,
    cloud: Settings,
    put: Put,
    loading: Loading,
    orders: Load,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    put(key(orders, name), FORMS[name])
    loading(orders, HOUR)
    before = quantities(spark, orders)
    monkeypatch.setattr(small_files, "SMALL", 0)
    newer = dataclasses.replace(orders, code_version="2")
    expired = [Fault(agent=WORKERS, method=method, below=orders.feed.prefix) for method in ("HEAD", "GET")]
    scans: list[Any] = []
    tasks_of = batch.tasks_of
    monkeypatch.setattr(batch, "tasks_of", lambda parts: scans.append(tasks_of(parts)) or scans[-1])
    with faults(str(cloud.aws_endpoint_url), *expired):
        loaded = loading(newer, HOUR)
    assert len(scans) == 1, "one reading names every file that workers do not get"
    ((file, why),) = loaded.unavailable.items()  # for which the run fails (`load_asset`)
    assert file.key == key(orders, name) and "AWS Error" in why
    assert quantities(spark, orders) == before
    assert quarantined(spark, orders) == []
    assert loading(newer, HOUR).files_read == 1


@pytest.mark.parametrize("version", sample(["1", "2"], "2"))
def test_file_failing_only_on_workers_is_reported_and_other_files_are_committed(
    spark: SparkSession,
    cloud: Settings,
    put: Put,
    loading: Loading,
    orders: Load,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    loading(orders, HOUR)
    monkeypatch.setattr(small_files, "SMALL", 0)
    put(key(orders, "b.csv"), csv(line(2)))
    put(key(orders, "c.csv", OTHER), csv(line(3, at="2026-10-01T08:15:00Z")))
    newer = dataclasses.replace(orders, code_version=version)
    failing = "b.csv" if version == "1" else ""  # by newer code the rows of the older stay, and are not done with
    with faults(str(cloud.aws_endpoint_url), Fault(agent=WORKERS, below=newer.feed.prefix_of(HOUR), name=failing)):
        loaded = loading(newer, HOUR, OTHER)
    assert {f.key for f in loaded.unavailable} == {key(orders, name) for name in ("a.csv", "b.csv") if failing in name}
    assert all("AWS Error" in why for why in loaded.unavailable.values())
    assert (quantities(spark, orders), quarantined(spark, orders)) == ({1: 3, 3: 3}, [])
    healed = loading(newer, HOUR, OTHER)
    assert (healed.unavailable, quantities(spark, orders)) == ({}, {1: 3, 2: 3, 3: 3})
    assert healed.files_read == (1 if failing else 2)


def test_failing_s3_object_is_reported_and_other_files_are_committed(
    spark: SparkSession, cloud: Settings, put: Put, loading: Loading, orders: Load
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    put(key(orders, "b.csv"), csv(line(2)))
    broken = Fault(agent="Boto3", below=orders.feed.prefix, name="a.csv", status=500, code="InternalError")
    with faults(str(cloud.aws_endpoint_url), broken):
        assert [file.key for file in loading(orders, HOUR).unavailable] == [key(orders, "a.csv")]
    assert quantities(spark, orders) == {2: 3}
    assert quarantined(spark, orders) == []
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 3, 2: 3}


@both_sizes
def test_archived_s3_object_is_reported_and_other_files_are_committed(
    spark: SparkSession, landing: S3Bucket, put: Put, loading: Loading, orders: Load, size: str
) -> None:
    put(key(orders, "good.csv"), csv(line(1)))
    put(key(orders, "good.csv", OTHER), csv(line(2, at="2026-10-01T08:15:00Z")))
    archived = key(orders, "archived.csv")
    put_archived(landing, archived, csv(line(3)))
    loaded = loading(orders, HOUR, OTHER)
    assert quantities(spark, orders) == {1: 3, 2: 3}
    assert quarantined(spark, orders) == [], "no verdict"
    ((file, reason),) = loaded.unavailable.items()
    assert (file.key, file.partition) == (archived, HOUR) and "InvalidObjectState" in reason
    assert [f.key for f in loading(orders, HOUR, OTHER).unavailable] == [archived], "named as long as it is missing"
    put(archived, csv(line(3)))
    assert loading(orders, HOUR).unavailable == {}
    assert quantities(spark, orders) == {1: 3, 2: 3, 3: 3}


def test_new_code_version_keeps_rows_of_archived_files_and_reloads_the_rest(
    spark: SparkSession, landing: S3Bucket, put: Put, loading: Loading, orders: Load, size: str
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    put(key(orders, "b.csv"), csv(line(2)))
    loading(orders, HOUR)
    refused = refusing(landing, "a.csv", archived=True)
    newer = dataclasses.replace(orders, code_version="2")
    loaded = run_load(spark, refused, newer, [HOUR], run_id="new code")
    assert quantities(spark, orders) == {1: 3, 2: 3}
    assert (loaded.unavailable, loaded.unavailable_kept) == ({}, [key(orders, "a.csv")])
    put(key(orders, "c.csv"), csv(line(3)))
    assert run_load(spark, refused, newer, [HOUR], run_id="later").unavailable == {}
    assert quantities(spark, orders) == {1: 3, 2: 3, 3: 3}


def test_new_code_version_stays_pending_while_a_file_is_unavailable(
    spark: SparkSession, landing: S3Bucket, put: Put, loading: Loading, orders: Load, size: str
) -> None:
    put(key(orders, "a.csv"), csv(line(1)))
    put(key(orders, "b.csv"), csv(line(2)))
    put(key(orders, "bad.parquet"), b"no parquet")
    loading(orders, HOUR)
    newer = dataclasses.replace(orders, code_version="2")
    put(key(orders, "c.csv"), csv(line(3)))
    for name in ("a.csv", "bad.parquet"):
        loaded = run_load(spark, refusing(landing, name), newer, [HOUR], run_id=f"without {name}")
        assert {f.key for f in loaded.unavailable} == {key(orders, name)}
        assert quantities(spark, orders) == {1: 3, 2: 3, 3: 3}, "nothing is lost, and what is new is there"
        assert quarantined(spark, orders) == [("bad.parquet", 0, "unreadable")], "it keeps its entry"
    assert loading(newer, HOUR).unavailable == {}
    assert {r.loaded_by for r in spark.table(orders.table.identifier).collect()} == {"2"}


def test_deletion_beside_an_unavailable_file_is_committed_and_its_rows_load_later(
    spark: SparkSession, landing: S3Bucket, put: Put, delete: Delete, loading: Loading, orders: Load, size: str
) -> None:
    put(key(orders, "a.csv"), csv(line(1), line(2)))
    a_second()
    put(key(orders, "b.csv"), csv(line(2, quantity=7), line(3)))
    loading(orders, HOUR)
    assert quantities(spark, orders) == {1: 3, 2: 7, 3: 3}
    refused = refusing(landing, "a.csv")
    delete(key(orders, "b.csv"))
    assert run_load(spark, refused, orders, [HOUR], run_id="gone").unavailable
    assert quantities(spark, orders) == {1: 3}
    assert run_load(spark, refused, orders, [HOUR], run_id="and again").unavailable, "it is not done with"
    assert loading(orders, HOUR).unavailable == {}
    assert quantities(spark, orders) == {1: 3, 2: 3}


@both_sizes
def test_constantly_overwritten_file_does_not_delay_other_files(
    spark: SparkSession, landing: S3Bucket, put: Put, loading: Loading, orders: Load, size: str
) -> None:
    put(key(orders, "same.csv"), csv(line(1)))
    restless = key(orders, "restless.csv")
    put(restless, csv(line(2)))
    changing = Faulty(landing, lambda of: ObjectChanged(of, "it was overwritten") if of == restless else None)
    loaded = run_load(spark, changing, orders, [HOUR], run_id="restless")
    assert {f.key: why for f, why in loaded.unavailable.items()} == {restless: "it is overwritten while it is read"}
    assert quantities(spark, orders) == {1: 3}
    assert loading(orders, HOUR).unavailable == {}
    assert quantities(spark, orders) == {1: 3, 2: 3}


def test_files_with_special_characters_in_their_name_are_read_by_workers(
    spark: SparkSession, put: Put, loading: Loading, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    names = ["export[x] 10:30.csv", "a+b%20c?d#e.csv", "Zoë 漢.csv", "back\\slash'\".csv", "dots..csv"]
    for n, name in enumerate(names):
        put(key(orders, name), csv(line(n)))
    put(key(orders, "c.csv", OTHER), csv(line(9, at="2026-10-01T08:15:00Z")))
    loaded = loading(orders, HOUR, OTHER)
    assert (quarantined(spark, orders), loaded.unavailable) == ([], {})
    assert quantities(spark, orders) == dict.fromkeys((*range(len(names)), 9), 3)


def test_file_changed_or_deleted_before_its_read_is_listed_again(
    spark: SparkSession, landing: S3Bucket, put: Put, delete: Delete, orders: Load, size: str
) -> None:
    changed, deleted = key(orders, "changed.csv"), key(orders, "deleted.csv")
    put(changed, csv(line(1)))
    put(deleted, csv(line(2)))
    put(key(orders, "same.csv"), csv(line(3)))
    left = [True]

    def meanwhile(of: str) -> None:
        if left:
            left.clear()
            put(changed, csv(line(1, quantity=7)))
            delete(deleted)

    run_load(spark, Faulty(landing, meanwhile), orders, [HOUR], run_id="meanwhile")
    assert quantities(spark, orders) == {1: 7, 3: 3}


def test_large_file_overwritten_before_workers_read_it_is_read_again(
    spark: SparkSession, landing: S3Bucket, put: Put, orders: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "SMALL", 0)
    header = "line_number,order_id,customer_id,product_id,store_id,quantity,unit_price_usd,discount,ordered_at"
    put(key(orders, "a.csv"), csv(line(5)))
    real, left = batch.tasks_of, [True]

    def then_written(*args: Any) -> Any:
        if left:  # after its header was looked at: its columns stand in another order now
            left.clear()
            put(key(orders, "a.csv"), csv(line(5), header=header))
        return real(*args)

    monkeypatch.setattr(batch, "tasks_of", then_written)
    run_load(spark, landing, orders, [HOUR], run_id="meanwhile")
    assert quantities(spark, orders) == {1: 3}, "order 1, line 5, by the header it has now"


def parquet(text: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pyarrow.csv.read_csv(io.BytesIO(text.encode())), sink)
    return sink.getvalue()


FORMS: dict[str, bytes | str] = {
    "a.csv": csv(line(1)),
    "a.csv.gz": gzip.compress(csv(line(1)).encode()),
    "a.parquet": parquet(csv(line(1))),
}
