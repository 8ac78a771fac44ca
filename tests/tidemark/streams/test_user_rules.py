"""Rules of a user that raise: the messages that cause it are named, and the others go on. No server, no Spark."""

import itertools
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import FakeMessageSource, QueueUnavailable
from dagster_tidemark.streams import shift as shift_module
from dagster_tidemark.streams import shift_retries as line_module
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.alerts.identity import Episode
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.answers.declaration import Answerer, Answering
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from dagster_tidemark.streams.user_rules import to_leave_out
from tests.conftest import make_settings
from tests.tidemark.streams import questions, toy

POISON = 66.0
"""The strength of a ping that makes the rules of this file raise."""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(line_module, "_TRIED_AGAIN_AFTER", 0.0)
    settings = make_settings(tmp_path)
    Path(settings.warehouse).mkdir()
    return settings


class Raising(toy.Strong):
    """The toy's rule, which raises on poison."""

    def __init__(self, fails: Callable[[float], object], of: str = "episodes") -> None:
        self._fails, self._of = fails, of

    def closes(self, fields: Mapping[str, Any]) -> bool:
        if self._of == "closes":
            self._fails(fields["strength"])
        return super().closes(fields)

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> list[Episode]:
        for fields in said:
            self._fails(fields["strength"])
        return [
            Episode(each.started_at, each.last_at, {"strength": "much" if self._of == "facts" else None})
            for each in super().episodes(said)
        ]


def on_poison(strength: float) -> None:
    if strength == POISON:
        raise ZeroDivisionError("division by zero")


def on_each(strength: float) -> None:
    raise KeyError("strenght")


def stream_of(rule: toy.Strong, **declared: Any) -> Stream:
    name = toy.new_name()
    reaction = Alerting(rule, toy.alerts(name), "gadget", f"out-{name}")
    return toy.stream(name, reaction=reaction, **declared)


def worker(stream: Stream, settings: Settings, queue: FakeMessageSource) -> Shift:
    shift = toy.shift(stream, settings, [QueueInlet("memory:pings", lambda: queue)])
    if isinstance(shift._reaction, Alerts):
        shift._reaction.outlet = FakeMessageSource()
    shift._catch_up()
    return shift


def entries(settings: Settings) -> list[dict[str, Any]]:
    return Appendable(open_lake(settings), QUARANTINE).rows().to_pylist()


def standing(stream: Stream, settings: Settings) -> list[tuple[str, int]]:
    rows = Appendable(open_lake(settings), toy.alerts(stream.name)).rows().to_pylist()
    return sorted(
        (row["gadget"], round((row["episode_started_at"] - toy.HOUR).total_seconds() / 60))
        for row in rows
        if row["retracted_at"] is None
    )


def pings(gadget: str, *strengths: float, start: int = 0) -> list[str]:
    return [toy.ping(gadget, minute=start + n, strength=strength) for n, strength in enumerate(strengths)]


@pytest.mark.parametrize("of", ["episodes", "closes"])
def test_message_failing_an_alert_rule_is_quarantined_and_others_raise_alerts(lake: Settings, of: str) -> None:
    stream, queue = stream_of(Raising(on_poison, of)), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send([*pings("a", 7, 7, POISON, 7), *pings("b", POISON), *pings("c", 8, 8)])
    shift.step()
    assert standing(stream, lake) == [("a", 0), ("c", 0)]
    assert not queue.in_flight, "every row is in the table, and followed"
    found = entries(lake)
    assert sorted(row["source_version"] for row in found) == ["message-3", "message-5"]
    assert {row["reason"] for row in found} == {"rule_raises"}
    assert all("ZeroDivisionError: division by zero" in row["message"] and "66.0" in row["content"] for row in found)
    queue.send(pings("a", 7, start=5))
    shift.step()
    later = worker(stream, lake, queue)  # knows nothing of what the other one left out
    queue.send([*pings("a", 7, 1, 7, 7, start=6), *pings("b", 7, 7, start=1)])
    later.step()
    assert standing(stream, lake) == [("a", 0), ("a", 8), ("b", 1), ("c", 0)]
    assert len(entries(lake)) == 2, "each once, whoever finds it"
    assert shift.counts.refused == 2


class OfTheFirst(toy.Strong):
    """A rule that cannot be asked about nothing, as people write them."""

    def episodes(self, said: Sequence[Mapping[str, Any]]) -> list[Episode]:
        assert said[0]["at"] <= max(fields["at"] for fields in said)
        return super().episodes(said)


def test_alert_rule_is_not_called_without_messages(lake: Settings) -> None:
    stream, queue = stream_of(OfTheFirst()), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send(pings("a", 7, 7))
    shift.step()
    assert (standing(stream, lake), entries(lake), shift.hindrance) == ([("a", 0)], [], "")


def test_alert_rule_failing_once_loses_no_alert_and_rejects_no_message(lake: Settings) -> None:
    asked: list[float] = []

    def at_first(strength: float) -> None:
        asked.append(strength)
        if len(asked) == 1:
            raise RuntimeError("not initialized")

    stream, queue = stream_of(Raising(at_first)), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send(pings("a", 7, 7))
    shift.step()
    assert (standing(stream, lake), entries(lake), shift.hindrance) == ([("a", 0)], [], "")


def test_alert_rule_failing_intermittently_is_reported_and_rejects_no_message(lake: Settings) -> None:
    asked: list[float] = []

    def on_all_of_them(strength: float) -> None:
        asked.append(strength)
        if len(asked) % 4 == 2:  # both at once, and neither if they are evaluated again
            raise RuntimeError("dice")

    stream, queue = stream_of(Raising(on_all_of_them)), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send(pings("a", 7, 7))
    shift.step()
    assert "raises only sometimes on the same messages: RuntimeError: dice" in shift.hindrance
    assert (entries(lake), len(queue.in_flight)) == ([], 2)


def test_alert_rule_with_invalid_facts_rejects_only_the_message_concerned(lake: Settings) -> None:
    name = toy.new_name()
    made = toy.alerts(name)
    table = type(made)(**{**vars(made), "columns": {**made.columns, "strength": "double"}})
    of_fact = Alerting(Raising(lambda _: None, "facts"), table, "gadget", f"out-{name}", facts=("strength",))
    stream, queue = toy.stream(name, reaction=of_fact), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send([*pings("a", 7, 7), *pings("b", 1)])
    shift.step()
    assert [row["reason"] for row in entries(lake)] == ["rule_raises"]
    assert not queue.in_flight


def test_alert_rule_failing_on_every_message_is_reported_and_rejects_none(
    lake: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    stream, queue = stream_of(Raising(on_each)), FakeMessageSource(max_receives=3)
    shift = worker(stream, lake, queue)
    queue.send(pings("a", *[7.0] * 40))
    with caplog.at_level(logging.ERROR):
        for _ in range(6):
            shift.step()
    assert [message for message in caplog.messages if "raises on every message" in message] == [shift.hindrance]
    assert "rule strong raises on every message: KeyError: 'strenght'" in shift.hindrance
    assert entries(lake) == []
    assert shift.in_hand.count == 40 and 0 < time.time() - (shift.in_hand.oldest_at or 0.0) < 60
    assert len(queue.in_flight) == 40 and set(queue._receives.values()) == {1}, "kept in hand, at no receive's cost"
    assert len(toy.kept(stream, lake)) == 40
    mended = stream_of(toy.Strong())
    mended = type(mended)(
        stream.name,
        stream.table,
        **{
            "queue": "q",
            "required": stream.required,
            "time": "at",
            "reaction": Alerting(toy.Strong(), toy.alerts(stream.name), "gadget", "out"),
        },
    )
    worker(mended, lake, queue)
    assert standing(stream, lake) == [("a", 0)]


def test_shift_that_ends_returns_its_unfinished_messages_to_the_queue_at_once(lake: Settings) -> None:
    stream, queue = stream_of(Raising(on_each)), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send(pings("a", *[7.0] * 12))
    shift.step()
    shift.ends = lambda: "the test is over"
    assert (shift.work(), queue.hidden) == ("the test is over", dict.fromkeys(queue.in_flight, 0))
    assert len(queue.hidden) == 12


def test_shift_with_a_broken_alert_rule_keeps_working_and_reports_it(lake: Settings) -> None:
    stream, queue = stream_of(Raising(on_each)), FakeMessageSource()
    queue.send(pings("a", *[7.0] * 10))
    worker(stream, lake, queue).step()
    later = worker(stream, lake, FakeMessageSource())
    assert "raises on every message" in later.hindrance
    later.step()
    assert "raises on every message" in later.hindrance, "as long as it has not followed"


@pytest.mark.parametrize("poison", [1, 9])
def test_failing_messages_are_quarantined_once_another_message_passes_the_rule(lake: Settings, poison: int) -> None:
    strict = {"strict": lambda fields: on_poison(fields["strength"]) is None}
    stream, queue = toy.stream(toy.new_name(), rules=strict), FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send(pings("a", *[POISON] * poison))
    shift.step()
    shift.step()
    assert bool(shift.hindrance) == (poison > 3)
    assert len(entries(lake)) == (poison if poison <= 3 else 0)
    queue.send(pings("b", 7.0))
    shift.step()
    shift._enter_later(now=True)
    assert shift.hindrance == ""
    assert len(entries(lake)) == poison
    assert [row["gadget"] for row in toy.kept(stream, lake)] == ["b"]
    assert {row["reason"] for row in entries(lake)} == {"strict"}


def test_stream_rule_failing_on_every_message_quarantines_none(lake: Settings) -> None:
    stream = toy.stream(toy.new_name(), rules={"first": lambda fields: fields["strength"] > 0, "second": on_each})
    queue = FakeMessageSource()
    shift = worker(stream, lake, queue)
    queue.send([*pings("a", *[7.0] * 30), *pings("b", -1.0)])
    for _ in range(3):
        shift.step()
    assert "the rule second raises on every message" in shift.hindrance
    assert (entries(lake), toy.kept(stream, lake), len(queue.in_flight)) == ([], [], 31)


@pytest.mark.parametrize("fault", [OSError("no route to host"), MemoryError()])
@pytest.mark.parametrize("of_alerts", [True, False])
def test_infrastructure_error_in_a_rule_rejects_no_message(lake: Settings, fault: Exception, of_alerts: bool) -> None:
    away = [True]

    def fails(strength: float) -> bool:
        if away[0] and strength == POISON:
            raise fault
        return True

    rules = {"strict": lambda fields: fails(fields["strength"])}
    stream = stream_of(Raising(fails)) if of_alerts else toy.stream(toy.new_name(), rules=rules)
    queue = FakeMessageSource()
    shift = worker(stream, lake, queue)
    shift.ends = lambda: "enough"
    queue.send([*pings("a", 7, POISON), *pings("b", 7)])
    with pytest.raises(Exception) as error:
        shift.step()
    assert type(error.value).__name__ in ("RunEnds", type(fault).__name__)
    assert entries(lake) == [] and len(queue.in_flight) == 3
    away[0] = False
    queue.redeliver()
    worker(stream, lake, queue).step()
    assert len(toy.kept(stream, lake)) == 3 and entries(lake) == []


def test_inlet_failing_for_long_is_logged_once_and_reported_as_hindrance(
    lake: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shift_module, "LONGEST_BACKOFF", 0.0)

    def missing() -> FakeMessageSource:
        raise QueueUnavailable("the queue pings does not exist")

    shift = toy.shift(toy.stream(toy.new_name()), lake, [QueueInlet("sqs:pings", missing)])
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            shift.step()
    assert [message for message in caplog.messages if "does not exist" in message] == [
        "sqs:pings: retrying in 0 s: the queue pings does not exist"
    ]
    assert shift.hindrance == "sqs:pings: the queue pings does not exist"


def test_rule_that_passes_on_one_inlet_rejects_failing_messages_of_another(lake: Settings) -> None:
    strict = {"strict": lambda fields: on_poison(fields["strength"]) is None}
    stream, (poisoned, good) = toy.stream(toy.new_name(), rules=strict), (FakeMessageSource(), FakeMessageSource())
    shift = toy.shift(stream, lake, [QueueInlet("a", lambda: poisoned), QueueInlet("b", lambda: good)])
    poisoned.send(pings("a", *[POISON] * 9))
    good.send(pings("b", 7))
    shift.step()
    assert shift.hindrance
    shift.step()
    shift._enter_later(now=True)
    assert (shift.hindrance, len(entries(lake))) == ("", 9)


def test_requests_are_held_while_their_answerer_cannot_be_created(lake: Settings) -> None:
    def broken(place: StreamContext) -> Answerer:
        raise AttributeError("no attribute 'model'")

    declared = questions.stream(toy.new_name())
    assert isinstance(declared.reaction, Answering)
    stream, queue = replace(declared, reaction=replace(declared.reaction, answer=broken)), FakeMessageSource()
    shift = worker(stream, lake, queue)
    assert "its answerer cannot be created: AttributeError: no attribute 'model'" in shift.hindrance
    queue.send(['{"request_id": "r1", "number": 1}'])
    shift.step()
    shift.step()
    assert (len(queue.in_flight), set(queue._receives.values()), entries(lake)) == (1, {1}, [])
    assert "cannot be created" in shift.hindrance


def test_fewest_items_are_left_out_so_that_a_rule_does_not_raise() -> None:
    """Against all subsets: conflicts of one or two items."""
    for seed in range(300):
        rng = random.Random(seed)
        items = [object() for _ in range(rng.randint(1, 7))]
        alone = {id(each) for each in items if rng.random() < 0.2}
        pairs = {frozenset(map(id, two)) for two in itertools.combinations(items, 2) if rng.random() < 0.1}

        def raises(some: Sequence[object], alone: set[int] = alone, pairs: set[frozenset[int]] = pairs) -> bool:
            ids = {id(each) for each in some}
            return bool(ids & alone) or any(pair <= ids for pair in pairs)

        known = [each for each in items if rng.random() < 0.5]
        out = to_leave_out(items, known, raises)
        left = [each for at, each in enumerate(items) if at not in out]
        assert not raises(left), seed
        assert all(raises([each for each in items if each in left or each is items[at]]) for at in out), seed
        if not raises(known):
            assert all(each in left for each in known), seed
