"""Alerts on a stream: raised, moved and retracted as messages come, on the local cloud and real tables."""

import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import QueueOutlet
from dagster_tidemark.sources.sqs import SqsQueue
from dagster_tidemark.streams.alerts.worker import Alerts
from dagster_tidemark.streams.shift import Shift
from dagster_tidemark.streams.stream_declaration import Reaction, Stream
from tests.sampling import sample
from tests.tidemark.streams import toy


@dataclass
class Post:
    """A stream with alerts."""

    settings: Settings
    stream: Stream
    alerts: Table
    queue: SqsQueue
    out: SqsQueue
    heard: toy.Heard = field(default_factory=toy.Heard)

    def shift(self) -> Shift:
        shift = toy.shift(self.stream, self.settings, [QueueInlet("sqs:in", lambda: self.queue)], self.heard)
        shift._catch_up()
        return shift

    def rows(self) -> list[dict[str, Any]]:
        return Appendable(open_lake(self.settings), self.alerts).rows().to_pylist()

    def standing(self) -> list[tuple[str, int]]:
        """Gadget and minute of each alert that stands."""
        return sorted(
            (row["gadget"], round((row["episode_started_at"] - toy.HOUR).total_seconds() / 60))
            for row in self.rows()
            if row["retracted_at"] is None
        )

    def sent(self) -> list[tuple[str, str]]:
        """Kind and id of what went out since this was last asked."""
        found: list[tuple[str, str]] = []
        while messages := self.out.receive(0):
            bodies = [json.loads(message.body) for message in messages]
            found += [(body["kind"], body["alert_id"]) for body in bodies]
            self.out.delete(messages)
        return found


@pytest.fixture
def post(cloud: Settings) -> Post:
    name = toy.new_name()
    stream = toy.stream_with_alerts(name)
    queues = [toy.make_queue(cloud, f"{kind}-{name}") for kind in ("queue", "out")]
    return Post(cloud, stream, toy.alerts(name), *queues)


def test_episode_raises_one_alert_and_later_messages_raise_none(post: Post) -> None:
    shift = post.shift()
    for minute in (1, 2, 3):
        post.queue.send([toy.ping("a", minute=minute, strength=7)])
        shift.step()
    assert post.standing() == [("a", 1)]
    assert [kind for kind, _ in post.sent()] == ["raise"]
    assert [asset for asset, _ in post.heard.materializations] == [post.alerts.name.replace(".", "/")]


def test_alert_too_long_for_a_queue_is_sent_without_facts_and_delays_no_other(post: Post) -> None:
    shift = post.shift()
    long = "ü" * 100_000  # 200 KB as received, 600 KB in the ASCII of an alert
    pings = [toy.ping(gadget, minute=m, strength=7) for gadget in ("a", "LONG", "z") for m in (1, 2)]
    post.queue.send([body.replace("LONG", long) for body in pings])
    shift.step()
    shift.step()
    assert [gadget for gadget, _ in post.standing()] == ["a", "z", long]
    sent = [json.loads(message.body) for message in post.out.receive(0)]
    assert sorted(body.get("gadget", "") for body in sent) == ["", "a", "z"]
    (short,) = (body for body in sent if "gadget" not in body)
    assert short["error"].endswith(f"a queue accepts 250000: its row is in the table {post.alerts.name}")
    assert short["alert_id"] in {row["alert_id"] for row in post.rows() if row["gadget"] == long}
    assert (short["kind"], short["sequence"]) == ("raise", 1) and short["episode_started_at"]


def test_late_and_corrected_messages_move_merge_and_retract_alerts(post: Post) -> None:
    shift = post.shift()
    post.queue.send([toy.ping("a", minute=m, strength=7) for m in (10, 12, 40, 41)])
    shift.step()
    assert post.standing() == [("a", 10), ("a", 40)]
    first, second = sorted(row["alert_id"] for row in post.rows())
    raised = {alert_id: kind for kind, alert_id in post.sent()}
    assert raised == {first: "raise", second: "raise"}
    post.queue.send([toy.ping("a", minute=m, strength=7) for m in (4, 20, 30)])
    shift.step()
    assert post.standing() == [("a", 4)]
    assert [kind for kind, _ in post.sent()] == ["retract"]
    time.sleep(0.01)
    post.queue.send([toy.ping("a", minute=m, strength=1) for m in (4, 10, 12, 20, 30, 40, 41)])
    shift.step()
    assert post.standing() == []
    assert [kind for kind, _ in post.sent()] == ["retract"]
    assert len({row["alert_id"] for row in post.rows()}) == 2


def test_alert_raised_again_after_retraction_has_a_new_id(post: Post) -> None:
    shift = post.shift()
    for strengths in ((7, 7), (7, 1), (7, 7)):
        time.sleep(0.01)
        post.queue.send([toy.ping("a", minute=m, strength=s) for m, s in zip((1, 2), strengths, strict=True)])
        shift.step()
    sent = post.sent()
    assert [kind for kind, _ in sent] == ["raise", "retract", "raise"]
    assert sent[0][1] == sent[1][1] != sent[2][1]
    assert post.standing() == [("a", 1)]


def test_next_shift_reads_raised_alerts_from_the_table(post: Post) -> None:
    post.queue.send([toy.ping("a", minute=1, strength=7)])
    post.shift().step()
    post.queue.send([toy.ping("a", minute=2, strength=7)])
    post.shift().step()
    assert post.standing() == [("a", 1)]
    assert len(post.sent()) == 1


def test_next_shift_raises_and_sends_alerts_a_killed_shift_did_not(post: Post) -> None:
    post.queue.send([toy.ping("a", minute=m, strength=7) for m in (1, 2)])
    killed = post.shift()
    killed._reaction = Reaction()
    killed.step()
    assert post.standing() == []
    killed_later = post.shift()  # raises and sends it as it begins
    assert post.standing() == [("a", 1)]
    assert len(post.sent()) == 1
    post.queue.send([toy.ping("b", minute=m, strength=7) for m in (1, 2)])
    assert killed_later._reaction is not None
    killed_later._reaction.publish = lambda: 0  # type: ignore[method-assign]
    killed_later.step()
    assert post.standing() == [("a", 1), ("b", 1)]
    assert post.sent() == []
    post.shift()
    assert [kind for kind, _ in post.sent()] == ["raise"]


def test_paused_shift_sends_no_alert_another_shift_has_sent(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = post.shift()
    post.queue.send([toy.ping("a", minute=m, strength=7) for m in (1, 2)])
    assert sleeper._reaction is not None
    publish, sleeper._reaction.publish = sleeper._reaction.publish, lambda: 0  # type: ignore[method-assign]
    sleeper.step()
    other = post.shift()
    post.queue.send([toy.ping("a", minute=2, strength=1)])
    other.step()
    assert [kind for kind, _ in post.sent()] == ["raise", "retract"]
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 60)
    assert publish() == 0
    assert post.sent() == []


@pytest.mark.parametrize("seed", sample(range(4), 0))
def test_any_order_of_messages_and_shifts_gives_the_same_alerts(post: Post, seed: int) -> None:
    any_order(post, seed)


def any_order(post: Post, seed: int) -> None:
    """Messages and corrections in random batches, to shifts that begin anew now and then."""
    dice = random.Random(seed)
    truth: dict[tuple[str, int], float] = {}
    shifts = [post.shift(), post.shift()]
    for _ in range(8):
        some = [(dice.choice("ab"), dice.randrange(0, 50, 3), dice.choice((1.0, 7.0, 7.0))) for _ in range(6)]
        some = list({(gadget, minute): (gadget, minute, strength) for gadget, minute, strength in some}.values())
        truth |= {(gadget, minute): strength for gadget, minute, strength in some}
        post.queue.send([toy.ping(gadget, minute=minute, strength=strength) for gadget, minute, strength in some])
        if dice.random() < 0.3:
            shifts[dice.randrange(2)] = post.shift()
        dice.choice(shifts).step()
        time.sleep(0.002)
    assert post.standing() == toy.expected(truth)
    counted: dict[str, list[str]] = {}
    for kind, alert_id in post.sent():
        counted.setdefault(alert_id, []).append(kind)
    gone = {row["alert_id"] for row in post.rows() if row["retracted_at"] is not None}
    assert all(kinds == (["raise", "retract"] if each in gone else ["raise"]) for each, kinds in counted.items())
    assert counted.keys() == {row["alert_id"] for row in post.rows()}


def test_readings_are_committed_and_messages_held_while_the_alert_queue_is_unavailable(post: Post) -> None:
    shift = post.shift()
    alerts = shift._reaction
    assert isinstance(alerts, Alerts)
    alerts.outlet = outlet = QueueOutlet(lambda: SqsQueue(post.out._client, "no-such-queue"))
    ended: list[str] = []
    shift.ends = lambda: ended[0] if ended else None
    post.queue.send([toy.ping("a", minute=m, strength=7) for m in (1, 2)])

    def back_again() -> None:
        time.sleep(4)
        assert post.queue.receive(0) == [], "others were given what is in hand"
        outlet.connect = lambda: post.out

    mended = threading.Thread(target=back_again)
    mended.start()
    shift.step()
    mended.join()
    assert [kind for kind, _ in post.sent()] == ["raise"]
    assert (shift.counts.received, post.queue.receive(0)) == (2, [])
