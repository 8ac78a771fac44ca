"""Histories of a landing bucket, and whether a table that lived through one is what a fresh load makes of its end.

A history is plain data that hypothesis invents: files put, overwritten and deleted, loads of some partitions, deaths
of a load at one of its boundaries, new code. Belongs here: playing one. Does not belong here: how many are played.
"""

import dataclasses
import uuid
from dataclasses import dataclass
from unittest import mock

from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipelines.lakehouse import load as load_module
from pipelines.lakehouse.load import Load, run_load
from pipelines.lakehouse.quarantine import QUARANTINE
from pipelines.sources.s3 import S3Bucket
from tests.lakehouse.conftest import csv, renamed

HOURS = ("2026-10-01-07:00", "2026-10-01-08:00")
FILES = ("a.csv", "b.csv", "c.csv")
DEATHS = ("between_quarantine_and_table", "before_commit", "after_commit")


@dataclass(frozen=True)
class PutFile:
    """A file lands, or is overwritten: (order, quantity) a line; a quantity of None is a line that is turned away."""

    hour: str
    name: str
    lines: tuple[tuple[int, int | None], ...]


@dataclass(frozen=True)
class DeleteFile:
    """A file is deleted, if it is there."""

    hour: str
    name: str


@dataclass(frozen=True)
class RunLoad:
    """Some partitions are loaded; the process may die at a boundary."""

    hours: tuple[str, ...]
    dies_at: str | None = None


@dataclass(frozen=True)
class NewCode:
    """The asset gets another code version."""


Event = PutFile | DeleteFile | RunLoad | NewCode

_hour, _name = st.sampled_from(HOURS), st.sampled_from(FILES)
_line = st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(1, 9)))
_put = st.builds(PutFile, _hour, _name, st.lists(_line, max_size=3).map(tuple))
_load = st.builds(RunLoad, st.sampled_from([HOURS, HOURS[:1], HOURS[1:]]), st.sampled_from([None, None, None, *DEATHS]))
HISTORIES = st.lists(
    st.one_of(_put, _put, _put, st.builds(DeleteFile, _hour, _name), _load, _load, st.builds(NewCode)),
    min_size=4,
    max_size=12,
)


class Died(Exception):
    """What a load meets at the boundary where it is to die."""


def play(spark: SparkSession, landing: S3Bucket, base: Load, history: list[Event]) -> None:
    """Play a history, load once more, and compare with a fresh table."""
    load = renamed(base)
    client = landing._client
    landing._client.put_object(Bucket=landing.name, Key=f"{load.feed.prefix}dt=2026-10-02/hour=00/x.csv", Body=b"")
    version = 1
    for event in history:
        load = dataclasses.replace(load, code_version=str(version))
        if isinstance(event, PutFile):
            client.put_object(Bucket=landing.name, Key=load.feed.prefix_of(event.hour) + event.name, Body=_body(event))
        elif isinstance(event, DeleteFile):
            client.delete_object(Bucket=landing.name, Key=load.feed.prefix_of(event.hour) + event.name)
        elif isinstance(event, NewCode):
            version += 1
        else:
            _run(spark, landing, load, event)
    load = dataclasses.replace(load, code_version=str(version))
    _run(spark, landing, load, RunLoad(HOURS))
    fresh = dataclasses.replace(load, table=dataclasses.replace(load.table, name=f"{load.table.name}_fresh"))
    _run(spark, landing, fresh, RunLoad(HOURS))
    try:
        assert _state(spark, load) == _state(spark, fresh)
        settled = run_load(spark, landing, load, HOURS, run_id=uuid.uuid4().hex)
        assert (settled.read_again, settled.added_to) == ((), ()), "nothing is left to do"
    finally:
        for table in (load.table, fresh.table):
            spark.sql(f"DROP TABLE {table.identifier}")


def _run(spark: SparkSession, landing: S3Bucket, load: Load, event: RunLoad) -> None:
    def reached(boundary: str) -> None:
        if boundary == event.dies_at:
            raise Died

    with mock.patch.object(load_module, "reached", reached):
        try:
            run_load(spark, landing, load, event.hours, run_id=uuid.uuid4().hex)
        except Died:
            return


def _body(event: PutFile) -> bytes:
    at = f"2026-10-01T{event.hour[11:13]}:15:00Z"
    return csv(*(f"{order},1,3,4,5,{quantity or 'many'},1.25,0.1,{at}" for order, quantity in event.lines)).encode()


def _state(spark: SparkSession, load: Load) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    entries = spark.table(QUARANTINE.identifier).where(f"asset = '{load.asset}'")
    told = entries.drop("asset", "quarantined_at").collect()
    return (
        sorted((tuple(row) for row in spark.table(load.table.identifier).collect()), key=repr),
        sorted((tuple(row) for row in told), key=repr),
    )
