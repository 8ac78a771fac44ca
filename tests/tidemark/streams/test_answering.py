"""Requests that are answered: each once, to everybody who asks, on the local cloud and real tables."""

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.lakehouse.append import Appendable, Change, open_lake, rows_of
from pipelines.tidemark.lakehouse.loading.quarantine import QUARANTINE
from pipelines.tidemark.settings import Settings
from pipelines.tidemark.streams import answer_table
from pipelines.tidemark.streams import answers as at_work
from pipelines.tidemark.streams.answering import Answer, Answering
from pipelines.tidemark.streams.answers import Answers
from pipelines.tidemark.streams.decode import readable
from pipelines.tidemark.streams.shift import Shift
from pipelines.tidemark.streams.stream import Fields, StreamRefused, Workplace
from tests.live.waiting import eventually
from tests.tidemark.streams import questions, toy
from tests.tidemark.streams.answering_worker import are_ready, working
from tests.tidemark.streams.questions import Desk, Roots, question
from tests.tidemark.streams.test_shift import ImpatientWithRefused, KilledBeforeItAcknowledges

TWO = {"root": 2.0, "known_by": "school"}


def reaction(shift: Shift) -> Answers:
    assert isinstance(shift._reaction, Answers)
    return shift._reaction


def answerer(shift: Shift) -> Any:
    return reaction(shift)._answerer


def postponed(shift: Shift) -> Callable[[], int]:
    """What the shift would send it sends only when this is called."""
    publish = reaction(shift).publish
    reaction(shift).publish = lambda: 0  # type: ignore[method-assign]
    return publish


@pytest.fixture
def desk(cloud: Settings) -> Desk:
    return Desk.made(cloud)


def test_each_request_gets_one_answer_in_the_table_and_on_the_queue(desk: Desk) -> None:
    shift = desk.shift()
    desk.asked.send([question("a", 4), question("b", 9), question("c", 13)])
    before = datetime.now(UTC)
    shift.step()
    assert desk.kept() == {"a": 2.0, "b": 3.0, "c": "13 is unlucky"}
    assert all(before <= row["answered_at"] <= datetime.now(UTC) for row in desk.rows())
    assert desk.sent() == {"a": [TWO], "b": [TWO | {"root": 3.0}], "c": [{"error": "13 is unlucky"}]}
    assert desk.asked.receive(0) == []
    shift.step()
    assert desk.heard.materializations == [(f"ml/{desk.stream.name}", {"answered": 3, "with an error": 1})]


def test_all_requests_of_a_batch_are_told_at_once_and_none_when_a_shift_begins(desk: Desk) -> None:
    shift = desk.shift()
    desk.asked.send([question(str(n), n) for n in range(30)])
    shift.step()
    assert answerer(shift).batches == [0, 30]


def test_a_request_that_comes_again_is_answered_again_as_it_was(desk: Desk) -> None:
    desk.asked.send([question("a", 4)])
    desk.shift(KilledBeforeItAcknowledges).step()
    assert desk.sent() == {"a": [TWO]}
    desk.shift().step()  # the same message, to another process
    assert desk.sent() == {"a": [TWO]}
    desk.asked.send([question("a", 9), question("b", 9), question("b", 16)])  # their sender is confused
    desk.shift().step()
    assert desk.sent() == {"a": [TWO], "b": [TWO | {"root": 3.0}]}
    assert desk.kept() == {"a": 2.0, "b": 3.0}


def test_an_answer_of_long_ago_is_found_among_many_and_files_of_other_times_are_not_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, now = Appendable(open_lake(desk.settings), questions.answers(desk.stream.name)), datetime.now(UTC)
    for days in range(40, 0, -1):
        at = now - timedelta(days=days)
        old = [{"request_id": f"{days}-{n}", "root": float(days), "answered_at": at} for n in range(5)]
        table.commit(Change(rows_of(table.schema, old)))
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


def test_what_others_answer_is_seen_also_after_it_was_pushed_out_of_memory(
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


def test_keys_that_look_alike_are_told_apart() -> None:
    class Alike(str):
        def __hash__(self) -> int:
            return 7

    index = answer_table.KeyIndex()
    index.add([Alike("a"), "c", Alike("b")], np.array([1, 2, 3]))
    assert sorted(index.times([Alike("x"), "c", "d"]).items()) == [("c", [2]), ("x", [1, 3])]


@pytest.mark.parametrize("seed", range(3))
def test_two_shifts_in_turns_answer_each_request_once(desk: Desk, seed: int) -> None:
    dice = random.Random(seed)
    shifts = [desk.shift(), desk.shift()]
    asked: dict[str, int] = {}
    for _ in range(8):
        some = [str(dice.randrange(40)) for _ in range(8)]
        for each in some:
            asked[each] = asked.get(each, 0) + 1
        desk.asked.send([question(each, float(each)) for each in some])
        if dice.random() < 0.3:
            shifts[dice.randrange(2)] = desk.shift()
        dice.choice(shifts).step()
    assert desk.kept() == {each: "13 is unlucky" if each == "13" else math.sqrt(float(each)) for each in asked}
    for each, said in desk.sent().items():
        assert len({json.dumps(one) for one in said}) == 1 and len(said) <= asked[each]


def test_of_two_who_work_out_one_answer_the_second_tells_what_the_first_has_committed(cloud: Settings) -> None:
    others: list[Shift] = []

    class Slow:
        """While the first to be asked thinks, another takes the same request."""

        def __init__(self, place: Workplace) -> None:
            self.name = f"the {len(others) + 1}."

        def __call__(self, requests: Sequence[Fields]) -> list[Answer]:
            if requests and self.name == "the 1.":
                desk.asked.send([question("a", 1)])
                others[-1].step()
            return [{"known_by": self.name} for _ in requests]

    desk = Desk.made(cloud, Slow)
    first = desk.shift()
    others.append(first)
    others.append(desk.shift())
    desk.asked.send([question("a", 1), question("b", 1)])
    first.step()
    rows = {row["request_id"]: row["known_by"] for row in desk.rows()}
    assert rows == {"a": "the 2.", "b": "the 1."} and len(desk.rows()) == 2
    assert {key: [one["known_by"] for one in said] for key, said in desk.sent().items()} == {
        "a": ["the 2.", "the 2."],
        "b": ["the 1."],
    }


def test_two_processes_at_once_lose_and_double_nothing(desk: Desk, tmp_path: Path) -> None:
    ids = [str(n) for n in range(200)]
    again = [str(n) for n in range(0, 200, 10)]  # their senders did not want to wait
    with working(desk, tmp_path) as one, working(desk, tmp_path) as two:
        eventually(lambda: are_ready(tmp_path, 2), seconds=60, every=0.1)
        for start in range(0, 200, 40):
            desk.asked.send([question(each, float(each)) for each in ids[start : start + 40]])
            desk.asked.send([question(each, float(each)) for each in again[start // 10 : start // 10 + 4]])
            time.sleep(0.2)
        assert (one.wait(90), two.wait(90)) == (0, 0), (tmp_path / "log").read_text()
    expected = {each: "13 is unlucky" if each == "13" else math.sqrt(float(each)) for each in ids}
    assert desk.kept() == expected
    sent = desk.sent()
    assert sent.keys() == expected.keys()
    assert sum(map(len, sent.values())) <= 220
    assert all(len({json.dumps(one) for one in said}) == 1 for said in sent.values())
    assert "received=0," not in (tmp_path / "log").read_text(), "both had something to do"


@pytest.mark.parametrize(
    ("boundary", "time"),
    [
        pytest.param("stream_committed", 1, marks=pytest.mark.proof),
        ("stream_outbox", 2),  # the first is when it begins
        pytest.param("stream_published", 2, marks=pytest.mark.proof),
    ],
)
def test_one_that_is_killed_is_made_up_for(desk: Desk, tmp_path: Path, boundary: str, time: int) -> None:
    desk.asked.send([question("a", 4), '{"request_id": "b", "number": "many"}'])
    with working(desk, tmp_path, TIDEMARK_KILL_AT=f"{boundary}:{time}") as victim:
        assert victim.wait(60) < 0
    before = desk.sent()
    assert bool(before) == (boundary == "stream_published")
    with working(desk, tmp_path) as next_one:
        assert next_one.wait(60) == 0
    sent = desk.sent()
    assert sent.keys() == {"a", "b"} and all(len(said) == 1 for said in sent.values())
    assert sent["a"] == [TWO] and (not before or before == sent)
    assert desk.kept().keys() == {"a", "b"}


def test_one_that_slept_says_nothing_but_what_is_stored(desk: Desk) -> None:
    sleeper = desk.shift(KilledBeforeItAcknowledges)
    publish = postponed(sleeper)
    desk.asked.send([question("a", 4)])
    sleeper.step()
    assert desk.kept() == {"a": 2.0} and desk.sent() == {}
    other = desk.shift()
    desk.asked.send([question("a", 25)])
    other.step()
    assert desk.sent() == {"a": [TWO]}
    assert publish() == 1
    assert desk.sent() == {"a": [TWO]} and desk.kept() == {"a": 2.0}


def test_a_request_that_makes_it_raise_harms_only_itself(desk: Desk) -> None:
    shift = desk.shift()
    desk.asked.send([question(str(n), -1 if n == 50 else 4) for n in range(100)])
    shift.step()
    kept = desk.kept()
    assert kept.pop("50").startswith("cannot be answered: ValueError: ")
    assert kept == {str(n): 2.0 for n in range(100) if n != 50}
    sent = desk.sent()
    assert sent["50"][0].keys() == {"error"} and len(sent) == 100
    assert answerer(shift).batches == [0, 100, *[1] * 100]


class Odd(Roots):
    """Gives what fits no table."""

    def root(self, number: float) -> Answer:
        told: dict[float, Answer] = {
            1: {"root": math.nan},
            2: {"root": "two"},
            3: {"rooot": 1.0},
            5: "long " * 1_000,
            6: "half of \ud800",
        }
        return told.get(number, {"root": number})


def test_an_answer_that_fits_no_table_is_told_as_an_error(cloud: Settings) -> None:
    desk = Desk.made(cloud, Odd)
    shift = desk.shift()
    desk.asked.send([question(str(n), n) for n in range(8)])
    shift.step()
    kept = desk.kept()
    assert [kept.pop(each) for each in ("0", "4", "7")] == [0.0, 4.0, 7.0]
    assert kept == {
        "1": "the answer does not fit the table: {'root': nan}",
        "2": "the answer does not fit the table: {'root': 'two'}",
        "3": "the answer has rooot, which are no columns",
        "5": ("long " * 1_000)[:1_000],
        "6": "half of ?",
    }
    assert len(desk.sent()) == 8


class Forgetful(Roots):
    def __call__(self, requests: Sequence[Fields]) -> list[Answer]:
        return super().__call__(requests)[:1]


def test_one_that_gives_fewer_answers_than_there_are_requests_is_asked_one_by_one(cloud: Settings) -> None:
    desk = Desk.made(cloud, Forgetful)
    shift = desk.shift()
    desk.asked.send([question("a", 4), question("b", 9)])
    shift.step()
    assert desk.kept() == {"a": 2.0, "b": 3.0}


class Offline(Roots):
    """The world is in its way, as often as it is told."""

    times = 1
    of = 2

    def root(self, number: float) -> Answer:
        if number == self.of and self.times > 0:
            self.times -= 1
            raise ConnectionError("the school is closed")
        return super().root(number)


def test_while_the_world_is_in_the_way_nobody_is_told_anything(cloud: Settings) -> None:
    desk = Desk.made(cloud, Offline)
    shift = desk.shift()
    answerer(shift).times = 2  # in a batch, and alone
    desk.asked.send([question("a", 2)])
    shift.step()
    assert desk.kept() == {"a": math.sqrt(2)}
    assert desk.sent() == {"a": [TWO | {"root": math.sqrt(2)}]}


def test_after_a_while_it_is_told_and_what_fails_beside_others_at_once(
    cloud: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk.made(cloud, Offline)
    shift = desk.shift()
    answerer(shift).times = 1_000
    desk.asked.send([question("a", 4), question("b", 2)])
    shift.step()
    assert desk.kept() == {"a": 2.0, "b": "cannot be answered: ConnectionError: the school is closed"}
    monkeypatch.setattr(at_work, "_PATIENCE_SECONDS", 0.0)
    desk.asked.send([question("c", 2)])
    shift.step()
    assert desk.kept()["c"] == "cannot be answered: ConnectionError: the school is closed"


def test_a_message_that_is_no_request_is_answered_where_its_id_can_be_read(cloud: Settings) -> None:
    desk = Desk.made(cloud, receives=2)
    shift = desk.shift(ImpatientWithRefused)
    desk.asked.send(
        [
            question("good"),
            '{"request_id": "lacks"}',
            '{"request_id": 17, "number": "many"}',
            '{"request_id": "cut", "numb',
            "junk",
            '{"number": 4}',
            json.dumps({"request_id": "x" * 2_000, "number": "many"}),
        ]
    )
    shift.step()
    told = {key: said[0].get("error", "") for key, said in desk.sent().items()}
    assert told.keys() == {"good", "lacks", "17", "cut"}
    assert told["lacks"] == "number is missing"
    assert told["17"].startswith("number: Input should be a valid number")
    assert told["cut"].startswith("the body is no JSON: ")
    assert desk.kept().keys() == told.keys()
    entries = Appendable(open_lake(cloud), QUARANTINE).rows().to_pylist()
    assert len([entry for entry in entries if entry["asset"] == desk.stream.asset]) == 6
    shift.step()
    shift.step()
    assert desk.asked.dead_letters() == 3 and desk.asked.receive(0) == []


def test_an_id_that_was_answered_keeps_its_answer_whatever_comes_under_it(desk: Desk) -> None:
    shift = desk.shift()
    desk.asked.send([question("a", 4), '{"request_id": "b"}'])
    shift.step()
    first = desk.sent()
    desk.asked.send(['{"request_id": "a"}', question("b", 4)])
    shift.step()
    assert desk.sent() == first == {"a": [TWO], "b": [{"error": "number is missing"}]}
    assert len(desk.kept()) == 2


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"id": "a", "n": NaN}', "a"),
        (b'{"n": 1, "id": 12}', "12"),
        (b'{"id": "a", "n": 3,}', "a"),
        (b'{"id": "a"} {"id": "b"}', "a"),
        (b'{"id": "a", "n": {"id": "b"', "a"),
        (b'{"id": 12', None),  # it may be 123
        (b'{"id": "a', None),
        (b'{"n": {"id": "b"}, x', None),
        (b'{"id": true}', None),
        (b'{"id": "\\ud800"}', None),
        (b'{"id": "a\xff"}', None),
        (b'["id", "a"]', None),
        (b'{"id": "a", "n": ' + b"9" * 5_000 + b"}", None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_whose_a_broken_message_is_can_be_read_for_certain_or_not_at_all(body: bytes, found: str | None) -> None:
    assert readable(body, "id") == found


def test_what_cannot_be_is_refused_when_it_is_declared(cloud: Settings) -> None:
    name = toy.new_name()
    declared = questions.stream(name)
    with pytest.raises(StreamRefused, match=r"lacks asked_at \(timestamp\)"):
        Answering(questions.answers(name), "request_id", "out", Roots, "asked_at")
    of_topic = Workplace(cloud, open_lake(cloud), toy.stream(name, topic="t"))
    assert declared.reaction is not None
    with pytest.raises(Terminal, match="come from a queue"):
        declared.reaction(of_topic)
    with pytest.raises(Terminal, match="request_id is the id of a request"):
        declared.reaction(Workplace(cloud, open_lake(cloud), toy.stream(name)))


def test_old_snapshots_expire_while_nothing_comes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_table, "_EXPIRE_EVERY", 3)
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
