"""The table of answers: what is found in it, by whom, and what is not read for that."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.answers import table as answer_table
from tests.tidemark.streams import questions
from tests.tidemark.streams.questions import TWO, Desk, question, reaction


@pytest.fixture
def desk(cloud: Settings) -> Desk:
    return Desk.made(cloud)


def test_old_answer_is_found_without_reading_files_of_other_times(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    table, now = Appendable(open_lake(desk.settings), questions.answers(desk.stream.name)), datetime.now(UTC)
    for days in range(40, 0, -1):
        at = now - timedelta(days=days)
        old = [{"request_id": f"{days}-{n}", "root": float(days), "answered_at": at} for n in range(5)]
        table.commit(TableCommit(rows_of(table.schema, old)))
    shift, read = desk.shift(), list[int]()
    rows = Appendable.rows

    def counting(self: Appendable, where: Any = None, *args: Any) -> Any:
        read.append(len(list(self._loaded.scan(where).plan_files())))
        return rows(self, where, *args)

    monkeypatch.setattr(Appendable, "rows", counting)
    found = reaction(shift)._table.find(["33-1", "33-4", "7-0", "unheard of"])
    assert {key: row["root"] for key, row in found.items()} == {"33-1": 33.0, "33-4": 33.0, "7-0": 7.0}
    assert read == [2]
    assert reaction(shift)._table.find([f"new-{n}" for n in range(1_000)]) == {}
    assert read == [2], "what is not there takes no look"
    monkeypatch.undo()
    desk.asked.send([question("33-1"), question("new")])
    shift.step()
    assert desk.sent() == {"33-1": [{"root": 33.0, "known_by": None}], "new": [TWO]}


def test_answer_too_long_for_a_queue_is_sent_as_an_error_that_names_the_table(desk: Desk) -> None:
    table, now = reaction(desk.shift())._table, datetime.now(UTC)
    row = {"request_id": "7", "root": 1.5, "known_by": "ü" * 50_000, "answered_at": now, "error": None}
    said = json.loads(table.message(row))
    assert said.keys() == {"request_id", "error"} and said["request_id"] == "7"
    assert said["error"].endswith(
        f"a queue accepts 250000: it is in the table {questions.answers(desk.stream.name).name}"
    )


def test_answers_of_another_shift_are_found_after_eviction_from_memory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_table, "_RECENT", 8)
    one, two = desk.shift(), desk.shift()
    for n in range(5):
        desk.asked.send([question(f"{n}-{i}", n) for i in range(5)])
        (one if n % 2 else two).step()
    asked = [question(f"{n}-{i}", 100) for n in range(5) for i in range(5)]
    for shift in (one, two):
        desk.sent()
        desk.asked.send(asked)
        shift.step()
        assert {key: said["root"] for key, (said,) in desk.sent().items()} == {
            f"{n}-{i}": math.sqrt(n) for n in range(5) for i in range(5)
        }
    assert len(desk.kept()) == 25


def test_answer_index_distinguishes_keys_with_equal_hashes() -> None:
    class Alike(str):
        def __hash__(self) -> int:
            return 7

    index = answer_table.KeyIndex()
    index.add([Alike("a"), "c", Alike("b")], np.array([1, 2, 3]))
    assert sorted(index.times([Alike("x"), "c", "d"]).items()) == [("c", [2]), ("x", [1, 3])]


def test_answer_table_snapshots_expire_while_no_requests_arrive(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_table, "EXPIRED_AT_ONCE", 1)
    monkeypatch.setattr(answer_table, "_KEEP_SNAPSHOTS", 2)
    shift, other = desk.shift(), desk.shift()
    for n in range(4):
        desk.asked.send([question(f"{n}")])
        shift.step()
    shift.step()
    table = Appendable(open_lake(desk.settings), questions.answers(desk.stream.name))
    assert len(list(table._ancestors())) == 2
    desk.asked.send([question(f"{n}", 9) for n in range(5)])
    other.step()  # has seen none of them, and what it saw last has expired
    assert desk.kept() == {"0": 2.0, "1": 2.0, "2": 2.0, "3": 2.0, "4": 3.0}
