"""Shapes of S3 notifications as AWS documents them, with awkward keys: each is a hint, ignored, or refused by name."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pytest

from dagster_tidemark.sources.s3_events import LandingZone
from tests.toys.feeds import ORDERS

ZONE = LandingZone("landing", [ORDERS])
HOUR = "2026-10-02-00:00"
FOLDER = ORDERS.prefix_of(HOUR)


def record(key: str, name: str = "ObjectCreated:Put", /, **changes: Any) -> dict[str, Any]:
    """Return a record as S3 sends it: the key is form-encoded."""
    of = {"key": quote_plus(key, safe="/"), "size": 3, "eTag": "e", "sequencer": "0055AED6DCD90281E5"}
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": "2026-10-02T01:00:00.000Z",
        "eventName": name,
        "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": "landing"}, "object": of | changes},
    }


def s3(*records: dict[str, Any]) -> str:
    return json.dumps({"Records": records})


def eventbridge(key: str, kind: str = "Object Created", /, **changes: Any) -> str:
    """Return an event as EventBridge sends it: the key is as it is."""
    detail = {"version": "0", "bucket": {"name": "landing"}, "object": {"key": key, "size": 3} | changes}
    return json.dumps(
        {"version": "0", "source": "aws.s3", "detail-type": kind, "time": "2026-10-02T01:00:00Z", "detail": detail}
    )


def in_sns(body: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:x:1:t", "Message": body})


def partitions(body: str) -> list[Any]:
    found = ZONE.read(body)
    assert found.refused == []
    return [hint.partition for hint in found.hints]


AWKWARD = [
    "a b.csv",
    "a+b.csv",
    "a%2Bb.csv",
    "100%.csv",
    "%E4.csv",
    "Bestellungen Größe.csv",
    "Gro\u0308ße.csv",  # the umlaut as two characters
    "訂單.csv",
    "line\nbreak.csv",
    "tab\tand\x7f.csv",
    "..csv",
    "quote'\"&<>.csv",
    "emoji 🧊.csv",
    "a" * 600 + ".csv",
]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_key_is_a_hint_for_its_partition_in_every_envelope(name: str) -> None:
    for body in (s3(record(FOLDER + name)), eventbridge(FOLDER + name)):
        assert partitions(body) == partitions(in_sns(body)) == partitions(in_sns(in_sns(body))) == [HOUR]


@pytest.mark.parametrize("key", [FOLDER + "../x.csv", FOLDER.rstrip("/") + "/../../a.csv", FOLDER + "/a.csv"])
def test_dots_and_empty_parts_of_a_key_are_names_and_lead_nowhere(key: str) -> None:
    found = ZONE.read(s3(record(key)))
    assert not found.refused
    assert {hint.partition for hint in found.hints} <= {HOUR}


@pytest.mark.parametrize(
    "name",
    [
        "ObjectCreated:CompleteMultipartUpload",
        "ObjectRemoved:DeleteMarkerCreated",
        "ObjectRestore:Completed",
        "ObjectTagging:Put",
        "ObjectAcl:Put",
        "LifecycleExpiration:DeleteMarkerCreated",
        "LifecycleTransition",
        "Replication:OperationFailedReplication",
        "IntelligentTiering",
        "ReducedRedundancyLostObject",
    ],
)
def test_event_of_any_kind_is_only_a_hint_to_list_again(name: str) -> None:
    assert partitions(s3(record(FOLDER + "a.csv", name))) == [HOUR]


@pytest.mark.parametrize(
    "changes",
    [
        {"versionId": "null"},
        {"versionId": None},
        {"sequencer": "0"},
        {"sequencer": "F" * 60},
        {"sequencer": None},
        {"size": 5 * 1024**4},
        {"size": None},
        {"eTag": ""},
    ],
)
def test_versions_sequencers_and_sizes_of_an_event_are_never_trusted(changes: dict[str, Any]) -> None:
    assert partitions(s3(record(FOLDER + "a.csv", **changes))) == [HOUR]
    assert partitions(eventbridge(FOLDER + "a.csv", **changes)) == [HOUR]


@pytest.mark.parametrize("version", ["2.0", "2.3", "3.0", None])
def test_record_of_a_newer_version_is_read_by_its_key(version: str | None) -> None:
    assert partitions(s3(record(FOLDER + "a.csv") | {"eventVersion": version})) == [HOUR]


TEST_EVENT = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "landing", "RequestId": "x"})


@pytest.mark.parametrize("body", [TEST_EVENT, in_sns(TEST_EVENT), in_sns(in_sns(TEST_EVENT)), s3()])
def test_test_event_is_neither_a_hint_nor_refused(body: str) -> None:
    assert partitions(body) == []


@pytest.mark.parametrize(
    "kind",
    [
        "Object Created",
        "Object Deleted",
        "Object Restore Initiated",
        "Object Restore Completed",
        "Object Restore Expired",
        "Object Storage Class Changed",
        "Object Access Tier Changed",
        "Object ACL Updated",
        "Object Tags Added",
        "Object Tags Deleted",
    ],
)
def test_eventbridge_event_of_any_kind_is_a_hint(kind: str) -> None:
    assert partitions(eventbridge(FOLDER + "a.csv", kind)) == [HOUR]


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(
            {  # CloudTrail's view of the same call: no object, but request parameters
                "source": "aws.s3",
                "detail-type": "AWS API Call via CloudTrail",
                "detail": {"eventName": "PutObject", "requestParameters": {"bucketName": "landing", "key": FOLDER}},
            }
        ),
        json.dumps({"Type": "UnsubscribeConfirmation", "Message": "You have chosen to deactivate"}),
        json.dumps(["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "b", "s3Key": "k"}]),
        s3(record(FOLDER + "a.csv") | {"s3": {"bucket": {"name": "landing"}}}),
        s3(record(FOLDER + "a.csv") | {"s3": None}),
        s3(record(FOLDER + "a.csv", key=7)),
        s3(record(FOLDER + "a.csv", key="\ud800")),
        s3(record(FOLDER + "a.csv") | {"eventSource": "aws:sns"}),
        json.dumps({"Records": [None, 3, "x", []]}),
        "[" * 100_000,
        '{"Records": ' + "9" * 5_000 + "}",
        "",
    ],
)
def test_message_that_names_no_object_is_refused_with_a_reason_and_raises_nothing(body: str) -> None:
    found = ZONE.read(body)
    assert not found.hints and found.refused and all(found.refused)


def test_badly_encoded_key_is_no_reason_to_refuse_the_other_records() -> None:
    bad = record(FOLDER + "a.csv", key=FOLDER + "%E4%zz%")
    found = ZONE.read(s3(bad, record(FOLDER + "b.csv")))
    assert [hint.partition for hint in found.hints] == [HOUR, HOUR] and not found.refused
    assert found.hints[0].notified_at == datetime(2026, 10, 2, 1, tzinfo=UTC)
