"""A message says where to look again, or is not ours."""

import json

import pytest

from pipelines.feeds import FEEDS, ORDERS
from pipelines.sources.hints import NotOurs, hints_of


def event(*keys: str, bucket: str = "landing", name: str = "ObjectCreated:Put") -> str:
    records = [
        {
            "eventName": name,
            "eventTime": "2026-10-01T07:00:01.000Z",
            "s3": {"bucket": {"name": bucket}, "object": {"key": key}},
        }
        for key in keys
    ]
    return json.dumps({"Records": records})


def test_each_record_is_a_hint_with_its_key_decoded() -> None:
    body = event("orders/dt%3D2026-10-01/hour%3D07/a+b%2B.csv", "orders/dt=2026-10-01/hour=08/a.csv")
    hints = hints_of(body, bucket="landing", feeds=FEEDS)
    assert [(h.feed, h.partition) for h in hints] == [(ORDERS, "2026-10-01-07:00"), (ORDERS, "2026-10-01-08:00")]


def test_a_removal_is_a_hint_too() -> None:
    body = event("customers/latest.csv", name="ObjectRemoved:Delete")
    assert [h.partition for h in hints_of(body, bucket="landing", feeds=FEEDS)] == [None]


def test_the_test_event_says_nothing() -> None:
    assert hints_of('{"Service": "Amazon S3", "Event": "s3:TestEvent"}', bucket="landing", feeds=FEEDS) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("not json", "not an S3 event"),
        ("[]", "not an S3 event"),
        ('{"order": 1}', "not an S3 event"),
        (event("orders/dt=2026-10-01/hour=07/a.csv", bucket="other"), "about bucket other"),
        (event("elsewhere/a.csv"), "belongs to no declared feed"),
    ],
)
def test_what_is_not_ours_is_refused_with_the_reason(body: str, said: str) -> None:
    with pytest.raises(NotOurs, match=said):
        hints_of(body, bucket="landing", feeds=FEEDS)
