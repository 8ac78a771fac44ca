"""All alerts worked out anew, on tables in memory; `test_alert_histories` does it in the middle of histories."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from dagster_tidemark.streams.alerts import worker as alert_worker
from dagster_tidemark.streams.alerts.identity import Episode
from tests.tidemark.streams.alert_histories import ByOracle, Play
from tests.tidemark.streams.memory_table import MemoryTable
from tests.tidemark.streams.readings_sent import NOON, Message


class Slower(ByOracle):
    """Only what lasts for half an hour."""

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> list[Episode]:
        return [e for e in super().episodes(said) if e.last_at - e.started_at >= timedelta(minutes=30)]


def message(device: str, minute: int, degrees: float = 9.0) -> Message:
    at = NOON + timedelta(minutes=minute)
    said = {"device_id": device, "store_id": 1, "read_at": at, "temperature_c": degrees, "sent_at": at}
    return said | {"message_id": f"{device} {minute} {degrees}", "hour": at.replace(minute=0)}


@pytest.fixture
def play() -> Iterator[Play]:
    """Two devices: one warm for 15 minutes, one for 40, each with its alert."""
    with patch.object(alert_worker, "Appendable", MemoryTable):
        play = Play(ByOracle())
        play.deliver([message("a", m) for m in (0, 8, 15)] + [message("b", m) for m in (0, 10, 20, 30, 40)])
        play.follow(0)
        yield play


def standing(play: Play) -> dict[str, str]:
    """By device the id of its alert."""
    return {row["device_id"]: row["alert_id"] for row in play.alerts() if row["retracted_in"] is None}


def test_reevaluation_with_the_same_rule_changes_nothing(play: Play) -> None:
    before, head = play.alerts(), MemoryTable(play.lake, play.reaction.table).head
    done = play.reevaluate()
    assert (done.raised, done.moved, done.retracted, done.alerts, done.snapshot_id) == (0, 0, 0, 2, head)
    assert play.alerts() == before


def test_reevaluation_with_another_rule_retracts_and_later_raises_alerts(play: Play) -> None:
    first = standing(play)
    done = play.reevaluate(Slower())
    assert (done.raised, done.retracted, standing(play)) == (0, 1, {"b": first["b"]})
    done = play.reevaluate(ByOracle())
    assert done.raised == 1 and standing(play)["a"] not in first.values()
    assert [row["raised_in"] for row in play.alerts() if row["alert_id"] == standing(play)["a"]] == [3]


def test_reevaluation_raises_alerts_no_shift_has_raised(play: Play) -> None:
    play.lake.tables.pop(play.reaction.table.name)
    assert play.reevaluate().raised == 2


def test_reevaluation_includes_messages_a_shift_processes_meanwhile(play: Play) -> None:
    first = standing(play)
    comes = iter([[message("a", m) for m in (23, 31)] + [message("c", m) for m in (0, 30)]])

    def meanwhile() -> None:
        for batch in comes:
            play.deliver([*batch, message("c", 15)])
            play.follow(0)

    done = play.reevaluate(Slower(), meanwhile)
    assert (done.raised, done.retracted) == (0, 0)
    assert standing(play).keys() == {"a", "b", "c"}
    assert standing(play)["a"] == first["a"], "it lasts for half an hour by now"


def test_overtaken_reevaluation_reads_the_table_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, others = MemoryTable.commit, iter([[message("c", m) for m in (0, 15, 30)]])

    def overtaken(table: MemoryTable, change: Any) -> int | None:
        for batch in others:
            play.deliver(batch)
            play.follow(1)
        return commit(table, change)

    def starts() -> None:
        monkeypatch.setattr(MemoryTable, "commit", overtaken)

    done = play.reevaluate(Slower(), starts)
    assert (done.raised, done.retracted) == (0, 1)
    assert standing(play).keys() == {"b", "c"}


def test_shift_continues_after_a_reevaluation_and_sends_its_changes(play: Play) -> None:
    play.writers[0].alerts.publish()
    play.reevaluate(Slower())
    assert len(play.sent) == 2
    play.rule = Slower()
    play.reaction = play.reaction.__class__(play.rule, play.reaction.table, "device_id", "alerts", ("store_id",))
    writer = play._writer()
    writer.alerts.react(play.kept.rows())  # type: ignore[arg-type]
    assert writer.alerts.publish() == 1
    assert [message["kind"] for message in play.sent] == ["raise", "raise", "retract"]
