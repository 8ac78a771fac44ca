"""Streams side by side: resources that two must not share, and queues that the laptop's cloud creates."""

from dataclasses import replace
from typing import Any

import boto3
import dagster as dg
import pytest
from botocore.exceptions import ClientError

from dagster_tidemark.asset_events.declared import AssetEvents
from dagster_tidemark.definitions import build_definitions
from dagster_tidemark.settings import Settings, SettingsError, load_settings
from dagster_tidemark.sources.sqs import MAX_RECEIVES
from dagster_tidemark.streams.alerts.declaration import Alerting
from dagster_tidemark.streams.stream_declaration import Stream, StreamRefused
from dagster_tidemark.streams.transport import (
    create_missing,
    declared_queue,
    queues_of,
    require_distinct,
    topics_of,
)
from pipelines.streams import STREAMS
from tests.tidemark.streams import questions, toy


def location(*streams: Stream, **declared: Any) -> dg.Definitions:
    keys = sorted({stream.asset for stream in streams})
    hours = dg.HourlyPartitionsDefinition(start_date="2026-09-01-00:00", end_offset=1)
    specs = [dg.AssetSpec(dg.AssetKey.from_user_string(key), partitions_def=hours) for key in keys]
    specs.append(dg.AssetSpec(dg.AssetKey(["finance", "rates"])))
    return build_definitions(load_settings(), specs, (), [stream.table for stream in streams], streams, **declared)


def test_streams_with_different_tables_may_share_a_topic() -> None:
    streams = [toy.stream(name, queue=f"queue-{name}", topic="shared") for name in ("one", "two")]
    location(*streams).get_repository_def().load_all_definitions()


ONE = toy.stream("one")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (toy.stream("one", queue="other"), "stream one and stream one have the same name, one: "),
        (
            replace(toy.stream("two"), table=ONE.table),
            "stream one and stream two have the same table, raw.one: declare a table for each stream",
        ),
        (
            toy.stream("two", queue="queue-one"),
            "stream one and stream two have the same queue, queue-one: each would receive only a part of the messages",
        ),
    ],
)
def test_streams_that_share_a_name_table_or_queue_are_refused(other: Stream, said: str) -> None:
    with pytest.raises(StreamRefused, match=said):
        location(ONE, other)


def test_streams_that_share_an_alert_table_are_refused() -> None:
    one, two = toy.stream_with_alerts("one"), toy.stream_with_alerts("two")
    location(one, two)
    with pytest.raises(StreamRefused, match=r"the same table of alerts, alerts\.one"):
        location(one, replace(two, reaction=one.reaction))


def test_topics_of_a_code_location_are_those_of_its_streams() -> None:
    streams = [toy.stream("one", topic="b"), toy.stream("two", topic="a"), toy.stream("three")]
    assert topics_of(streams, Settings(kafka_bootstrap_servers="127.0.0.1:1")) == ["a", "b"]
    assert topics_of(streams, Settings()) == []


def test_queues_of_a_code_location_are_those_its_declarations_name() -> None:
    streams = [toy.stream_with_alerts("one"), toy.stream("two"), toy.stream("three", queue=None, topic="a")]
    assert queues_of(streams) == ["out-one", "queue-one", "queue-two"]
    assert queues_of(STREAMS) == [
        "alerts",
        "cold-chain-readings",
        "deliveries",
        "delivery-answers",
        "scores",
        "scoring-requests",
    ]


def test_declared_queues_are_created_only_in_the_local_cloud(cloud: Settings) -> None:
    name, client = toy.new_name(), boto3.client("sqs", **cloud.aws_options())

    def made() -> set[str]:
        return {url.rpartition("/")[2] for url in client.list_queues(MaxResults=1000).get("QueueUrls", [])}

    before = made()
    streams = [toy.stream_with_alerts(name, queue=name)]
    create_missing(streams, cloud.model_copy(update={"aws_endpoint_url": f"http://localhost:{cloud.port_cloud}"}))
    assert made() == before
    create_missing(streams, cloud)
    create_missing(streams, cloud)
    assert made() - before == {name, f"{name}-dlq", f"out-{name}", f"out-{name}-dlq"}


def test_invalid_queue_or_topic_name_is_refused() -> None:
    for declared in ({"queue": "two words"}, {"queue": ""}, {"queue": "a" * 81}, {"topic": "a/b"}):
        with pytest.raises(StreamRefused, match=f"stream one: {next(iter(declared))}='.*': expected 1 to "):
            toy.stream("one", **declared)
    with pytest.raises(StreamRefused, match="stream one: queue=<function"):
        toy.stream("one", queue=lambda settings: "one")
    with pytest.raises(StreamRefused, match=r"alerts in alerts\.one: queue='out one'"):
        toy.stream_with_alerts("one", out="out one")


def test_fifo_queue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        StreamRefused, match=r"stream one: queue='in\.fifo': FIFO queues are not supported; use a stand"
    ):
        toy.stream("one", queue="in.fifo")
    with pytest.raises(StreamRefused, match=r"alerts in alerts\.one: queue='out\.fifo': FIFO queues"):
        toy.stream_with_alerts("one", out="out.fifo")
    monkeypatch.setenv("TIDEMARK_EVENTS_QUEUE", "landing.fifo")
    with pytest.raises(SettingsError, match=r"TIDEMARK_EVENTS_QUEUE=landing\.fifo: FIFO queues are not supported"):
        load_settings()


def test_missing_queue_is_created_in_the_local_cloud_only(cloud: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    name = f"queue-{toy.new_name()}"
    with pytest.raises(ClientError, match="NonExistentQueue"):
        declared_queue(name, cloud.model_copy(update={"aws_endpoint_url": f"http://localhost:{cloud.port_cloud}"}))
    queue = declared_queue(name, cloud)
    queue.send(["a"])
    assert [message.body for message in declared_queue(name, cloud).receive(1)] == ["a"]
    assert queue.most_receives() == MAX_RECEIVES
    client = boto3.client("sqs", **cloud.aws_options())
    client.delete_queue(QueueUrl=client.get_queue_url(QueueName=name)["QueueUrl"])
    declared_queue(name, cloud).send(["after the cloud was restarted"])


def test_stream_on_the_queue_of_file_notifications_is_refused() -> None:
    said = r"sensor landing \(TIDEMARK_EVENTS_QUEUE\) and stream one have the same queue, landing-events: each would"
    with pytest.raises(StreamRefused, match=said):
        location(toy.stream("one", queue=load_settings().events_queue))


def test_stream_on_the_queue_of_asset_events_is_refused() -> None:
    stream = toy.stream("one", queue="events")

    def with_events(queue: str) -> dg.Definitions:
        return location(stream, asset_events=AssetEvents(queue, ["finance/rates"]))

    with_events("others")
    with pytest.raises(StreamRefused, match=r"sensor asset_events \(AssetEvents\) and stream one have the same queue"):
        with_events("events")
    with pytest.raises(StreamRefused, match=r"sensor landing .* and the sensor asset_events .* have the same queue"):
        with_events(load_settings().events_queue)


def test_streams_that_share_a_table_of_answers_are_refused() -> None:
    one, two = questions.stream("one"), questions.stream("two")
    require_distinct([one, two])
    with pytest.raises(StreamRefused, match=r"one and stream two have the same table of answers, .*one: declare"):
        require_distinct([one, replace(two, reaction=one.reaction)])


def test_table_of_messages_that_is_also_a_table_of_alerts_is_refused() -> None:
    one, two = toy.stream_with_alerts("one"), toy.stream_with_alerts("two")
    assert isinstance(two.reaction, Alerting)
    said = r"raw\.one is the table of stream one and the table of alerts of stream two: declare a table of alerts"
    with pytest.raises(StreamRefused, match=said):
        require_distinct([one, replace(two, reaction=replace(two.reaction, table=one.table))])
