"""The clients against a real S3 and SQS server."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from dagster_tidemark.settings import Settings
from dagster_tidemark.sources import sqs
from dagster_tidemark.sources.listing import BucketUnavailable, LandedObject, ObjectChanged, ObjectUnavailable
from dagster_tidemark.sources.notification_queue import DeleteRefused, Message
from dagster_tidemark.sources.partition_listing import look
from dagster_tidemark.sources.s3 import S3Bucket
from dagster_tidemark.sources.s3_events import LandingZone
from dagster_tidemark.sources.sqs import SqsQueue
from tests.toys.feeds import ORDERS


@pytest.fixture
def aws(cloud: Settings) -> dict[str, Any]:
    return cloud.aws_options()


@pytest.fixture
def queue(aws: dict[str, Any]) -> Iterator[SqsQueue]:
    client = boto3.client("sqs", **aws)
    name = f"test-{uuid.uuid4().hex}"
    client.create_queue(QueueName=name)
    yield SqsQueue(client, name)
    client.delete_queue(QueueUrl=client.get_queue_url(QueueName=name)["QueueUrl"])


def test_listing_includes_several_pages_and_special_key_names(aws: dict[str, Any]) -> None:
    client = boto3.client("s3", **aws)
    bucket = S3Bucket(lambda: client, f"quiet-{uuid.uuid4().hex}")  # one that notifies nobody
    client.create_bucket(Bucket=bucket.name)
    prefix = ORDERS.prefix_of("2026-10-02-00:00")
    names = ["a b.csv", "a+b.csv", "ü%20.csv", *[f"{i:04}.csv" for i in range(1001)]]
    for name in names:
        client.put_object(Bucket=bucket.name, Key=prefix + name, Body=b"x")
    listing = look(bucket, ORDERS, "2026-10-02-00:00")
    assert {o.key.removeprefix(prefix) for o in listing.objects} == set(names)
    (strange,) = bucket.list(prefix + "ü%20.csv").objects
    assert bucket.read(strange) == b"x"


@pytest.fixture
def quiet(aws: dict[str, Any]) -> S3Bucket:
    """A bucket of our own that notifies nobody."""
    client = boto3.client("s3", **aws)
    bucket = S3Bucket(lambda: client, f"quiet-{uuid.uuid4().hex}")
    client.create_bucket(Bucket=bucket.name)
    return bucket


def test_object_is_read_only_in_its_listed_version(quiet: S3Bucket) -> None:
    put = lambda body: quiet._client.put_object(Bucket=quiet.name, Key="a.csv", Body=body)  # noqa: E731
    put(b"0123456789")
    (listed,) = quiet.list("a.csv").objects
    assert quiet.read(listed) == b"0123456789"
    assert quiet.part(listed, 3, 4) == b"3456"
    quiet.check(listed)
    put(b"another")
    for ask in (quiet.read, quiet.check, lambda of: quiet.part(of, 0, 2)):
        with pytest.raises(ObjectChanged, match="was replaced or deleted"):
            ask(listed)
    quiet._client.delete_object(Bucket=quiet.name, Key="a.csv")
    with pytest.raises(ObjectChanged):
        quiet.read(listed)


def test_versioned_bucket_lists_and_reads_objects_by_version(quiet: S3Bucket) -> None:
    client, name = quiet._client, quiet.name
    client.put_object(Bucket=name, Key="before.csv", Body=b"x")
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for body in (b"1", b"2"):
        client.put_object(Bucket=name, Key="a/a.csv", Body=body)
    client.put_object(Bucket=name, Key="deleted.csv", Body=b"x")
    client.delete_object(Bucket=name, Key="deleted.csv")
    found = {o.key: o for o in quiet.list("").objects}
    assert set(found) == {"a/a.csv", "before.csv"}
    first = found["a/a.csv"]
    assert first.source_version == first.version_id and first.version_id
    assert found["before.csv"].version_id is None
    client.put_object(Bucket=name, Key="a/a.csv", Body=b"3")
    assert quiet.read(first) == b"2", "its bytes are there as long as the version is"
    quiet.check(found["before.csv"])
    with pytest.raises(ObjectChanged):
        quiet.check(first)  # who reads by the key alone was given another one
    assert [o.key for o in quiet.list_folder("")] == ["before.csv"]


@pytest.mark.parametrize(
    ("code", "status", "bucket_answers", "means"),
    [
        ("InvalidObjectState", 403, True, ObjectUnavailable),
        ("AccessDenied", 403, True, ObjectUnavailable),
        ("KMS.DisabledException", 400, True, ObjectUnavailable),
        ("403", 403, True, ObjectUnavailable),
        ("NoSuchKey", 404, True, ObjectChanged),
        ("412", 412, True, ObjectChanged),
        ("ExpiredToken", 400, False, BucketUnavailable),
        ("InvalidAccessKeyId", 403, False, BucketUnavailable),
        ("400", 400, False, BucketUnavailable),
        # A key of the customer's own: nobody else can have the object, whatever else the bucket gives.
        ("InvalidRequest", 400, True, ObjectUnavailable),
        ("400", 400, True, ObjectUnavailable),
        ("SlowDown", 503, True, BucketUnavailable),
        # For good, of one object among others: it must not keep these waiting. Its partition is tried again later.
        ("InternalError", 500, True, ObjectUnavailable),
        ("InternalError", 500, False, BucketUnavailable),
    ],
)
def test_s3_error_is_attributed_to_the_object_or_the_bucket(
    code: str, status: int, bucket_answers: bool, means: type[Exception]
) -> None:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    class Refusing:
        def get_object(self, **_: object) -> None:
            raise ClientError(answer, "GetObject")

        def head_bucket(self, **_: object) -> None:
            if not bucket_answers:
                raise ClientError(answer, "HeadBucket")

    bucket = S3Bucket(lambda: Refusing(), "landing")  # type: ignore[arg-type,return-value]
    with pytest.raises(means):
        bucket.read(LandedObject("a.csv", "e", 1, datetime(2026, 10, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("code", "listed"), [("RequestTimeTooSkewed", False), ("AccessDenied", False), ("AccessDenied", True)]
)
def test_temporary_refusal_does_not_decide_whether_a_bucket_has_versions(code: str, listed: bool) -> None:
    refused: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    asked = []

    class Refusing:
        refuses = True

        def get_bucket_versioning(self, **_: object) -> dict[str, str]:
            asked.append("versions")
            if self.refuses:
                raise ClientError(refused, "GetBucketVersioning")
            return {"Status": "Enabled"}

        def get_paginator(self, call: str) -> "Refusing":
            self.call = call
            return self

        def paginate(self, **_: object) -> list[dict[str, Any]]:
            if self.refuses and not listed:
                raise ClientError(refused, "ListObjectsV2")
            return [{"ResponseMetadata": {"HTTPHeaders": {}}}]

    client = Refusing()
    bucket = S3Bucket(lambda: client, "landing")  # type: ignore[arg-type,return-value]
    with nullcontext() if listed else pytest.raises(BucketUnavailable):
        bucket.list("")
    client.refuses = False
    for _ in range(2):
        bucket.list("")
    # Who may list and not ask is not asked again; neither is a bucket that has answered.
    assert (client.call, len(asked)) == (("list_objects_v2", 1) if listed else ("list_object_versions", 2))


def test_uploaded_object_becomes_a_hint_on_the_queue(aws: dict[str, Any], cloud: Settings) -> None:
    queue = SqsQueue(boto3.client("sqs", **aws), cloud.events_queue)
    key = ORDERS.prefix_of("2026-10-02-01:00") + "a b+ü.csv"
    boto3.client("s3", **aws).put_object(Bucket=cloud.landing_bucket, Key=key, Body=b"x")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        messages = queue.receive(wait_seconds=5)
        ours = [m for m in messages if "2026-10-02" in m.body]  # other tests put objects too
        hints = [h for m in ours for h in LandingZone(cloud.landing_bucket, [ORDERS]).read(m.body).hints]
        queue.delete(messages)
        if any(h.partition == "2026-10-02-01:00" for h in hints):
            return
    pytest.fail("no notification of the object arrived")


def test_sns_messages_are_read_and_an_unknown_one_becomes_a_dead_letter(
    aws: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sns, client, name = boto3.client("sns", **aws), boto3.client("sqs", **aws), f"test-{uuid.uuid4().hex}"
    sqs.create_queue(name, **aws)
    queue = SqsQueue(client, name)
    attributes = client.get_queue_attributes(QueueUrl=queue._url, AttributeNames=["All"])["Attributes"]
    once = json.dumps(json.loads(attributes["RedrivePolicy"]) | {"maxReceiveCount": 1})
    client.set_queue_attributes(QueueUrl=queue._url, Attributes={"RedrivePolicy": once})
    key = ORDERS.prefix_of("2026-10-02-01:00") + "a.csv"
    event = {"detail": {"bucket": {"name": "landing"}, "object": {"key": key}}, "source": "aws.s3"}
    for raw, body in (("true", event), ("false", event), ("false", {"Event": "s3:TestEvent"}), ("true", {"files": []})):
        topic = sns.create_topic(Name=f"test-{uuid.uuid4().hex}")["TopicArn"]
        sns.subscribe(
            TopicArn=topic, Protocol="sqs", Endpoint=attributes["QueueArn"], Attributes={"RawMessageDelivery": raw}
        )
        sns.publish(TopicArn=topic, Message=json.dumps(body))
    monkeypatch.setattr(sqs, "HOLD_SECONDS", 1)
    messages, zone = queue.receive(wait_seconds=1), LandingZone("landing", [ORDERS])
    found = [(message, zone.read(message.body)) for message in messages]
    assert sorted(len(said.hints) for _, said in found) == [0, 0, 1, 1]
    queue.delete([message for message, said in found if not said.refused])
    (refused,) = [said.refused for _, said in found if said.refused]
    assert "found a message with the members files" in refused[0]
    time.sleep(1.05)
    assert queue.receive(wait_seconds=0) == [] and queue.dead_letters() == 1


def test_message_not_deleted_is_received_again(queue: SqsQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "HOLD_SECONDS", 1)
    queue._client.send_message(QueueUrl=queue._url, MessageBody="hello")
    first = queue.receive(wait_seconds=5)
    second = queue.receive(wait_seconds=5)
    assert [m.body for m in first] == [m.body for m in second] == ["hello"]
    queue.delete(second)
    assert queue.receive(wait_seconds=2) == []


def test_refused_message_delete_raises_an_error(queue: SqsQueue) -> None:
    with pytest.raises(DeleteRefused, match="1 of 1"):
        queue.delete([Message("x", receipt="no such receipt")])


def test_extended_messages_stay_hidden(queue: SqsQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "HOLD_SECONDS", 2)
    for n in range(25):
        queue._client.send_message(QueueUrl=queue._url, MessageBody=str(n))
    received = [m for _ in range(3) for m in queue.receive(wait_seconds=1)]
    assert len(received) == 25
    for _ in range(3):
        time.sleep(1)
        queue.extend(received)
    assert queue.receive(wait_seconds=0) == []
    queue.delete(received)
    time.sleep(2.1)
    assert queue.receive(wait_seconds=0) == []
    queue.extend(received)  # of what is gone there is nothing to hide


def test_dead_letters_are_counted_and_redriven(cloud: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    client = boto3.client("sqs", **cloud.aws_options())
    dead, name = f"dead-{uuid.uuid4().hex}", f"queue-{uuid.uuid4().hex}"
    url = client.create_queue(QueueName=dead)["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})
    found = SqsQueue(client, name)
    bodies = {str(n) for n in range(12)}
    for body in bodies:
        client.send_message(QueueUrl=found._url, MessageBody=body)
    monkeypatch.setattr(sqs, "HOLD_SECONDS", 1)
    while len(received := {m.body for _ in range(3) for m in found.receive(wait_seconds=1)}) < 12:
        pass
    assert received == bodies
    time.sleep(1.1)
    assert found.receive(wait_seconds=1) == [], "received once too often"
    assert found.dead_letters() == 12
    assert sum(found.redrive(most=100)) == 12
    assert found.dead_letters() == 0
    again = [m for _ in range(3) for m in found.receive(wait_seconds=1)]
    assert {m.body for m in again} == bodies
    assert {m.receives for m in again} == {1}, "it has all its receives before it"


def test_queue_without_a_redrive_policy_has_no_dead_letters(queue: SqsQueue) -> None:
    assert queue.dead_letters() is None
    assert list(queue.redrive(most=10)) == []
