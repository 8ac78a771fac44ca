"""Requests that are answered: each once, to everybody who asks, on the local cloud and real tables."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.answers import worker as at_work
from dagster_tidemark.streams.answers.declaration import Answer, Answering
from dagster_tidemark.streams.decode import readable
from dagster_tidemark.streams.stream_declaration import Fields, StreamRefused
from tests.tidemark.streams import questions, toy
from tests.tidemark.streams.questions import TWO, Desk, Roots, answerer, question
from tests.tidemark.streams.test_shift import ImpatientWithRefused, KilledBeforeItAcknowledges


@pytest.fixture
def desk(cloud: Settings) -> Desk:
    return Desk.made(cloud)


def test_each_request_gets_one_answer_in_table_and_queue(desk: Desk) -> None:
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


def test_answerer_receives_all_requests_of_a_batch_in_one_call(desk: Desk) -> None:
    shift = desk.shift()
    desk.asked.send([question(str(n), n) for n in range(30)])
    shift.step()
    assert answerer(shift).batches == [0, 30]


def test_repeated_request_gets_the_same_answer_again(desk: Desk) -> None:
    desk.asked.send([question("a", 4)])
    desk.shift(KilledBeforeItAcknowledges).step()
    assert desk.sent() == {"a": [TWO]}
    desk.shift().step()  # the same message, to another process
    assert desk.sent() == {"a": [TWO]}
    desk.asked.send([question("a", 9), question("b", 9), question("b", 16)])  # their sender is confused
    desk.shift().step()
    assert desk.sent() == {"a": [TWO], "b": [TWO | {"root": 3.0}]}
    assert desk.kept() == {"a": 2.0, "b": 3.0}


def test_request_the_answerer_fails_on_affects_only_itself(desk: Desk) -> None:
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


def test_answer_that_does_not_fit_the_table_is_sent_as_an_error(cloud: Settings) -> None:
    desk = Desk.made(cloud, Odd)
    shift = desk.shift()
    desk.asked.send([question(str(n), n) for n in range(8)])
    shift.step()
    kept = desk.kept()
    assert [kept.pop(each) for each in ("0", "4", "7")] == [0.0, 4.0, 7.0]
    assert kept == {
        "1": "the answer does not fit the table: {'root': nan}",
        "2": "the answer does not fit the table: {'root': 'two'}",
        "3": "the answer has unknown columns rooot",
        "5": ("long " * 1_000)[:1_000],
        "6": "half of ?",
    }
    assert len(desk.sent()) == 8


class Forgetful(Roots):
    def __call__(self, requests: Sequence[Fields]) -> list[Answer]:
        return super().__call__(requests)[:1]


def test_answerer_with_missing_answers_is_asked_for_each_request(cloud: Settings) -> None:
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


def test_temporary_failure_of_the_answerer_is_retried_without_an_error_answer(cloud: Settings) -> None:
    desk = Desk.made(cloud, Offline)
    shift = desk.shift()
    answerer(shift).times = 2  # in a batch, and alone
    desk.asked.send([question("a", 2)])
    shift.step()
    assert desk.kept() == {"a": math.sqrt(2)}
    assert desk.sent() == {"a": [TWO | {"root": math.sqrt(2)}]}


def test_lasting_failure_of_the_answerer_is_answered_as_an_error(
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


def test_invalid_request_is_answered_if_its_id_is_readable(cloud: Settings) -> None:
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
    assert told["cut"].startswith("the body is not JSON: ")
    assert desk.kept().keys() == told.keys()
    entries = Appendable(open_lake(cloud), QUARANTINE).rows().to_pylist()
    assert len([entry for entry in entries if entry["asset"] == desk.stream.asset]) == 6
    shift.step()
    shift.step()
    assert desk.asked.dead_letters() == 3 and desk.asked.receive(0) == []


def test_request_id_keeps_its_first_answer_for_any_later_message(desk: Desk) -> None:
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
def test_id_of_a_broken_request_is_read_only_if_unambiguous(body: bytes, found: str | None) -> None:
    assert readable(body, "id") == found


def test_invalid_answering_declarations_are_refused() -> None:
    name = toy.new_name()
    declared = questions.stream(name)
    with pytest.raises(StreamRefused, match=r"lacks asked_at \(timestamp\)"):
        Answering(questions.answers(name), "request_id", "out", Roots, "asked_at")
    with pytest.raises(StreamRefused, match="requests need a queue"):
        replace(declared, topic="t")
    with pytest.raises(StreamRefused, match="the request id request_id must be required"):
        replace(declared, required=())
