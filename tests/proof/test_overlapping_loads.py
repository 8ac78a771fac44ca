"""Two overlapping loads, in every order, with a death at every boundary of either; and defects that turn them red."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import boto3
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_tidemark.lakehouse import write
from dagster_tidemark.lakehouse.loading import quarantine_table, rejected_rows
from dagster_tidemark.lakehouse.loading.load import Load, Loaded, run_load
from dagster_tidemark.lakehouse.loading.load_plan import KnownFile, Where
from dagster_tidemark.lakehouse.loading.load_state import LoadState
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.tidemark.lakehouse.conftest import renamed
from tests.tidemark.lakehouse.test_overlapping_loads import CELLS, Cell, play_cell
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines

Play = Callable[[Cell], None]


@pytest.fixture(scope="module")
def play(spark: SparkSession, spark_server: Settings, cloud: Settings) -> Iterator[Play]:
    landing = S3Bucket(lambda: boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)
    other = new_session(spark_server)

    def put(key: str, body: str | bytes) -> None:
        body = body if isinstance(body, bytes) else body.encode()
        landing._client.put_object(Bucket=landing.name, Key=key, Body=body)

    def loading(load: Load, *hours: Partition, **_: object) -> Loaded:
        return run_load(spark, landing, load, hours, run_id=f"{load.table.name}-{time.monotonic_ns()}")

    def _play(cell: Cell) -> None:
        orders = renamed(Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1"))
        play_cell(spark, other, put, loading, landing, orders, cell)

    yield _play
    other.stop()


def test_overlapping_loads_lose_nothing_in_any_order_of_deaths(play: Play, report: Report) -> None:
    begun, red = time.monotonic(), dict[str, str]()
    for cell in CELLS:
        try:
            play(cell)
        except AssertionError as fault:
            red[str(cell)] = str(fault)[:500]
    report("overlapping_loads", {"cells": len(CELLS), "red": red, "seconds": round(time.monotonic() - begun)})
    assert red == {}


def _validated_from_the_commit_alone() -> Any:
    real = write.replace_since

    def _replace(before: int | None, frame: DataFrame, table: Table, predicate: str, **how: Any) -> write.Commit:
        return real(write.current_snapshot(frame.sparkSession, table), frame, table, predicate, **how)

    return mock.patch.object(write, "replace_since", _replace)


@contextmanager
def _takes_out_what_it_did_not_see() -> Iterator[None]:
    enter, replace = rejected_rows.enter, quarantine_table.replace
    looked: list[LoadState] = []

    def _enter(load: Load, found: LoadState, *more: Any) -> Any:
        looked.append(found)
        return enter(load, found, *more)

    def _replace(
        entries: DataFrame,
        asset: str,
        gone: Mapping[Partition, Collection[KnownFile]],
        *,
        run_id: str,
        table: Table = quarantine_table.QUARANTINE,
    ) -> None:
        seen = {k.key for known in looked[-1].known.values() for k in known}
        there = entries.sparkSession.table(quarantine_table.QUARANTINE.identifier).where(f"asset = '{asset}'").collect()
        unseen: dict[Partition, list[KnownFile]] = {p: [] for p in gone}
        for r in there:
            if r.partition in gone and r.source_file not in seen:
                where = Where.WHOLE_FILE if r.row_number is None else Where.REJECTED_ROWS
                unseen[r.partition].append(KnownFile(r.source_file, r.source_version, r.loaded_by, where))
        replace(entries, asset, {p: [*known, *unseen[p]] for p, known in gone.items()}, run_id=run_id, table=table)

    with (
        mock.patch.object(rejected_rows, "enter", _enter),
        mock.patch.object(rejected_rows, "_appended", lambda *_: False),  # all entries go through `replace`
        mock.patch.object(quarantine_table, "replace", _replace),
    ):
        yield


@pytest.mark.parametrize("defect", [_validated_from_the_commit_alone, _takes_out_what_it_did_not_see])
def test_seeded_defect_fails_an_overlap_cell(play: Play, defect: Callable[[], Any]) -> None:
    with defect(), pytest.raises(AssertionError):
        play(("the second commits first", 0, "after_commit"))
