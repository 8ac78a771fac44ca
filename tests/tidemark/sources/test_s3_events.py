"""A message says where to look again, names what has no place, or is not ours."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from dagster_tidemark.sources.s3_events import LandingZone
from tests import pages
from tests.toys.feeds import CUSTOMERS, FEEDS, ORDERS

ZONE = LandingZone("landing", FEEDS, date(2026, 9, 28))
HOUR = "orders/dt=2026-10-01/hour=07/"


def record(key: str, *, bucket: str = "landing", name: str = "ObjectCreated:Put", **more: Any) -> dict[str, Any]:
    s3 = {"bucket": {"name": bucket}, "object": {"key": key}}
    return {"eventName": name, "eventTime": "2026-10-01T07:00:01.000Z", "s3": s3, **more}


def event(*keys: str, **more: Any) -> str:
    return json.dumps({"Records": [record(key, **more) for key in keys]})


def eventbridge(key: str, detail_type: str = "Object Created") -> str:
    detail = {"version": "0", "bucket": {"name": "landing"}, "object": {"key": key, "size": 5, "sequencer": "61"}}
    return json.dumps(
        {"version": "0", "detail-type": detail_type, "source": "aws.s3", "time": "2026-10-01T07:00:01Z"}
        | {"detail": detail}
    )


def sns(message: str) -> str:
    return json.dumps({"Type": "Notification", "TopicArn": "arn:aws:sns:::t", "Message": message})


def places(body: str, zone: LandingZone = ZONE) -> list[tuple[str, str | None]]:
    reading = zone.read(body)
    assert (reading.refused, reading.strays) == ([], [])
    return [(hint.feed.name, hint.partition) for hint in reading.hints]


def test_each_s3_event_record_is_a_hint_with_a_decoded_key() -> None:
    body = event("orders/dt%3D2026-10-01/hour%3D07/a+b%2B.csv", "orders%2Fdt=2026-10-01%2Fhour=08/%C3%BC.csv")
    assert places(body) == [("orders", "2026-10-01-07:00"), ("orders", "2026-10-01-08:00")]


def test_sns_and_eventbridge_messages_give_the_same_hint() -> None:
    plain = event(f"{HOUR}a.csv")
    bridged = json.loads(eventbridge(f"{HOUR}a.csv"))
    # A subscriber of Security Lake, and rules with an input transformer, get an event without its type.
    untyped = json.dumps({name: value for name, value in bridged.items() if name != "detail-type"})
    for body in (plain, sns(plain), sns(sns(plain)), eventbridge(f"{HOUR}a.csv"), untyped, sns(sns(untyped))):
        (hint,) = ZONE.read(body).hints
        assert (hint.feed, hint.partition) == (ORDERS, "2026-10-01-07:00")
        assert hint.notified_at == datetime(2026, 10, 1, 7, 0, 1, tzinfo=UTC)


def test_eventbridge_keys_are_not_decoded() -> None:
    # Decoded once too often, these would be in no layout.
    assert places(eventbridge(f"{HOUR}a+b%2Fc 100%.csv")) == [("orders", "2026-10-01-07:00")]


@pytest.mark.parametrize("name", ["ObjectRemoved:Delete", "ObjectRemoved:DeleteMarkerCreated", "LifecycleExpiration:X"])
def test_s3_removal_event_is_a_hint(name: str) -> None:
    assert places(event("customers/latest.csv", name=name)) == [("customers", None)]
    assert places(eventbridge("customers/latest.csv", "Object Deleted")) == [(CUSTOMERS.name, None)]


def test_detail_of_an_eventbridge_event_alone_is_a_hint() -> None:
    detail = json.dumps(json.loads(eventbridge(f"{HOUR}a+b.csv"))["detail"])
    assert places(detail) == places(sns(detail)) == [("orders", "2026-10-01-07:00")]


def test_s3_test_event_and_empty_record_list_give_no_hint() -> None:
    for body in ('{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "landing"}', '{"Records": []}'):
        assert places(body) == places(sns(body)) == places(sns(sns(body))) == []


def test_documented_message_hook_reads_the_documented_message() -> None:
    page, module = pages.page("feeds.md"), dict[str, Any]()
    (code,) = (code for code in pages.blocks(page, "python") if "def listed_files" in code)
    (message,) = (json.loads(text) for text in pages.blocks(page, "json") if "fileCount" in text)
    exec(compile(code, "feeds.md", "exec", dont_inherit=True), module)
    assert module["listed_files"](message) == ["orders/dt=2026-10-01/a.csv", "orders/dt=2026-10-01/b.csv"]
    assert module["listed_files"]({"Records": []}) is None


LISTED = {
    "cid": "7f",
    "fileCount": 2,
    "files": [{"path": f"{HOUR}a+b.csv"}, {"path": "s3://landing/customers/latest.csv"}],
}


def files_of(message: Mapping[str, Any]) -> list[str] | None:
    return [file["path"] for file in message["files"]] if "files" in message else None


def test_custom_message_is_read_by_its_hook_or_refused() -> None:
    zone, body = replace(ZONE, reads_message=files_of), json.dumps(LISTED)
    assert places(body, zone) == places(sns(body), zone) == [("orders", "2026-10-01-07:00"), ("customers", None)]
    assert places(json.dumps({"files": []}), zone) == []
    assert places(event(f"{HOUR}a.csv"), zone) == [("orders", "2026-10-01-07:00")]
    for of, refused in (
        (ZONE, "found a message with the members cid, fileCount, files; a function reads_message can read it"),
        (replace(ZONE, reads_message=lambda message: None), "reads_message knows no files in it"),
        (replace(ZONE, reads_message=lambda message: message["keys"]), "reads_message raised KeyError: 'keys' on a"),
        (replace(ZONE, reads_message=lambda message: "orders/a.csv"), "expected a list of keys, found 'orders/a.csv'"),
        (replace(ZONE, reads_message=lambda message: ["s3://other/orders/a.csv"]), "found 'other'"),
        (replace(ZONE, reads_message=lambda message: [None]), "expected strings as bucket and key"),
    ):
        reading = of.read(body)
        assert reading.hints == []
        (reason,) = reading.refused
        assert refused in reason and "\n" not in reason


def test_record_of_another_bucket_is_refused_and_others_are_read() -> None:
    body = json.dumps({"Records": [record(f"{HOUR}a.csv"), record("x", bucket="other"), record(f"{HOUR}b.csv")]})
    reading = ZONE.read(body)
    assert [hint.partition for hint in reading.hints] == ["2026-10-01-07:00"] * 2
    assert reading.refused == ["expected an event of bucket 'landing', found 'other'"]


def test_unreadable_event_record_does_not_stop_the_later_ones() -> None:
    reading = ZONE.read(json.dumps({"Records": [{"s3": None}, record(f"{HOUR}a.csv")]}))
    assert [hint.partition for hint in reading.hints] == ["2026-10-01-07:00"]
    assert len(reading.refused) == 1


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("orders/a.csv", "not in the layout of feed orders"),
        ("orders/dt=2026-13-01/hour=07/a.csv", "not in the layout"),
        ("orders/dt=2026-10-01/hour=０７/a.csv", "not in the layout"),
        ("orders/readme.txt", "not in the layout"),
        ("orders/dt=9999-12-31/hour=23/a.csv", "more than 3 days ahead"),
        ("orders/dt=2062-10-01/hour=07/a.csv", "more than 3 days ahead"),
        ("orders/dt=0001-01-01/hour=00/a.csv", "before the start date"),
        ("prices/dt=2026-09-27/p.csv", "is before the start date 2026-09-28"),
    ],
)
def test_event_of_a_misplaced_file_is_reported_and_not_refused(key: str, said: str) -> None:
    reading = ZONE.read(eventbridge(key))
    assert (reading.hints, reading.refused) == ([], [])
    (stray,) = reading.strays
    assert stray.key == key
    assert said in stray.place.message


@pytest.mark.parametrize("name", ["deeper/a.csv", "a.xlsx", "_SUCCESS"])
def test_event_below_a_partition_folder_is_a_hint_for_it(name: str) -> None:
    (hint,) = ZONE.read(eventbridge(f"orders/dt=2026-10-01/hour=07/{name}")).hints
    assert hint.partition == "2026-10-01-07:00"


def test_marker_files_outside_the_layout_give_no_hint() -> None:
    assert places(event("orders/_SUCCESS", "orders/", "orders/dt=2026-10-01/.a.csv")) == []


def test_folders_of_hadoop_are_no_reason_to_list_or_to_refuse() -> None:
    read = ZONE.read(event("orders_$folder$", "orders/dt=2026-10-01_$folder$", "other_$folder$"))
    assert (read.hints, read.strays, read.refused) == ([], [], [])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("not json", "expected an S3, EventBridge or SNS notification"),
        ("", "expected an S3, EventBridge or SNS notification"),
        ("[]", "expected an S3, EventBridge or SNS notification"),
        ("null", "expected an S3, EventBridge or SNS notification"),
        ("[" * 100_000, "expected an S3, EventBridge or SNS notification"),
        ('{"order": 1}', "expected an S3, EventBridge or SNS notification"),
        ('{"Records": [{}]}', "expected a record of an S3 event"),
        ('{"Records": 7}', "found a message with the members Records"),
        ("{}", "found a message with no members"),
        (json.dumps({f"member {n}": n for n in range(1000)}), "member 9, ..."),
        (sns(sns('{"order": 1}')), "found a message in SNS with the members order"),
        (sns(sns(sns(sns(sns(sns("{}")))))), "more than 5 SNS envelopes"),
        ('{"Type": "Notification"}', "expected an S3, EventBridge or SNS notification"),
        (sns("hello"), "expected an S3, EventBridge or SNS notification"),
        ('{"Type": "SubscriptionConfirmation", "Message": "You have chosen"}', "open its SubscribeURL"),
        ('{"detail-type": "EC2 Instance State-change Notification", "detail": {}}', "expected a record of an S3 event"),
        (json.dumps({"Records": [record(7)]}), "belongs to no declared feed"),  # type: ignore[arg-type]
        (json.dumps({"Records": [record(f"{HOUR}a.csv", eventSource="aws:sns")]}), "expected an event of S3"),
        (event(f"{HOUR}a.csv", bucket="other"), "found 'other'"),
        (event("elsewhere/a.csv"), "belongs to no declared feed"),
        (eventbridge("orders/\ud800/a.csv"), "surrogates not allowed"),
        (event("customers/2026.csv"), "belongs to no declared feed"),
    ],
)
def test_foreign_message_is_refused_with_the_reason(body: str, said: str) -> None:
    reading = ZONE.read(body)
    assert (reading.hints, reading.strays) == ([], [])
    assert len(reading.refused) == 1
    assert said in reading.refused[0]
    assert len(reading.refused[0]) < 400


@pytest.mark.parametrize("time", ["yesterday", None, "0001-01-01T00:00:00+14:00", 7])
def test_message_without_a_valid_time_counts_from_its_read(time: object) -> None:
    before = datetime.now(UTC)
    (hint,) = ZONE.read(json.dumps({"Records": [record(f"{HOUR}a.csv", eventTime=time)]})).hints
    assert before <= hint.notified_at <= datetime.now(UTC)


def test_event_below_a_delivery_prefix_is_neither_a_hint_nor_refused() -> None:
    zone = LandingZone("landing", FEEDS, date(2026, 9, 28), ("deliveries/",))
    said = zone.read(event("deliveries/d-1/a.csv", f"{HOUR}a.csv"))
    assert (said.refused, said.strays, len(said.hints)) == ([], [], 1)
    assert zone.read(event("parcels/a.csv")).refused
