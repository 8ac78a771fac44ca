"""States of expected arrivals: by due time, number of files, bytes and earlier windows."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark import ExpectedArrival
from dagster_tidemark.event_log.observations import ObservationLedger
from dagster_tidemark.incidents.arrivals import Arrival, ArrivedFiles, ArrivedVersion, arrival_rows, arrivals
from dagster_tidemark.incidents.contents import ContentReader
from dagster_tidemark.incidents.expected import ExpectationRefused, require_sources
from dagster_tidemark.incidents.incident import ArrivalRow, ArrivalState
from dagster_tidemark.planner.contracts import Window
from dagster_tidemark.planner.event_records import Outcome
from dagster_tidemark.planner.graph import Graph, Input, Node
from dagster_tidemark.planner.history import History
from dagster_tidemark.sensors.arrival_check import changed_arrivals
from dagster_tidemark.sensors.reconcile_schedules import reconcile
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.sources.listing import FakeBucket
from tests.toys.feeds import FEEDS, ORDERS

HOUR = 3600.0
EXPECTED = ExpectedArrival(source="raw/a", within=timedelta(minutes=10), grace=timedelta(minutes=5))


class Feed:
    """A feed whose hour `n`, also of a key (`berlin|n`), ends at `n + 1` hours."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys or ("",)
        raw = Node("raw/a", source=True, window=_window, partitioned=True)
        core = Node("core/a", [Input("raw/a", lambda p: [p], lambda p: [p])], window=_window, partitioned=True)
        self.graph = Graph({"raw/a": raw, "core/a": core})
        self.history = History(self.graph)
        self.files: dict[Partition, ArrivedFiles] = {}
        self.rows: dict[Partition, int] = {}
        self.known: dict[Partition, list[ArrivedVersion]] = {}
        self._id = 0

    def lands(self, partition: str, at: float, files: int = 1, size: int = 100, digest: str = "") -> None:
        self._id += 1
        self.history.observed(("raw/a", partition), id=self._id, version=str(self._id), arrived_at=at, listed_at=at)
        self.files[partition] = ArrivedFiles(files, size, digest or f"digest {self._id}")
        self.known.setdefault(partition, []).append(ArrivedVersion(at, self.files[partition]))

    def loads(self, partition: str, rows: int, at: float) -> None:
        """A run loads what has landed into core/a."""
        target, run = ("core/a", partition), f"run {self._id}"
        self.history.planned([target], id=self._id + 1, run_id=run, at=at)
        as_of = self.history.as_of(run, target)
        self._id += 2
        self.history.materialized(target, id=self._id, run_id=run, as_of=as_of, version=None, at=at)
        self.history.ended(run, at=at, outcome=Outcome.SUCCEEDED)
        self.rows[partition] = rows
        self.known[partition][-1] = replace(self.known[partition][-1], rows=rows)

    def states(self, expected: ExpectedArrival, now: float) -> dict[Partition, ArrivalState]:
        return {each.partition: each.state for each in self.arrivals(expected, now)}

    def arrivals(self, expected: ExpectedArrival, now: float) -> list[Arrival]:
        since = {"raw/a": 0.0}
        read = (self._contents, self._rows, self._versions)
        return arrivals([expected], self.graph, self.history, self._windows, since, now, *read)

    def _versions(
        self, _: str, tables: Collection[str], versions: Mapping[Partition, str]
    ) -> Mapping[Partition, Sequence[ArrivedVersion]]:
        assert set(tables) <= {"core/a"}
        return {p: self.known[p] for p in versions}

    def _rows(self, asset: str, builds: Mapping[Partition, int]) -> Mapping[Partition, int]:
        assert asset == "core/a"
        return {p: self.rows[p] for p in builds}

    def _windows(self, _: str, after: float, until: float) -> list[Partition]:
        hours = [n for n in range(200) if after < (n + 1) * HOUR <= until]
        return [f"{key}|{n:03}" if key else f"{n:03}" for key in self.keys for n in hours]

    def _contents(self, _: str, versions: Mapping[Partition, str]) -> Mapping[Partition, ArrivedFiles]:
        return {p: self.files[p] for p in versions}


def _window(partition: Partition) -> Window:
    hour = int(str(partition).split("|")[-1])
    return Window(hour * HOUR, (hour + 1) * HOUR)


def test_expected_arrival_is_pending_then_missing_then_late() -> None:
    feed = Feed()
    assert feed.states(EXPECTED, HOUR + 899) == {"000": ArrivalState.PENDING}
    assert feed.states(EXPECTED, HOUR + 900) == {"000": ArrivalState.MISSING}
    feed.lands("000", HOUR + 1000)
    assert feed.states(EXPECTED, HOUR + 1001) == {"000": ArrivalState.LATE}
    feed.lands("001", 2 * HOUR + 900)
    feed.lands("001", 3 * HOUR)  # a correction
    assert feed.states(EXPECTED, 3 * HOUR)["001"] is ArrivalState.ON_TIME


def test_empty_file_is_a_missed_arrival_unless_empty_files_are_allowed() -> None:
    feed = Feed()
    feed.lands("000", HOUR, size=0)
    assert feed.states(EXPECTED, HOUR + 60) == {"000": ArrivalState.PENDING}, "the data may still come"
    assert feed.states(EXPECTED, HOUR + 900) == {"000": ArrivalState.EMPTY}
    assert feed.states(replace(EXPECTED, may_be_empty=True), HOUR + 900) == {"000": ArrivalState.ON_TIME}


def test_arrival_with_too_few_files_is_timed_by_its_last_file() -> None:
    feed, expected = Feed(), replace(EXPECTED, files=3)
    feed.lands("000", HOUR, files=2)
    feed.lands("001", 2 * HOUR, files=2)
    (first, second) = feed.arrivals(expected, 2 * HOUR + 900)
    assert first.state is second.state is ArrivalState.FEWER
    assert first.said == "raw/a 000 has 2 of 3 files"
    feed.lands("001", 2 * HOUR + 901, files=3)
    assert feed.states(expected, 2 * HOUR + 902)["001"] is ArrivalState.LATE


def test_window_with_fewer_loaded_rows_than_expected_is_reported_until_the_rest_is_loaded() -> None:
    feed, expected = Feed(), replace(EXPECTED, rows=100)
    feed.lands("000", HOUR)
    assert feed.states(expected, HOUR + 900) == {"000": ArrivalState.ON_TIME}, "it is not loaded yet"
    feed.loads("000", 99, HOUR + 60)
    assert feed.states(expected, HOUR + 61) == {"000": ArrivalState.PENDING}, "the supplier may send the rest"
    (first,) = feed.arrivals(expected, HOUR + 900)
    assert (first.state, first.said) == (ArrivalState.FEWER, "raw/a 000 has 99 of 100 rows")
    feed.lands("000", HOUR + 950)
    assert feed.states(expected, HOUR + 951) == {"000": ArrivalState.LATE}, "the count of an earlier load is old"
    feed.loads("000", 100, HOUR + 960)
    assert feed.states(expected, HOUR + 961) == {"000": ArrivalState.LATE}


@pytest.mark.parametrize("more", [{"files": 2}, {"rows": 100}, {"usual": 0.5}, {"distinct": True}])
def test_correction_of_complete_data_that_was_on_time_does_not_make_it_late(more: dict[str, Any]) -> None:
    feed, expected = Feed(), replace(EXPECTED, **more)
    feed.lands("000", HOUR, files=2)
    feed.loads("000", 100, HOUR + 60)
    feed.lands("000", HOUR + 5000, files=2)
    feed.loads("000", 100, HOUR + 5060)
    (found,) = feed.arrivals(expected, HOUR + 5061)[:1]
    assert (found.state, found.arrived_at) == (ArrivalState.ON_TIME, HOUR)


def test_correction_of_incomplete_data_is_late_and_the_first_complete_version_counts() -> None:
    feed, expected = Feed(), replace(EXPECTED, files=2, rows=100)
    feed.lands("000", HOUR, files=1)
    feed.lands("000", HOUR + 60, files=2)
    feed.loads("000", 99, HOUR + 120)
    feed.lands("000", HOUR + 2000, files=2)
    feed.loads("000", 100, HOUR + 2060)
    feed.lands("000", HOUR + 3000, files=2)
    feed.loads("000", 100, HOUR + 3060)
    (found,) = feed.arrivals(expected, HOUR + 3061)[:1]
    assert (found.state, found.arrived_at) == (ArrivalState.LATE, HOUR + 2000)


def test_repeated_file_content_is_reported_only_for_the_same_key() -> None:
    feed, expected = Feed("berlin", "oslo"), replace(EXPECTED, distinct=True)
    for hour in range(2):
        for key in feed.keys:
            same = key == "oslo" or hour == 0
            feed.lands(f"{key}|{hour:03}", (hour + 1) * HOUR, digest="same" if same else "other")
    assert feed.states(expected, 2 * HOUR + 900) == {
        "berlin|000": ArrivalState.ON_TIME,
        "berlin|001": ArrivalState.ON_TIME,
        "oslo|000": ArrivalState.ON_TIME,
        "oslo|001": ArrivalState.REPEATED,
    }


def test_only_the_chosen_keys_are_expected_and_an_unknown_key_is_refused() -> None:
    feed, expected = Feed("berlin", "oslo"), replace(EXPECTED, keys=["oslo"])
    feed.lands("berlin|000", HOUR)
    assert feed.states(expected, HOUR + 900) == {"oslo|000": ArrivalState.MISSING}
    assert not expected.promise.is_about("berlin|000") and expected.promise.is_about("oslo|000")
    with pytest.raises(
        ExpectationRefused, match=r"keys has rome, which no window has; its windows are such as berlin\|"
    ):
        feed.states(replace(EXPECTED, keys=["oslo", "rome"]), HOUR + 900)
    with pytest.raises(ExpectationRefused, match="expected a list"):
        replace(EXPECTED, keys="oslo")


def test_equal_files_of_several_keys_in_the_first_window_are_not_repeated() -> None:
    feed, expected = Feed("berlin", "oslo"), replace(EXPECTED, distinct=True)
    for key in feed.keys:
        feed.lands(f"{key}|000", HOUR, digest="same")
    assert set(feed.states(expected, HOUR + 900).values()) == {ArrivalState.ON_TIME}


def test_arrival_with_fewer_bytes_than_usual_is_reported_from_the_fourth_partition() -> None:
    feed, expected = Feed(), replace(EXPECTED, usual=0.5)
    for hour, size in enumerate((100, 20, 120, 49, 51)):
        feed.lands(f"{hour:03}", (hour + 1) * HOUR, size=size)
    found = feed.states(expected, 5 * HOUR + 900)
    assert [p for p, state in found.items() if state is ArrivalState.FEWER] == ["003"]


def test_status_lists_missed_newest_and_next_expected_arrivals() -> None:
    feed = Feed("berlin", "oslo")
    for hour in (0, 1, 3):
        feed.lands(f"berlin|{hour:03}", (hour + 1) * HOUR)
    rows = arrival_rows(feed.arrivals(EXPECTED, 5 * HOUR + 1))
    assert [(row.state, row.count, row.partitions) for row in rows] == [
        (ArrivalState.PENDING, 2, ("berlin|004", "oslo|004")),
        (ArrivalState.ON_TIME, 1, ("berlin|003",)),
        (ArrivalState.MISSING, 5, ("oslo|000", "oslo|001", "berlin|002")),
    ]


def test_expected_file_count_is_refused_for_a_source_without_files() -> None:
    with pytest.raises(ExpectationRefused, match="need a feed"):
        require_sources([replace(EXPECTED, files=2)], {"raw/a"}, set())
    require_sources([EXPECTED], {"raw/a"}, set())
    with pytest.raises(ExpectationRefused, match="one file or more"):
        replace(EXPECTED, files=0)


def test_arrival_content_is_read_from_the_landing_sensor_observations() -> None:
    bucket = FakeBucket(now=datetime(2026, 10, 1, 12, tzinfo=UTC))
    first, second = "2026-10-01-00:00", "2026-10-01-01:00"
    for hour, names in ((first, ("a.csv", "b.csv")), (second, ("c.csv", "d.csv"))):
        for name, body in zip(names, (b"12", b"3"), strict=True):
            bucket.put(ORDERS.prefix_of(hour) + name, body)
    with dg.DagsterInstance.ephemeral() as instance:
        reconcile(ObservationLedger(instance), bucket, FEEDS)
        reader = ContentReader(instance)
        found = reader("raw/orders", {first: "1", second: "1"})
        assert found[first] == found[second] and (found[first].files, found[first].bytes) == (2, 3)
        bucket.put(ORDERS.prefix_of(second) + "d.csv", b"4")
        reconcile(ObservationLedger(instance), bucket, FEEDS)
        assert reader("raw/orders", {first: "1", second: "1"}) == found, "the data version is the same"
        assert reader("raw/orders", {second: "2"})[second].digest != found[second].digest


def test_arrival_check_of_a_source_is_reported_once_per_change() -> None:
    rows = [
        ArrivalRow("raw/a", ArrivalState.ON_TIME, ("001",), 1, 60.0, 50.0),
        ArrivalRow("raw/a", ArrivalState.EMPTY, ("000",), 1, 30.0, 20.0, "raw/a 000 has only empty files"),
        ArrivalRow("raw/b", ArrivalState.MISSING, ("001", "002", "003"), 5, 60.0, None),
    ]
    (of_a, of_b), states = changed_arrivals(rows, {})
    assert (of_a.passed, of_a.description) == (False, "empty: raw/a 000 has only empty files")
    assert (of_b.passed, of_b.description) == (False, "missing: 001, 002, 003 and 2 more")
    (now_right,), after = changed_arrivals(rows[:1], json.loads(json.dumps(states)))
    assert now_right.passed and changed_arrivals(rows[:1], json.loads(json.dumps(after)))[0] == []
