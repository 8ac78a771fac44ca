"""The sample's messages: what fridges say and what is asked, once each, and worth an alert now and then."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from dagster_tidemark.local.cloud.backlogged_queues import BackloggedQueue
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.transport import queues_of
from pipelines.demo.messages import deliveries_between, readings_between, request_at
from pipelines.demo.post import Post
from pipelines.streams import STREAMS
from pipelines.transforms.cold_chain import too_warm

NOW = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)


def said(since: datetime, until: datetime) -> list[dict[str, Any]]:
    found = [json.loads(body) for body in readings_between(since, until, 0)]
    return [{**each, "read_at": datetime.fromisoformat(each["read_at"])} for each in found]


def test_each_demo_fridge_sends_one_reading_per_minute() -> None:
    whole = list(readings_between(NOW, NOW + timedelta(hours=1), 0))
    parts = [
        body
        for n in range(60)
        for body in readings_between(NOW + timedelta(minutes=n), NOW + timedelta(minutes=n + 1), 0)
    ]
    assert whole == parts
    assert len({(each["device_id"], each["read_at"]) for each in map(json.loads, whole)}) == len(whole) == 12 * 60


def test_each_demo_fridge_causes_an_alert_once_in_six_hours() -> None:
    day = said(NOW - timedelta(days=1), NOW)
    for device in {each["device_id"] for each in day}:
        of_one = [each for each in day if each["device_id"] == device and each["temperature_c"] != "---"]
        assert len(list(too_warm(of_one))) in (4, 5)
    for hour in range(6):
        until = NOW + timedelta(hours=hour)
        lately = said(until - timedelta(hours=2), until)
        devices = {each["device_id"] for each in lately}
        assert any(
            list(too_warm(e for e in lately if e["device_id"] == device and e["temperature_c"] != "---"))
            for device in devices
        )


def test_demo_scoring_request_asks_for_the_next_day() -> None:
    asked = json.loads(request_at(NOW, 0))
    assert asked["date"] == "2026-11-21"
    assert asked == json.loads(request_at(NOW, 0)) != json.loads(request_at(NOW + timedelta(seconds=1), 0))


def test_due_demo_messages_are_sent_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in the local cloud. With moto's own queue each message costs time for all that wait: half a minute.
    monkeypatch.setattr("moto.sqs.models.Queue", BackloggedQueue)
    client: Any = boto3.client("sqs", region_name="us-east-1")
    urls = {name: client.create_queue(QueueName=name)["QueueUrl"] for name in queues_of(STREAMS)}
    post = Post(settings, 0)
    assert post.send_due(NOW) == 2 * 60 * 12
    assert post.send_due(NOW + timedelta(seconds=10)) == 1, "a request"
    assert post.send_due(NOW + timedelta(seconds=40)) == 13
    attributes = client.get_queue_attributes(
        QueueUrl=urls["cold-chain-readings"], AttributeNames=["ApproximateNumberOfMessages"]
    )
    assert int(attributes["Attributes"]["ApproximateNumberOfMessages"]) == 2 * 60 * 12 + 12


def test_missing_demo_queue_raises_an_error(settings: Settings) -> None:
    post = Post(settings, 0)
    with pytest.raises(Exception, match=r"NonExistentQueue|does not exist"):
        post.send_due(NOW)


def test_demo_partner_delivers_every_ten_minutes_with_some_wrong_checksums() -> None:
    found = list(deliveries_between(NOW, NOW + timedelta(hours=2), 0))
    assert len(found) == 12
    wrong = 0
    for dropped in found:
        said = json.loads(dropped.manifest)
        for file in said["files"]:
            body = dropped.files[f"deliveries/{said['delivery_id']}/{file['key']}"]
            assert len(body) == file["size"]
            wrong += hashlib.sha256(body).hexdigest() != file["sha256"]
    assert wrong == 2 * 2
