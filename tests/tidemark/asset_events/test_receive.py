"""Events from a queue become observations: once, in order, and only for declared external assets."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import boto3
import dagster as dg
import pytest

from dagster_tidemark.asset_events.event import AssetEvent
from dagster_tidemark.asset_events.listen import event_extras
from dagster_tidemark.asset_events.receive import ReceivedEvents, take
from dagster_tidemark.dagster_internals import event_storage, event_time
from dagster_tidemark.dagster_internals.asset_graph import graph_of_definitions
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.notification_queue import FakeMessageSource, Message
from dagster_tidemark.sources.sqs import create_queue, open_queue
from dagster_tidemark.tags import DATA_VERSION

RATES, DAYS, REGIONS = "finance/rates", "finance/days", "finance/regions"
NOW = event_time.now()
SPECS = [
    dg.AssetSpec(RATES.split("/")),
    dg.AssetSpec(DAYS.split("/"), partitions_def=dg.DailyPartitionsDefinition("2026-01-01")),
    dg.AssetSpec(REGIONS.split("/"), partitions_def=dg.DynamicPartitionsDefinition(name="regions")),
    dg.AssetSpec(["finance", "other"]),
]
GRAPH = graph_of_definitions(SPECS)
FIRST = AssetEvent("finance/1", RATES, None, "v1", NOW - 100, source="finance")


@dataclass
class Queue(FakeMessageSource):
    """A queue in memory whose refused messages go to `letters`."""

    letters: list[tuple[str, str]] = field(default_factory=list)
    has_dead_letters: bool = True

    def dead_letter(self, message: Message, reason: str) -> bool:
        if self.has_dead_letters:
            self.letters.append((message.body, reason))
            self.delete([message])
        return self.has_dead_letters


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def received(instance: dg.DagsterInstance, queue: Queue, *events: AssetEvent | str) -> ReceivedEvents:
    queue.send([each if isinstance(each, str) else each.body() for each in events])
    return take(queue, instance, GRAPH, [RATES, DAYS, REGIONS])


def versions(instance: dg.DagsterInstance, asset: str) -> dict[str | None, str]:
    found = event_storage.latest_observations(instance, dg.AssetKey.from_user_string(asset))
    return {partition: tags[DATA_VERSION] for partition, tags in found.items()}


def test_event_becomes_an_observation_with_version_and_extras(instance: dg.DagsterInstance) -> None:
    queue = Queue()
    found = received(instance, queue, replace(FIRST, extras={"rows": 3}))
    assert (found.reported, found.refused, queue.in_flight) == (1, [], {})
    assert versions(instance, RATES) == {None: "v1"}
    context = dg.build_sensor_context(instance=instance)
    assert event_extras(context, RATES) == {"rows": 3}
    assert event_extras(context, DAYS) == {}


def test_version_that_is_no_tag_is_reported_by_its_hash(instance: dg.DagsterInstance) -> None:
    odd = [replace(FIRST, id=f"finance/{n}", version=text, at=NOW - 90 + n) for n, text in enumerate(["a b", "é" * 99])]
    for event in odd:
        assert received(instance, Queue(), event, event).reported == 1
        assert len(versions(instance, RATES)[None]) == 32


def test_repeated_and_older_events_change_nothing(instance: dg.DagsterInstance) -> None:
    newer = replace(FIRST, id="finance/2", version="v2", at=NOW - 50)
    found = received(instance, Queue(), FIRST, FIRST, newer, FIRST, newer)
    assert (found.reported, found.repeated) == (2, 3)
    assert versions(instance, RATES) == {None: "v2"}


def test_invalid_events_are_dead_lettered_with_their_reason_and_valid_ones_reported(
    instance: dg.DagsterInstance,
) -> None:
    instance.add_dynamic_partitions("regions", ["eu"])
    queue = Queue()
    bad = {
        "junk": "found no JSON",
        replace(FIRST, asset="finance/unknown").body(): "expected one of finance/days, finance/rates, finance/regions",
        replace(FIRST, asset="finance/other").body(): "correct AssetEvents",
        replace(FIRST, partition="2026-01-01").body(): "finance/rates has no partitions",
        replace(FIRST, asset=DAYS).body(): "found an event without one",
        replace(FIRST, asset=DAYS, partition="2025-12-31").body(): "has no partition 2025-12-31",
        replace(FIRST, asset=DAYS, partition="first").body(): "has no partition first",
        replace(FIRST, asset=REGIONS, partition="us").body(): "has no partition us",
        replace(FIRST, at=NOW + 86_400).body(): "at is in the future",
    }
    good = [replace(FIRST, asset=DAYS, partition="2026-01-02"), replace(FIRST, asset=REGIONS, partition="eu")]
    found = received(instance, queue, *bad, *good)
    assert found.reported == 2
    assert (versions(instance, DAYS), versions(instance, REGIONS)) == ({"2026-01-02": "v1"}, {"eu": "v1"})
    assert [body for body, _ in queue.letters] == list(bad)
    for (body, reason), wanted in zip(queue.letters, bad.values(), strict=True):
        assert wanted in reason, body


def test_refused_message_stays_on_a_queue_without_dead_letter_queue(instance: dg.DagsterInstance) -> None:
    queue = Queue(has_dead_letters=False)
    found = received(instance, queue, "junk", FIRST)
    assert found.reported == 1
    assert ["left for the dead-letter queue" in why for why in found.refused] == [True]
    assert [message.body for message in queue.in_flight.values()] == ["junk"]


class Dies(Queue):
    def delete(self, messages: Sequence[Message]) -> None:
        raise KeyboardInterrupt


def test_kill_between_report_and_delete_reports_each_event_once(instance: dg.DagsterInstance) -> None:
    queue = Dies()
    with pytest.raises(KeyboardInterrupt):
        received(instance, queue, FIRST)
    again = Queue(waiting=list(queue.in_flight.values()))
    assert take(again, instance, GRAPH, [RATES]).repeated == 1
    assert len(instance.fetch_observations(dg.AssetKey.from_user_string(RATES), limit=5).records) == 1


def test_refusal_is_an_attribute_of_the_message_in_the_dead_letter_queue_on_sqs(
    cloud: Settings, instance: dg.DagsterInstance
) -> None:
    name, options = f"asset-events-{uuid.uuid4().hex[:8]}", cloud.aws_options()
    create_queue(name, **options)
    queue = open_queue(name, **options)
    queue.send(["junk", FIRST.body()])
    found = take(queue, instance, GRAPH, [RATES], seconds=0)
    assert (found.reported, len(found.refused), queue.dead_letters(), queue.depth()) == (1, 1, 1, 0)
    client = boto3.client("sqs", **options)
    url = client.get_queue_url(QueueName=f"{name}-dlq")["QueueUrl"]
    (letter,) = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert letter["Body"] == "junk"
    assert "found no JSON" in letter["MessageAttributes"]["reason"]["StringValue"]
