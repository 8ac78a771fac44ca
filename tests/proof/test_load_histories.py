"""Four hundred histories on Spark: every table that lived through one is what a fresh load of the bucket makes."""

import time

import boto3
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.strategies import SearchStrategy
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.lakehouse.session import new_session
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.s3 import S3Bucket
from tests.proof.conftest import Report
from tests.tidemark.lakehouse.histories import (
    CORRECTIONS,
    HISTORIES,
    Event,
    NewCode,
    Overlap,
    RenameFile,
    RunLoad,
    play,
)
from tests.toys import feeds, schemas
from tests.toys.schemas import order_lines


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("kind", "histories", "examples"),
    [("load_histories", HISTORIES, 300), ("correction_histories", CORRECTIONS, 100)],
    ids=["three_hundred", "corrections"],
)
def test_histories_equal_a_fresh_load(
    spark: SparkSession,
    spark_server: Settings,
    cloud: Settings,
    report: Report,
    kind: str,
    histories: SearchStrategy[list[Event]],
    examples: int,
) -> None:
    landing = S3Bucket(lambda: boto3.client("s3", **cloud.aws_options()), cloud.landing_bucket)
    orders = Load(feeds.ORDERS, schemas.ORDERS, order_lines, code_version="1")
    played: list[list[Event]] = []
    other = new_session(spark_server)
    begun = time.monotonic()

    @hypothesis_settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(history=histories)
    def each(history: list[Event]) -> None:
        played.append(history)
        play(spark, other, landing, orders, history)

    failure: BaseException | None = None
    try:
        each()
    except BaseException as error:
        failure = error
        raise
    finally:
        other.stop()
        events = [event for history in played for event in history]
        overlaps = [event for event in events if isinstance(event, Overlap)]
        loads = [event for event in events if isinstance(event, RunLoad)]
        loads += [load for event in overlaps for load in (event.first, event.second)]
        report(
            kind,
            {
                "histories": len(played),
                "equal to a fresh load": len(played) - bool(failure),
                "events": len(events),
                "loads": len(loads),
                "pairs of loads that overlapped": len(overlaps),
                "deaths of a load": sum(event.dies_at is not None for event in loads),
                "loads with a fault of storage": sum(event.fault is not None for event in loads),
                "renames": sum(isinstance(event, RenameFile) for event in events),
                "new code": sum(isinstance(event, NewCode) for event in events),
                "seconds": round(time.monotonic() - begun),
            },
        )
    assert len(played) >= examples
