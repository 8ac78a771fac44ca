"""Requests that are answered by several at once, by some that die, and by one that was thought dead."""

import json
import math
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.answers.declaration import Answer
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Fields, StreamContext
from tests.live.waiting import eventually
from tests.sampling import sample
from tests.tidemark.streams.answering_worker import are_ready, has_stopped, working
from tests.tidemark.streams.questions import TWO, Desk, question, reaction
from tests.tidemark.streams.test_shift import KilledBeforeItAcknowledges


@pytest.fixture
def desk(cloud: Settings) -> Desk:
    return Desk.made(cloud)


@pytest.mark.parametrize("seed", sample(range(3), 0))
def test_two_alternating_shifts_answer_each_request_once(desk: Desk, seed: int) -> None:
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


def test_second_shift_sends_the_answer_the_first_has_committed(cloud: Settings) -> None:
    others: list[Shift] = []

    class Slow:
        """While the first to be asked thinks, another takes the same request."""

        def __init__(self, place: StreamContext) -> None:
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


def test_two_concurrent_processes_lose_and_double_no_answer(desk: Desk, tmp_path: Path) -> None:
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
def test_answers_of_a_killed_shift_are_completed_by_the_next(
    desk: Desk, tmp_path: Path, boundary: str, time: int
) -> None:
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


@pytest.mark.parametrize(
    ("boundary", "time"), [("stream_committed", 1), ("stream_outbox", 2), ("stream_acknowledged", 1)]
)
@pytest.mark.proof
def test_resumed_shift_sends_the_answers_other_shifts_have_sent(
    desk: Desk, tmp_path: Path, boundary: str, time: int
) -> None:
    desk.asked.send([question("a", 4), '{"request_id": "b", "number": "many"}'])
    with working(desk, tmp_path, TIDEMARK_STOP_AT=f"{boundary}:{time}") as sleeper:
        eventually(lambda: has_stopped(sleeper), seconds=60)
        desk.asked.send([question("a", 25), question("c", 9)])
        with working(desk, tmp_path) as other:
            assert other.wait(60) == 0
        before = desk.sent()
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(60) == 0
    after = desk.sent()
    assert desk.kept().keys() == before.keys() == {"a", "b", "c"} and before["a"][-1] == TWO
    assert all(said == before[each][-1] for each in after for said in after[each])


def test_paused_shift_sends_only_stored_answers(desk: Desk) -> None:
    sleeper = desk.shift(KilledBeforeItAcknowledges)
    publish = reaction(sleeper).publish
    reaction(sleeper).publish = lambda: 0  # type: ignore[method-assign]
    desk.asked.send([question("a", 4)])
    sleeper.step()
    assert desk.kept() == {"a": 2.0} and desk.sent() == {}
    other = desk.shift()
    desk.asked.send([question("a", 25)])
    other.step()
    assert desk.sent() == {"a": [TWO]}
    assert publish() == 1
    assert desk.sent() == {"a": [TWO]} and desk.kept() == {"a": 2.0}
