"""Histories of a landing bucket, and whether a table that lived through one is what a fresh load makes of its end.

A history is plain data that hypothesis invents: files put, overwritten and deleted, loads of some partitions, deaths
of a load at one of its boundaries, two loads that overlap, renames to what is no data, storage that refuses or cuts off
what a load asks for, new code. Belongs here: playing one. Does not belong here: how many are played.
"""

import contextlib
import dataclasses
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from unittest import mock

from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dagster_tidemark.lakehouse.loading import load_plan
from dagster_tidemark.lakehouse.loading.load import Load, run_load
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.readers import small_files
from dagster_tidemark.sources.s3 import S3Bucket
from tests.tidemark.lakehouse.conftest import csv, renamed
from tests.tidemark.lakehouse.overlapping import DEATHS, Run, overlap
from tests.tidemark.storage_faults import WORKERS, Fault, faults

HOURS = ("2026-10-01-07:00", "2026-10-01-08:00")
FILES = ("a.csv", "b.csv", "c.csv")


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
class RenameFile:
    """A file gets an ending that is none of data, or its own back, if it is there."""

    hour: str
    name: str


@dataclass(frozen=True)
class RunLoad:
    """Some partitions are loaded; the process may die at a boundary.

    Args:
        fault: What goes wrong with storage meanwhile; the load may fail for it.
        scans: Every file counts as large: Spark reads it.
    """

    hours: tuple[str, ...]
    dies_at: str | None = None
    fault: Fault | None = None
    scans: bool = False


@dataclass(frozen=True)
class Overlap:
    """Two loads at once that take turns (0 is the first's, see `overlapping`); something lands between their looks."""

    first: RunLoad
    second: RunLoad
    meanwhile: PutFile | DeleteFile | None
    turns: tuple[int, ...]


@dataclass(frozen=True)
class NewCode:
    """The asset gets another code version."""


Event = PutFile | DeleteFile | RenameFile | RunLoad | Overlap | NewCode

_hour, _name = st.sampled_from(HOURS), st.sampled_from(FILES)
_line = st.tuples(st.integers(1, 3), st.one_of(st.none(), st.integers(1, 9)))
_lines = st.lists(_line, max_size=3).map(tuple)
_put = st.builds(PutFile, _hour, _name, _lines)
_load = st.builds(
    RunLoad,
    st.sampled_from([HOURS, HOURS[:1], HOURS[1:]]),
    st.sampled_from([None, None, None, *DEATHS]),
    scans=st.booleans(),
)
_KINDS = [(403, "ExpiredToken"), (403, "InvalidObjectState"), (403, "AccessDenied"), (404, "NoSuchKey"), (200, "")]
_fault = st.builds(
    lambda kind, **options: Fault(status=kind[0], code=kind[1], **options),
    st.sampled_from(_KINDS),
    agent=st.sampled_from([WORKERS, "Boto3", ""]),
    method=st.sampled_from(["GET", "GET", "HEAD"]),
    below=st.sampled_from(["", *FILES]),  # the name of a file, or anything
    lists=st.sampled_from([False, False, False, True]),
    skip=st.integers(0, 3),
    times=st.sampled_from([1, 2, 1000]),
)
_hours_to_load = st.sampled_from([HOURS, HOURS[:1], HOURS[1:]])
_faulty_load = st.builds(RunLoad, _hours_to_load, st.none(), _fault, st.booleans())
_delete = st.builds(DeleteFile, _hour, _name)
# Both have looked before anybody writes; the other six turns are to the boundaries.
_turns = st.permutations([0, 0, 0, 1, 1, 1]).map(lambda turns: (0, 1, *turns))
_overlap = st.builds(Overlap, _load, _load, st.one_of(st.none(), _put, _put, _delete), _turns)
HISTORIES = st.lists(
    st.one_of(
        _put,
        _put,
        _put,
        _delete,
        st.builds(RenameFile, _hour, _name),
        _load,
        _faulty_load,
        _overlap,
        st.builds(NewCode),
    ),
    min_size=4,
    max_size=12,
)
_SIX = (*FILES, "d.csv", "e.csv", "f.csv")
_correction = st.builds(PutFile, st.just(HOURS[0]), st.sampled_from(_SIX), _lines)
_corrected_meanwhile = st.builds(Overlap, _load, _load, _correction, _turns)
CORRECTIONS = st.builds(
    lambda bodies, events: [
        *(PutFile(HOURS[0], name, lines) for name, lines in zip(_SIX, bodies, strict=True)),
        RunLoad(HOURS),
        *events,
    ],
    st.lists(_lines, min_size=len(_SIX), max_size=len(_SIX)),
    st.lists(
        st.one_of(_correction, _correction, _correction, _load, _load, _delete, _faulty_load, _corrected_meanwhile),
        min_size=3,
        max_size=9,
    ),
)
"""Histories in which a few of six files are overwritten, between loads and during them."""


@mock.patch.object(load_plan, "FEW_FILES", 2)  # a corrected file is read alone
def play(spark: SparkSession, other: SparkSession, landing: S3Bucket, base: Load, history: list[Event]) -> None:
    """Play a history, load once more, and compare with a fresh table.

    Args:
        other: The session of a second load that overlaps with one.
    """
    load = renamed(base)
    landing._client.put_object(Bucket=landing.name, Key=f"{load.feed.prefix}dt=2026-10-02/hour=00/x.csv", Body=b"")
    version = 1
    for event in history:
        load = dataclasses.replace(load, code_version=str(version))
        if isinstance(event, PutFile | DeleteFile | RenameFile):
            _change(landing, load, event)
        elif isinstance(event, NewCode):
            version += 1
        elif isinstance(event, Overlap):
            _overlap_in(landing, load, event, (spark, other))
        elif event.fault:
            _load_with_fault(spark, landing, load, event, event.fault)
        else:
            with _sizes(event):
                overlap(landing, (Run(spark, load, event.hours, event.dies_at),), (0,))
    load = dataclasses.replace(load, code_version=str(version))
    try:
        assert_loads_once_more_into_what_is_fresh(spark, landing, load)
    finally:
        spark.sql(f"DROP TABLE {load.table.identifier}")


def assert_loads_once_more_into_what_is_fresh(spark: SparkSession, landing: S3Bucket, load: Load) -> None:
    """One more load, and table and quarantine are what a fresh load of the bucket makes; then nothing is left to do."""
    fresh = dataclasses.replace(load, table=dataclasses.replace(load.table, name=f"{load.table.name}_fresh"))
    try:
        for each in (load, fresh):
            run_load(spark, landing, each, HOURS, run_id=uuid.uuid4().hex)
        assert _state(spark, load) == _state(spark, fresh)
        settled = run_load(spark, landing, load, HOURS, run_id=uuid.uuid4().hex)
        assert (settled.read_again, settled.added_to) == ((), ()), "nothing is left to do"
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {fresh.table.identifier}")


def _load_with_fault(spark: SparkSession, landing: S3Bucket, load: Load, event: RunLoad, fault: Fault) -> None:
    """Such a load fails or not; what it does not do is to judge files for it, which the fresh load would show."""
    endpoint = landing._client.meta.endpoint_url
    below = f"{load.feed.prefix}dt=2026-10-01/hour="
    of = dataclasses.replace(fault, below=below, name=fault.below)
    with faults(endpoint, of), _sizes(event), contextlib.suppress(Exception):
        run_load(spark, landing, load, event.hours, run_id=uuid.uuid4().hex)


def _sizes(event: RunLoad) -> AbstractContextManager[object]:
    return mock.patch.object(small_files, "SMALL", 0 if event.scans else small_files.SMALL)


def _change(landing: S3Bucket, load: Load, event: PutFile | DeleteFile | RenameFile) -> None:
    client, bucket, key = landing._client, landing.name, load.feed.prefix_of(event.hour) + event.name
    if isinstance(event, PutFile):
        client.put_object(Bucket=bucket, Key=key, Body=_body(event))
    elif isinstance(event, DeleteFile):
        client.delete_object(Bucket=bucket, Key=key)
    else:
        there = {landed.key for landed in landing.list(key).objects}
        names = [key, f"{key}.zst"] if key in there else [f"{key}.zst", key]
        if names[0] in there:
            client.copy_object(Bucket=bucket, Key=names[1], CopySource={"Bucket": bucket, "Key": names[0]})
            client.delete_object(Bucket=bucket, Key=names[0])


def _overlap_in(landing: S3Bucket, load: Load, event: Overlap, sessions: tuple[SparkSession, SparkSession]) -> None:
    def lands() -> None:
        if event.meanwhile:
            _change(landing, load, event.meanwhile)

    first = Run(sessions[0], load, event.first.hours, event.first.dies_at)
    second = Run(sessions[1], load, event.second.hours, event.second.dies_at, before_looking=lands)
    with _sizes(event.first):
        overlap(landing, (first, second), event.turns)


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
