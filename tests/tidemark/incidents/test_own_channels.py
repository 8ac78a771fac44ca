"""A channel of one's own may raise, hang or return anything: each message is sent once, and other channels go on."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg
import pytest

from dagster_tidemark.incidents import sender
from dagster_tidemark.incidents.channels.channel import Channel, ChannelUnavailable, Delivery, FakeChannel, distinct
from dagster_tidemark.incidents.incident import Acknowledgement, CauseKind, LateAsset, RootCause, Trouble
from dagster_tidemark.incidents.lifecycle import acknowledged, reviewed
from dagster_tidemark.incidents.routing import ChannelRefused
from dagster_tidemark.incidents.sender import Sender
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.settings import Settings
from tests.tidemark.incidents.test_sender import NOW, Clock


@dataclass(frozen=True, kw_only=True)
class Own(Channel):
    """A channel of a user, whose method does what the test wants."""

    does: Callable[[Delivery], Any]
    got: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return "own"

    def send(self, delivery: Delivery) -> str:
        self.got.append(delivery.message.kind)
        return self.does(delivery)  # type: ignore[no-any-return]


def looks(store: IncidentStore, channels: Sequence[Channel], found: Sequence[Trouble], at: float) -> None:
    """Let the sensor `contracts` find these troubles."""
    routes = [channel.route for channel in channels]
    store.change(lambda book: reviewed(book, found, routes, at, location="here"))


def passes(store: IncidentStore, *channels: Channel, causes: int = 1) -> None:
    """Let incidents open and close. Their messages wait to be sent."""
    troubles = [Trouble(RootCause(CauseKind.FAILING, f"a{n}", "fails", NOW), (LateAsset("x"),)) for n in range(causes)]
    for at, found in ((NOW - 300, troubles), (NOW - 200, []), (NOW - 100, [])):
        looks(store, channels, found, at)


def raises(error: BaseException) -> Callable[[Delivery], str]:
    def _raise(_: Delivery) -> str:
        raise error

    return _raise


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def test_channel_gets_a_message_of_each_kind_in_order(store: IncidentStore, settings: Settings) -> None:
    channel, clock = Own(does=lambda delivery: delivery.thread or "t"), Clock()
    sending = Sender.started(store, [channel], settings, clock)
    cause = RootCause(CauseKind.FAILING, "core/a", "core/a fails", NOW)
    one = [Trouble(cause, (LateAsset("x"),))]
    two = [Trouble(cause, (LateAsset("x"), LateAsset("y", is_late=True)))]
    for found in (one, two, two, [], []):
        looks(store, [channel], found, clock.now)
        sending.send(seconds=60)
        clock.now += 700
        if found is two and len(channel.got) == 2:
            (incident,) = store.read().open
            seen = partial(acknowledged, id_=incident.id, note=Acknowledgement(clock.now, clock.now + 900, "seen"))
            store.change(seen)
    assert channel.got == ["opened", "changed", "acknowledged", "closed"]


@pytest.mark.parametrize("result", [None, 5, b"t", ["t"], object(), "x" * 5_000, ValueError("returned"), {"a": 1}])
def test_odd_result_of_a_channel_is_no_thread_and_repeats_no_message(
    store: IncidentStore, settings: Settings, result: Any
) -> None:
    channel = Own(does=lambda _: result)
    passes(store, channel, causes=2)
    for _ in range(3):
        Sender.started(store, [channel], settings, Clock()).send(seconds=60)
    assert sorted(channel.got) == ["closed", "closed", "opened", "opened"]
    assert store.read().outbox == () and len(store.closed()) == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(3), "RuntimeError: it called sys.exit(3)"),
        (ZeroDivisionError("x"), "ZeroDivisionError: x"),
        (ChannelUnavailable("busy", retry_after="60"), "busy"),  # type: ignore[arg-type]
        (ChannelUnavailable("busy", retry_after=float("nan")), "busy"),
        (RuntimeError("\udcff"), "RuntimeError: "),
    ],
)
def test_error_of_a_channel_holds_up_no_other_channel(
    store: IncidentStore, settings: Settings, error: BaseException, said: str
) -> None:
    broken, sound = Own(does=raises(error)), FakeChannel()
    passes(store, broken, sound)
    Sender.started(store, [broken, sound], settings, Clock()).send(seconds=60)
    assert [each.message.kind for each in sound.sent] == ["opened", "closed"]
    assert store.read().channels["own"].error.startswith(said)


def test_channel_whose_own_methods_raise_holds_up_no_other_channel(store: IncidentStore, settings: Settings) -> None:
    class Odd(Own):
        def problem(self) -> str:
            raise KeyError("TOKEN")

        def redacted(self, said: str) -> str:
            raise KeyError("TOKEN")

    odd, sound = Odd(does=lambda _: ""), FakeChannel()
    passes(store, odd, sound)
    Sender.started(store, [odd, sound], settings, Clock()).send(seconds=60)
    assert [each.message.kind for each in sound.sent] == ["opened", "closed"]
    assert "`redacted` of the channel fails" in store.read().channels["own"].error


def test_channel_with_an_async_send_is_refused() -> None:
    class Later(Own):
        async def send(self, delivery: Delivery) -> str:  # type: ignore[override]
            return ""

    with pytest.raises(ChannelRefused, match="`send` of 'own' is async"):
        distinct([Later(does=lambda _: "")])


def test_hanging_channel_holds_up_no_other_channel(
    store: IncidentStore, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_LONGEST_ATTEMPT", 0.4)
    over, sound = threading.Event(), FakeChannel()
    hanging = Own(does=lambda _: str(over.wait(60)))
    passes(store, hanging, sound)
    sending = Sender.started(store, [hanging, sound], settings, Clock())
    sending.send(seconds=60)
    assert [each.message.kind for each in sound.sent] == ["opened", "closed"] and hanging.got == ["opened"]
    over.set()
