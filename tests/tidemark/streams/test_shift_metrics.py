"""Facts that a shift reports about its stream, and their lines in `tidemark status`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance

from dagster_tidemark.cli.contract_rows import ContractRow, behind
from dagster_tidemark.cli.status_view import explained
from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.engine.doubts import Cause, Doubts, PostOf, Watched
from dagster_tidemark.engine.stream_rows import StreamRow, stream_rows
from dagster_tidemark.event_log.beats import Beat
from dagster_tidemark.sensors.contract_sensor import changed_streams
from dagster_tidemark.sources.notification_queue import QueueUnavailable
from dagster_tidemark.sources.received_messages import UncommittedMessages
from dagster_tidemark.streams.job import InstanceLog
from dagster_tidemark.streams.shift_metrics import Facts, ShiftCounts

NOW = 1_800_000_000.0
WATCHED = Watched("grocer", {}, (PostOf("pings", "raw/pings", ("post 0", "post 1")),))


@dataclass
class Work:
    counts: ShiftCounts = field(default_factory=ShiftCounts)
    looked_at: float = NOW
    hindrance: str = ""
    lag: float = 0.0


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def test_shift_metrics_are_counted_between_heartbeats_and_report_a_missing_queue() -> None:
    clock, waiting = [NOW], [7]

    def depth() -> int:
        if waiting[0] < 0:
            raise QueueUnavailable("the queue pings does not answer: NonExistentQueue")
        return waiting[0]

    facts = Facts(depth, clock=lambda: clock[0])
    assert facts()["hindrance"] == "", "it has just begun"
    clock[0] = NOW + 16
    assert facts()["hindrance"] == "its tables and sources cannot be opened"
    clock[0] = NOW
    work = facts.at_work = Work()
    first = facts()
    assert (first["backlog"], first["committed_at"], first["rows_per_second"]) == (7, 0.0, 0.0)
    clock[0], work.counts, work.lag = NOW + 10, ShiftCounts(commits=2, added=50, refused=1), 0.44
    second = facts()
    assert (second["committed_at"], second["rows_per_second"], second["refused"]) == (NOW + 10, 5.0, 1)
    assert second["lag_seconds"] == 0.4
    clock[0], waiting[0] = NOW + 200, -1
    third = facts()
    assert third["committed_at"] == NOW + 10 and "backlog" not in third
    assert "NonExistentQueue" in third["hindrance"]


@dataclass
class AtATopic(Work):
    in_hand: UncommittedMessages = field(default_factory=UncommittedMessages)
    position: str | None = None


def test_backlog_counts_messages_in_the_queue_topic_and_shift() -> None:
    clock, depth, asked = [NOW], [0], list[str | None]()
    topic = {"5": UncommittedMessages(30, NOW - 40), "35": UncommittedMessages()}

    def behind(position: str | None) -> UncommittedMessages:
        asked.append(position)
        return topic[position or ""]

    facts = Facts(lambda: depth[0], behind, clock=lambda: clock[0])
    facts.at_work = work = AtATopic(position="5", in_hand=UncommittedMessages(2, NOW - 90))
    first = facts()
    assert {name: first[name] for name in ("backlog", "oldest_at", "waiting_since")} == {
        "backlog": 32,
        "oldest_at": NOW - 90,
        "waiting_since": NOW,
    }
    work.position, work.in_hand = "35", UncommittedMessages()
    empty = facts()
    assert empty["backlog"] == 0 and "oldest_at" not in empty and "waiting_since" not in empty
    clock[0], depth[0] = NOW + 10, 3
    assert facts()["oldest_at"] == NOW + 10, "SQS tells no age: it waits at least since it was seen"
    clock[0] = NOW + 30
    assert (facts()["oldest_at"], facts()["waiting_since"]) == (NOW + 10, NOW + 10)
    clock[0], work.counts = NOW + 40, ShiftCounts(commits=1)
    found = facts()
    assert (found["oldest_at"], found["waiting_since"]) == (NOW + 40, NOW + 10), "others were taken meanwhile"
    assert set(asked) == {"5", "35"}


def test_backlog_of_a_topic_with_an_unreadable_partition_is_not_reported_as_empty() -> None:
    said = "kafka:pings/1 has no leader; reading continues when it has one"
    topic = [UncommittedMessages(0, None, frozenset([said, "kafka:pings/2 has no leader"]))]
    facts = Facts(None, lambda _: topic[0], clock=lambda: NOW)
    facts.at_work = work = AtATopic()
    assert "backlog" not in facts() and facts()["hindrance"] == f"{said} (and 1 more)"
    topic[0] = UncommittedMessages(30, NOW - 40, frozenset([said]))
    assert (facts()["backlog"], facts()["hindrance"]) == (30, said), "the readable partitions count"
    work.hindrance = "the catalog does not answer"
    assert facts()["hindrance"] == "the catalog does not answer"
    work.hindrance, topic[0] = "", UncommittedMessages()
    assert (facts()["backlog"], facts()["hindrance"]) == (0, "")


def told(instance: DagsterInstance, *facts: dict[str, Any], doubts: Doubts | None = None) -> StreamRow:
    for number, each in enumerate(facts):
        instance_store.save(instance, f"post {number}", str(Beat("run", NOW, NOW, 0.0, each)))
    (row,) = stream_rows(instance, WATCHED, doubts or Doubts(), NOW)
    return row


def test_unread_stream_is_reported_as_behind_without_a_dependent_contract(
    instance: DagsterInstance,
) -> None:
    unread = told(
        instance, {}, doubts=Doubts(sources={"raw/pings": Cause("shift", NOW, "sqs:pings: NonExistentQueue")})
    )
    sound = told(instance, {"committed_at": NOW - 1, "backlog": 0})
    assert (unread.is_unread, sound.is_unread) == (True, False)
    assert behind([_contract(unread), _contract(sound)]) == ["pings"]


def test_paused_stream_is_neither_behind_nor_unread_and_names_the_pause(instance: DagsterInstance) -> None:
    late = {"began_at": NOW - 600, "backlog": 12, "committed_at": NOW - 61}
    pause = Cause("pause of pings", NOW, "pings is paused by anna", is_pause=True)
    paused = told(instance, late, doubts=Doubts(sources={"raw/pings": pause}))
    assert (paused.is_behind, paused.is_unread, paused.hindrance) == (False, False, "pings is paused by anna")
    assert behind([_contract(paused)]) == []


def _contract(stream: StreamRow) -> ContractRow:
    return ContractRow(stream.asset, "a source", "", 0.0, 0, None, "", None, None, stream=stream)


def test_stream_with_a_backlog_and_no_commit_for_a_minute_is_behind(instance: DagsterInstance) -> None:
    began = {"began_at": NOW - 600, "backlog": 12, "rows_per_second": 1.5, "refused": 2, "lag_seconds": 3.0}
    late = told(instance, began | {"committed_at": NOW - 61})
    assert late.is_behind
    assert late.told(NOW) == (
        "stream pings: 12 waiting, last commit 1 min 1 s ago, 3 s from sending to commit, 1.5 rows/s, 2 rejected, "
        "BEHIND: no commit for a minute"
    )
    row = ContractRow("raw/pings", "", "", 0.0, 0, None, "", None, None, source=True, stream=late)
    assert behind([row]) == ["pings"]
    assert "BEHIND" in str(explained([row, row], NOW).renderables[1])
    both = told(instance, began | {"committed_at": NOW - 61}, began | {"committed_at": NOW - 3})
    assert not both.is_behind, "another of its shifts commits"
    assert (both.backlog, both.rate, both.refused) == (12, 3.0, 4)
    assert not told(instance, began | {"committed_at": NOW - 61, "backlog": 0}, {}).is_behind
    assert not told(instance, began | {"committed_at": 0.0, "began_at": NOW - 5}).is_behind, "it has just begun"


def test_recent_message_does_not_put_a_quiet_stream_behind(instance: DagsterInstance) -> None:
    quiet = {"began_at": NOW - 3000, "committed_at": NOW - 900, "backlog": 1, "oldest_at": NOW - 2}
    assert not told(instance, quiet | {"waiting_since": NOW - 2}).is_behind
    late = told(instance, quiet | {"waiting_since": NOW - 65, "oldest_at": NOW - 66})
    assert late.is_behind and "1 waiting, the oldest for 1 min 6 s" in late.told(NOW)


def test_stream_check_and_status_agree_and_the_check_reports_state_changes(
    instance: DagsterInstance,
) -> None:
    states: dict[str, Any] = {}
    at_work = {"began_at": NOW - 600, "looked_at": NOW, "committed_at": NOW - 5, "rows_per_second": 1.5, "refused": 2}
    late = at_work | {"committed_at": NOW - 70, "backlog": 7, "oldest_at": NOW - 80, "waiting_since": NOW - 75}
    found = list[tuple[bool, str]]()
    for facts in (at_work | {"backlog": 0}, at_work | {"backlog": 1}, late, late | {"backlog": 9}, at_work):
        row = told(instance, facts, {})
        events, states = changed_streams(instance, WATCHED, Doubts(), NOW, states)
        for event in events:
            found.append((event.passed, event.severity.value))
            assert (event.asset_key.to_user_string(), event.check_name) == ("raw/pings", "stream")
            assert event.description == row.told(NOW)
            assert event.metadata.keys() == row.metadata().keys()
    assert found == [(True, "WARN"), (False, "ERROR"), (True, "WARN")]
    missing = told(instance, at_work | {"hindrance": "sqs:pings: NonExistentQueue"}, {})
    (event,), _ = changed_streams(instance, WATCHED, Doubts(), NOW, states)
    assert (event.passed, event.severity.value) == (False, "WARN")
    assert "NonExistentQueue" in (event.description or "") and missing.hindrance in (event.description or "")
    assert missing.metadata()["hindrance"] == "sqs:pings: NonExistentQueue"


def test_latest_observation_of_a_stream_asset_contains_its_metrics(instance: DagsterInstance) -> None:
    row = told(instance, {"began_at": NOW, "backlog": 3, "refused": 1, "rows_per_second": 0.5}, {})
    InstanceLog(instance, row.metadata).observed("raw/pings", None, version="7", arrived_at=NOW)
    (record,) = instance.fetch_observations(dg.AssetKey(["raw", "pings"]), limit=1).records
    observation = record.asset_observation
    assert observation is not None
    assert {name: value.value for name, value in observation.metadata.items()} == row.metadata()
    assert row.metadata()["waiting messages"] == 3


def test_stream_without_a_shift_reports_the_cause(instance: DagsterInstance) -> None:
    cause = Cause("shift", NOW, "no shift of raw/pings has reported yet: 4 shifts, 3 slots")
    row = told(instance, doubts=Doubts(sources={"raw/pings": cause}))
    assert row.told(NOW) == f"stream pings: no commit yet, {cause.said}"
