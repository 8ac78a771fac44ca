"""Listeners get each materialization at least once, whatever raises or dies."""

import json
import random
import threading
from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest

from dagster_tidemark.asset_events import listen
from dagster_tidemark.asset_events.declared import (
    AssetEvents,
    EventsRefused,
    Listener,
    PublishTo,
    listener,
    require_declared,
)
from dagster_tidemark.asset_events.event import AssetEvent, event_of
from dagster_tidemark.asset_events.listen import Heard, ListenerCalls, ListenerPosition, hear
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.sources.notification_queue import FakeMessageSource
from tests.sampling import sample

ASSETS = ["core/a", "core/b"]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


class Calls:
    """A function that notes its events, and raises on versions in `broken`."""

    def __init__(self) -> None:
        self.got: list[AssetEvent] = []
        self.broken: set[str] = set()

    def __call__(self, event: AssetEvent) -> None:
        if event.version in self.broken:
            raise OSError(f"{event.version} cannot be sent")
        self.got.append(event)

    @property
    def versions(self) -> list[str]:
        return [event.version for event in self.got]


def build(instance: dg.DagsterInstance, version: str, asset: str = "core/a", **more: object) -> None:
    said = {"extras": dg.MetadataValue.json(more)} if more else {}
    tags = {"dagster/data_version": version}
    instance.report_runless_asset_event(dg.AssetMaterialization(asset.split("/"), metadata=said, tags=tags))


def position_names(position: ListenerPosition) -> set[str]:
    return {f"{failed.asset} (event {id})" for id, failed in position.failed.items()}


def heard(of: Listener, instance: dg.DagsterInstance, position: ListenerPosition) -> Heard:
    found = hear(of, ASSETS, instance, position, "here")
    assert ListenerPosition.of(json.loads(position.text())) == position
    return found


def test_listener_begins_with_the_events_after_its_first_pass(instance: dg.DagsterInstance) -> None:
    calls, position = Calls(), ListenerPosition()
    of = listener(assets=["core/*"])(calls)
    build(instance, "1")
    heard(of, instance, position)
    build(instance, "2", rows=3)
    build(instance, "3", "core/b")
    build(instance, "other", "raw/c")
    assert heard(of, instance, position).called == 2
    assert calls.versions == ["2", "3"]
    assert (calls.got[0].asset, calls.got[0].extras, calls.got[0].source) == ("core/a", {"rows": 3}, "here")
    assert heard(of, instance, position).called == 0


def test_event_whose_call_raises_waits_alone_and_is_tried_again(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [event_time.now()]
    monkeypatch.setattr(event_time, "now", lambda: clock[0])
    calls, position = Calls(), ListenerPosition()
    of = listener(assets=["core/*"], give_up_after=timedelta(hours=1))(calls)
    heard(of, instance, position)
    calls.broken = {"2", "4"}
    for version in "1234":
        build(instance, version)
    found = heard(of, instance, position)
    assert calls.versions == ["1", "3"]
    assert list(found.waiting.values()) == ["OSError: 2 cannot be sent", "OSError: 4 cannot be sent"]
    calls.broken = {"4"}
    clock[0] += 10
    heard(of, instance, position)
    assert calls.versions == ["1", "3", "2"]
    given_up: dict[str, str] = {}
    for _ in range(20):
        clock[0] += 600
        given_up |= heard(of, instance, position).given_up
    assert list(given_up.values()) == ["OSError: 4 cannot be sent"]
    assert not position.failed


@pytest.mark.parametrize("seed", sample(range(100), 0, 1))
@pytest.mark.parametrize("in_order", [True, False])
def test_each_event_is_heard_however_passes_end(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, seed: int, in_order: bool
) -> None:
    """A pass may be killed before its cursor is saved, may end for lack of time, or see a page of the log only."""
    dice, clock = random.Random(seed), [event_time.now()]
    monkeypatch.setattr(event_time, "now", lambda: clock[0])
    monkeypatch.setattr(listen, "_PAGE", dice.choice([1, 2, 3, 200]))
    monkeypatch.setattr(listen, "_MOST_WAITING", dice.choice([1, 2, 1_000]))
    monkeypatch.setattr(event_storage, "commits_in_order", lambda _: in_order)
    calls, cursor = Calls(), None
    of = listener(assets=["core/*"])(calls)
    position = ListenerPosition()
    heard(of, instance, position)
    cursor = position.text()
    built = 0
    for _ in range(25):
        for _ in range(dice.randrange(4)):
            build(instance, str(built), dice.choice(ASSETS))
            built += 1
        calls.broken = {str(dice.randrange(built + 1)) for _ in range(2)}
        position = ListenerPosition.of(json.loads(cursor))
        hear(of, ASSETS, instance, position, "here", seconds=dice.choice([40, 40, -1]))
        if dice.random() < 0.7:  # else the process ends before the cursor is saved
            cursor = position.text()
        clock[0] += dice.choice([1, 30, 300])
    calls.broken = set()
    for _ in range(60):
        position = ListenerPosition.of(json.loads(cursor))
        heard(of, instance, position)
        cursor = position.text()
        clock[0] += 700
    assert set(calls.versions) == {str(n) for n in range(built)}
    assert len({event.id for event in calls.got}) == built
    assert len(position.done) <= built and not position.failed


def test_deleted_event_that_waits_is_given_up(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [event_time.now()]
    monkeypatch.setattr(event_time, "now", lambda: clock[0])
    calls, position = Calls(), ListenerPosition()
    of = listener(assets=["core/a"])(calls)
    heard(of, instance, position)
    calls.broken = {"1"}
    build(instance, "1")
    heard(of, instance, position)
    instance.wipe_assets([dg.AssetKey(["core", "a"])])
    clock[0] += 60
    assert ["the event was deleted" in why for why in heard(of, instance, position).given_up.values()] == [True]


def test_slow_call_delays_no_other_event_and_is_not_repeated_while_it_runs(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ends = [event_time.now()], threading.Event()
    monkeypatch.setattr(event_time, "now", lambda: clock[0])
    monkeypatch.setattr(listen, "_LONGEST_CALL", 0.4)
    begun, done = list[str](), list[str]()

    @listener(assets=["core/*"])
    def slow(event: AssetEvent) -> None:
        begun.append(event.version)
        assert event.version != "1" or ends.wait(60)
        done.append(event.version)

    position, calls = ListenerPosition(), ListenerCalls()

    def _pass() -> Heard:
        clock[0] += 600
        return hear(slow, ASSETS, instance, position, "here", calls=calls)

    _pass()
    for version in "12":
        build(instance, version)
    assert list(_pass().waiting.values()) == ["it has not returned within 0 s"]
    assert (set(_pass().waiting), begun, done) == (position_names(position), ["1", "2"], ["2"])
    ends.set()
    assert (_pass().called, begun, done) == (1, ["1", "2"], ["2", "1"])
    assert not position.failed


def test_listener_whose_calls_hang_begins_few_of_them_and_loses_no_event(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_LONGEST_CALL", 0.2)
    ends, begun = threading.Event(), list[str]()

    @listener(assets=["core/*"])
    def hangs(event: AssetEvent) -> None:
        begun.append(event.version)
        assert ends.wait(60)

    position, calls = ListenerPosition(), ListenerCalls()
    hear(hangs, ASSETS, instance, position, "here", calls=calls)
    for version in range(9):
        build(instance, str(version))
    for _ in range(3):
        assert hear(hangs, ASSETS, instance, position, "here", calls=calls).is_blocked
    assert len(begun) == 4
    ends.set()
    monkeypatch.setattr(listen, "_LONGEST_CALL", 10)
    clock = event_time.now() + 600
    monkeypatch.setattr(event_time, "now", lambda: clock)
    assert hear(hangs, ASSETS, instance, position, "here", calls=calls).called == 9
    assert sorted(begun) == list("012345678")


def test_call_that_ends_its_process_is_tried_again_like_an_error(instance: dg.DagsterInstance) -> None:
    @listener(assets=["core/*"])
    def leaves(event: AssetEvent) -> None:
        raise SystemExit(f"{event.version} " + "x" * 10_000)

    position = ListenerPosition()
    heard(leaves, instance, position)
    build(instance, "1")
    (why,) = heard(leaves, instance, position).waiting.values()
    assert why.startswith("SystemExit: 1 xx") and len(position.text()) < 1_000


def test_published_event_can_be_received_under_its_other_name() -> None:
    queue = FakeMessageSource()
    publish = PublishTo("finance-asset-events", {"core/a": "sales/a"}, connect=lambda _: queue)
    publish(AssetEvent("here/7", "core/a", None, "v", 10.0, {"rows": 1}, "here"))
    (message,) = queue.receive(0)
    assert event_of(message.body) == AssetEvent("here/7", "sales/a", None, "v", 10.0, {"rows": 1}, "here")


def test_invalid_declarations_are_refused_by_name() -> None:
    known = {"finance/rates": True, "core/a": False}
    with pytest.raises(EventsRefused, match=r"AssetEvents: queue='a.fifo'"):
        AssetEvents("a.fifo", ["finance/rates"])
    with pytest.raises(EventsRefused, match="expected a list of asset keys, found 'finance/rates'"):
        AssetEvents("q", "finance/rates")
    with pytest.raises(EventsRefused, match="there is no such asset"):
        require_declared(AssetEvents("q", ["finance/x"]), [], known)
    with pytest.raises(EventsRefused, match="this code location builds the asset"):
        require_declared(AssetEvents("q", ["core/a"]), [], known)
    with pytest.raises(EventsRefused, match="expected a Python identifier"):
        listener(assets=["core/a"])(lambda event: None)
    with pytest.raises(EventsRefused, match=r"such as \['core/orders'\], found \[AssetKey"):
        listener(assets=[dg.AssetKey(["core", "a"])])  # type: ignore[list-item]
    with pytest.raises(EventsRefused, match="expected a timedelta"):
        listener(assets=["core/a"], give_up_after=3600)  # type: ignore[arg-type]
    with pytest.raises(
        EventsRefused, match="listener without: expected a function of one argument, the event: too many"
    ):

        @listener(assets=["core/a"])  # type: ignore[arg-type]
        def without() -> None: ...

    with pytest.raises(EventsRefused, match="listener later: expected a plain function"):

        @listener(assets=["core/a"])
        async def later(event: AssetEvent) -> None: ...

    of = listener(assets=["core/a"], name="of_a")(print)
    with pytest.raises(EventsRefused, match="declared twice"):
        require_declared(None, [of, of], known)
    with pytest.raises(EventsRefused, match="no asset matches core/b"):
        require_declared(None, [listener(assets=["core/b"], name="b")(print)], known)
