"""The local cloud as a client sees it, before and after a restart."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from dagster_tidemark.settings import Settings
from tests.conftest import end_service, make_settings, start_service

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient


def _client(settings: Settings, name: str) -> Any:
    return boto3.client(
        name,  # type: ignore[call-overload]
        endpoint_url=settings.aws_endpoint_url,
        region_name=settings.aws_region,
        aws_access_key_id=settings.aws_access_key_id,
        aws_secret_access_key=settings.aws_secret_access_key,
    )


@pytest.fixture
def s3(cloud: Settings) -> "S3Client":
    client: S3Client = _client(cloud, "s3")
    return client


@pytest.fixture
def events(cloud: Settings) -> "Iterator[Events]":
    queue = Events(_client(cloud, "sqs"), cloud.events_queue)
    queue.drain()
    yield queue


class Events:
    """The notification queue, as (event, key) pairs."""

    def __init__(self, client: "SQSClient", name: str) -> None:
        self._client = client
        self._url = client.get_queue_url(QueueName=name)["QueueUrl"]

    def drain(self, wait: int = 0) -> list[tuple[str, str]]:
        found = []
        while messages := self._receive(wait):
            for message in messages:
                body = json.loads(message["Body"])
                found += [(r["eventName"], r["s3"]["object"]["key"]) for r in body.get("Records", [])]
                self._client.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            wait = 0
        return found

    def redrive_policy(self) -> dict[str, Any]:
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["RedrivePolicy"])
        policy: dict[str, Any] = json.loads(answer["Attributes"]["RedrivePolicy"])
        return policy

    def _receive(self, wait: int) -> list[Any]:
        answer = self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=wait)
        return list(answer.get("Messages", []))


def test_local_cloud_notifies_each_object_change(s3: "S3Client", events: Events) -> None:
    s3.put_object(Bucket="landing", Key="told/a b+ü.csv", Body=b"x")
    assert events.drain(wait=5) == [("ObjectCreated:Put", "told%2Fa+b%2B%C3%BC.csv")]
    s3.copy_object(Bucket="landing", Key="told/copy.csv", CopySource={"Bucket": "landing", "Key": "told/a b+ü.csv"})
    assert events.drain(wait=5) == [("ObjectCreated:Copy", "told%2Fcopy.csv")]
    s3.delete_objects(Bucket="landing", Delete={"Objects": [{"Key": "told/copy.csv"}, {"Key": "told/a b+ü.csv"}]})
    assert sorted(events.drain(wait=5)) == [
        ("ObjectRemoved:Delete", "told%2Fa+b%2B%C3%BC.csv"),
        ("ObjectRemoved:Delete", "told%2Fcopy.csv"),
    ]


def test_landing_queue_has_a_dead_letter_queue_after_five_receives(events: Events) -> None:
    policy = events.redrive_policy()
    assert policy["maxReceiveCount"] == 5
    assert policy["deadLetterTargetArn"].endswith(":landing-events-dlq")


def test_local_cloud_writes_and_deletes_objects_on_disk_synchronously(s3: "S3Client", cloud: Settings) -> None:
    folder = cloud.state_dir / "objects" / "landing"
    before = set(os.listdir(folder))
    s3.put_object(Bucket="landing", Key="disk/one.csv", Body=b"body of one")
    (new,) = set(os.listdir(folder)) - before
    assert (folder / new).read_bytes().endswith(b"\nbody of one")
    s3.delete_object(Bucket="landing", Key="disk/one.csv")
    assert set(os.listdir(folder)) == before


def test_restarted_local_cloud_has_the_same_objects_and_sends_no_events(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    log = tmp_path / "cloud.log"
    process = start_service("dagster_tidemark.local.cloud.server", settings, settings.port_cloud, log)
    try:
        s3 = _client(settings, "s3")
        _change_everything(s3)
        before = _everything(s3)
        process.kill()
        process.wait()
        time.sleep(1.1)  # a restored LastModified that is really a new one shows
        process = start_service("dagster_tidemark.local.cloud.server", settings, settings.port_cloud, log)
        assert _everything(s3) == before
        events = Events(_client(settings, "sqs"), "landing-events")
        assert events.drain(wait=1) == []
        s3.put_object(Bucket="landing", Key="after.csv", Body=b"x")
        assert events.drain(wait=5) == [("ObjectCreated:Put", "after.csv")]
    finally:
        end_service(process)


def _change_everything(s3: "S3Client") -> None:
    s3.put_object(
        Bucket="landing", Key="orders/ü +.csv", Body=b"a\n1\n", ContentType="text/csv", Metadata={"sent-by": "till 7"}
    )
    s3.put_object(Bucket="landing", Key="orders", Body=b"the folder of another key")
    s3.put_object(Bucket="landing", Key="k" * 900, Body=b"")
    s3.put_object(Bucket="landing", Key="twice.csv", Body=b"old")
    s3.put_object(Bucket="landing", Key="twice.csv", Body=b"new")
    s3.copy_object(Bucket="landing", Key="copy.csv", CopySource={"Bucket": "landing", "Key": "orders/ü +.csv"})
    upload = s3.create_multipart_upload(Bucket="landing", Key="parts.bin", ContentType="x/parts")["UploadId"]
    bodies = {1: b"1" * 5 * 1024 * 1024, 2: b"2"}
    tags = {
        n: s3.upload_part(Bucket="landing", Key="parts.bin", UploadId=upload, PartNumber=n, Body=body)["ETag"]
        for n, body in bodies.items()
    }
    s3.complete_multipart_upload(
        Bucket="landing",
        Key="parts.bin",
        UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": n, "ETag": tag} for n, tag in tags.items()]},
    )
    for key in ("gone.csv", "gone as well.csv", "and gone.csv"):
        s3.put_object(Bucket="landing", Key=key, Body=b"x")
    s3.delete_object(Bucket="landing", Key="gone.csv")
    s3.delete_objects(Bucket="landing", Delete={"Objects": [{"Key": "gone as well.csv"}, {"Key": "and gone.csv"}]})
    s3.create_bucket(Bucket="another")
    s3.put_object(Bucket="another", Key="x", Body=b"x")
    s3.create_bucket(Bucket="dropped")
    s3.delete_bucket(Bucket="dropped")


def _everything(s3: "S3Client") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for bucket in s3.list_buckets()["Buckets"]:
        name = bucket["Name"]
        found[name] = {}
        for entry in s3.list_objects_v2(Bucket=name).get("Contents", []):
            body = s3.get_object(Bucket=name, Key=entry["Key"])
            attributes = {key: body.get(key) for key in ("ETag", "LastModified", "ContentType", "Metadata")}
            found[name][entry["Key"]] = (entry["ETag"], entry["LastModified"], attributes, body["Body"].read())
    assert set(found) == {"landing", "another"}
    assert set(found["landing"]) == {"orders", "orders/ü +.csv", "k" * 900, "twice.csv", "copy.csv", "parts.bin"}
    return found
