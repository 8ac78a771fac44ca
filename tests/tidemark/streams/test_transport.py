"""Streams side by side: resources that two must not share, and queues that the laptop's cloud creates."""

from dataclasses import replace

import boto3
import dagster as dg
import pytest
from botocore.exceptions import ClientError

from dagster_tidemark.definitions import build_definitions
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.sources.sqs import MAX_RECEIVES
from dagster_tidemark.streams.stream_declaration import Stream, StreamRefused
from dagster_tidemark.streams.transport import declared_queue, topics_of
from tests.tidemark.streams import toy


def location(*streams: Stream) -> dg.Definitions:
    keys = sorted({stream.asset for stream in streams})
    hours = dg.HourlyPartitionsDefinition(start_date="2026-09-01-00:00", end_offset=1)
    specs = [dg.AssetSpec(dg.AssetKey.from_user_string(key), partitions_def=hours) for key in keys]
    return build_definitions(load_settings(), specs, (), [stream.table for stream in streams], streams)


def test_streams_of_different_tables_and_one_topic_load_together() -> None:
    streams = [toy.stream(name, queue=f"queue-{name}", topic="shared") for name in ("one", "two")]
    location(*streams).get_repository_def().load_all_definitions()


ONE = toy.stream("one")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (toy.stream("one", queue="other"), "streams one and one have the same name, one: "),
        (
            replace(toy.stream("two"), table=ONE.table),
            "streams one and two have the same table, raw.one: declare a table of its own for each",
        ),
        (
            toy.stream("two", queue=lambda settings: "queue-one"),
            "streams one and two have the same queue, queue-one: each would get a part of its messages",
        ),
    ],
)
def test_two_streams_that_would_take_from_each_other_are_refused_by_name(other: Stream, said: str) -> None:
    with pytest.raises(StreamRefused, match=said):
        location(ONE, other)


def test_two_streams_that_alert_into_one_table_are_refused_by_name() -> None:
    one, two = toy.stream_with_alerts("one"), toy.stream_with_alerts("two")
    location(one, two)
    with pytest.raises(StreamRefused, match=r"the same table of alerts, alerts\.one"):
        location(one, replace(two, reaction=one.reaction))


def test_the_topics_of_a_location_are_those_of_its_streams() -> None:
    streams = [toy.stream("one", topic="b"), toy.stream("two", topic="a"), toy.stream("three")]
    assert topics_of(streams, Settings(kafka_bootstrap_servers="127.0.0.1:1")) == ["a", "b"]
    assert topics_of(streams, Settings()) == []


def test_the_local_cloud_makes_a_queue_that_it_lacks_and_another_account_does_not(
    cloud: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
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
