"""A few histories, shaped after ways in which an incremental load can go wrong. `make proof` plays a hundred."""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading.load import Load
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.histories import (
    HISTORIES,
    HOURS,
    DeleteFile,
    Event,
    NewCode,
    Overlap,
    PutFile,
    RunLoad,
    play,
)

SEVEN, EIGHT = HOURS
LOAD, SCAN = RunLoad(HOURS), RunLoad(HOURS, scans=True)


@pytest.mark.parametrize(
    "history",
    [
        # The winner of a row dies with its file before it was committed; the loser must not count as known.
        [
            PutFile(SEVEN, "a.csv", ((1, 4),)),
            LOAD,
            PutFile(SEVEN, "b.csv", ((1, 5), (2, None))),
            RunLoad(HOURS, "before_commit"),
            DeleteFile(SEVEN, "b.csv"),
            LOAD,
            PutFile(SEVEN, "c.csv", ((1, 6),)),
            RunLoad(HOURS, "after_commit"),
        ],
        # Each load reads files once and dies at another boundary. A file is overwritten, one vanishes, code changes.
        [
            PutFile(SEVEN, "a.csv", ((1, 4), (2, None))),
            PutFile(EIGHT, "a.csv", ((1, None),)),
            RunLoad(HOURS, "between_quarantine_and_table", scans=True),
            RunLoad(HOURS, "before_commit", scans=True),
            RunLoad(HOURS, "after_commit", scans=True),
            PutFile(SEVEN, "a.csv", ((1, 5), (3, None))),
            NewCode(),
            Overlap(SCAN, RunLoad(HOURS, "after_commit"), DeleteFile(EIGHT, "a.csv"), turns=(0, 1, 1, 0, 0, 1)),
            RunLoad((EIGHT,), scans=True),
        ],
        # One of four files is overwritten: with all its rows, during another load, and without a row that b.csv has.
        [
            *(PutFile(SEVEN, f"{name}.csv", ((1, n), (2, 9 - n))) for n, name in enumerate("bcda", start=1)),
            LOAD,
            PutFile(SEVEN, "d.csv", ((1, 7), (2, 8), (3, None))),
            RunLoad(HOURS, "between_quarantine_and_table"),
            RunLoad(HOURS, "before_commit"),
            Overlap(LOAD, RunLoad(HOURS, "after_commit"), PutFile(SEVEN, "d.csv", ((2, 7),)), turns=(0, 1, 1, 0, 0, 1)),
            PutFile(SEVEN, "a.csv", ((3, 1),)),
            RunLoad(HOURS, "before_commit"),
        ],
        # Added in one hour, overwritten and re-coded in another.
        pytest.param(
            [
                PutFile(SEVEN, "a.csv", ((1, 4), (1, 5))),
                PutFile(EIGHT, "a.csv", ((1, None),)),
                LOAD,
                PutFile(EIGHT, "a.csv", ()),
                PutFile(SEVEN, "b.csv", ((1, 7), (3, None))),
                RunLoad((SEVEN,)),
                NewCode(),
                RunLoad((EIGHT,), "between_quarantine_and_table"),
            ],
            marks=pytest.mark.proof,
        ),
        # One run replaces an hour, another looks later, adds to it and commits first; the one it overtook dies.
        pytest.param(
            [
                PutFile(SEVEN, "a.csv", ((1, 4), (2, None))),
                PutFile(EIGHT, "a.csv", ((1, 5),)),
                LOAD,
                PutFile(SEVEN, "a.csv", ((1, 6), (2, None))),
                PutFile(EIGHT, "b.csv", ((2, None), (3, 1))),
                Overlap(
                    RunLoad(HOURS, "after_commit"),
                    LOAD,
                    PutFile(SEVEN, "c.csv", ((1, None), (3, 7))),
                    turns=(0, 1, 0, 1, 1, 1),
                ),
            ],
            marks=pytest.mark.proof,
        ),
    ],
)
def test_incremental_loads_of_a_history_equal_a_full_load(
    spark: SparkSession, other_spark: SparkSession, landing: S3Bucket, orders: Load, history: list[Event]
) -> None:
    play(spark, other_spark, landing, orders, history)


@pytest.mark.proof  # three hundred of them: tests/proof/test_load_histories.py
@seed(1)
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=HISTORIES)
def test_incremental_loads_of_a_generated_history_equal_a_full_load(
    spark: SparkSession, other_spark: SparkSession, landing: S3Bucket, orders: Load, history: list[Event]
) -> None:
    play(spark, other_spark, landing, orders, history)
