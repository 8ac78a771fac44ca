"""Asset events from careless or hostile senders: each refused message is named, and stops no other."""

import json
from collections.abc import Iterator
from dataclasses import replace

import dagster as dg
import pytest

from dagster_tidemark.asset_events.event import AssetEvent, InvalidEvent, event_of
from dagster_tidemark.asset_events.receive import take
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.dagster_internals.asset_graph import graph_of_definitions
from tests.tidemark.asset_events.test_receive import Queue

NOW = event_time.now()
FIRST = AssetEvent("core/1", "core/hours", "2026-01-05-03:00", "v1", NOW - 100, source="core")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone="Europe/Berlin")
BOTH = dg.MultiPartitionsDefinition({"city": dg.StaticPartitionsDefinition(["berlin"]), "hour": HOURS})
REGIONS = dg.DynamicPartitionsDefinition(name="regions")
DEFINITIONS = {"core/hours": HOURS, "core/both": BOTH, "core/regions": REGIONS}
GRAPH = graph_of_definitions(
    [dg.AssetSpec(key.split("/"), partitions_def=by) for key, by in DEFINITIONS.items()]
    + [dg.AssetSpec(["core", "one"])]
)
ASSETS = [*DEFINITIONS, "core/one"]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def body(**changes: object) -> str:
    return json.dumps(json.loads(FIRST.body()) | changes)


def nested(levels: int) -> dict[str, object]:
    """Return extras with a number of levels, themselves included."""
    found: dict[str, object] = {"n": 1}
    for _ in range(levels - 1):
        found = {"n": found}
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (body(extras=[]), "extras: expected a JSON object, found list"),
        (body(extras=""), "extras: expected a JSON object, found str"),
        (body(extras=0), "extras: expected a JSON object, found int"),
        (body(extras=False), "extras: expected a JSON object, found bool"),
        (body(extras={"x": float("nan")}), "NaN is no JSON"),
        (body(extras={"x": [float("-inf")]}), "-Infinity is no JSON"),
        (body(at=float("inf")), "Infinity is no JSON"),
        (body(extras=nested(51)), "extras: expected at most 50 levels, found 51"),
        (body(extras={"x": [[[]] * 3] * 40 + [nested(60)]}), "levels"),
        (body(extras={"x": "\ud800"}), "unpaired surrogate"),
        (body(partition="\udfff"), "unpaired surrogate"),
        (body(id="a\u0000b"), r"id: expected a text without the character U\+0000"),
        (body(partition="\u0000"), "partition: expected a text without"),
        (body(at=True), "at: expected a time such as"),
        (body(at=1_790_000_000_000), "at: expected a time such as"),  # milliseconds
        (body(version=3), "version: expected a text, found 3"),
        (body(version=1.5), "version: expected a text, found 1.5"),
        (body(version={}), "version: expected a text"),
        (body(source=["x"]), "source: expected a text"),
        ('{"id": "1"} {"id": "2"}', "found no JSON"),
        ("\ufeff" + body(), "found no JSON"),
    ],
)
def test_message_that_no_store_or_page_could_hold_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        event_of(text)


@pytest.mark.parametrize("extras", [{}, nested(50), {"x": [None, True, -0.0, "ü𐍈\u2028"]}, {"": {}}])
def test_small_extras_arrive_as_they_were_sent(instance: dg.DagsterInstance, extras: dict[str, object]) -> None:
    queue = Queue()
    queue.send(replace(FIRST, asset="core/one", partition=None, extras=extras).body())
    assert take(queue, instance, GRAPH, ASSETS).reported == 1
    (record,) = instance.fetch_observations(dg.AssetKey(["core", "one"]), limit=1).records
    assert record.asset_observation is not None
    said = record.asset_observation.metadata.get("extras")
    assert (said.value if said is not None else {}) == extras


def test_extras_that_are_null_are_none() -> None:
    assert event_of(body(extras=None)).extras == {}


def test_sender_refuses_extras_that_a_receiver_would_refuse() -> None:
    with pytest.raises(InvalidEvent, match="expected at most 50 levels, found 51"):
        replace(FIRST, extras=nested(51)).body()


@pytest.mark.parametrize(
    ("asset", "partition", "is_known"),
    [
        ("core/hours", "2026-01-05-03:00", True),
        ("core/hours", "2026-01-05-03:30", False),  # between two windows: Dagster itself accepts it
        ("core/hours", "2026-03-29-02:00", False),  # an hour that Berlin skips
        ("core/hours", "2026-10-25-02:00", True),
        ("core/hours", "2026-10-25-02:00+0100", True),  # the second of two
        ("core/hours", "2026-1-5-3:00", False),
        ("core/hours", "2026-01-05-03:00\n", False),
        ("core/hours", "\u0662\u0660\u0662\u0666-01-05-03:00", False),  # Arabic digits
        ("core/hours", "9999-12-31-23:00", False),
        ("core/both", "berlin|2026-01-05-03:00", True),
        ("core/both", "berlin|2026-01-05-03:30", False),
        ("core/both", "2026-01-05-03:00|berlin", False),
        ("core/both", "berlin", False),
        ("core/both", "berlin|2026-01-05-03:00|x", False),
        ("core/both", "|", False),
        ("core/regions", "eu", True),
        ("core/regions", "eu ", False),
        ("core/regions", "EU", False),
    ],
)
def test_event_is_accepted_only_for_a_partition_that_can_exist(
    instance: dg.DagsterInstance, asset: str, partition: str, is_known: bool
) -> None:
    instance.add_dynamic_partitions("regions", ["eu"])
    queue = Queue()
    queue.send(replace(FIRST, asset=asset, partition=partition).body())
    found = take(queue, instance, GRAPH, ASSETS)
    assert found.reported == is_known and len(queue.letters) == (not is_known), found
    if not is_known:
        assert "has no partition" in queue.letters[0][1]


def test_refused_messages_stop_no_other_of_their_batch(instance: dg.DagsterInstance) -> None:
    queue = Queue()
    queue.send([body(extras=nested(500)), body(id="\ud800"), body(partition="\u0000"), "[" * 5_000, "\ud83d"])
    queue.send(replace(FIRST, asset="core/one", partition=None).body())
    found = take(queue, instance, GRAPH, ASSETS)
    assert (found.reported, len(found.refused), len(queue.letters)) == (1, 5, 5)
    assert event_storage.latest_observations(instance, dg.AssetKey(["core", "one"])).keys() == {None}
