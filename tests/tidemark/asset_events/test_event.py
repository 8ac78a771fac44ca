"""The message of an asset event: what is accepted, and what is refused with its reason."""

import json

import pytest

from dagster_tidemark.asset_events.event import LONGEST_EXTRAS, AssetEvent, InvalidEvent, event_of

EVENT = AssetEvent("sales/17", "sales/orders", "2026-10-01", "v1", 1_790_000_000.5, {"rows": 3}, "sales")


def body(**changes: object) -> str:
    return json.dumps(json.loads(EVENT.body()) | changes)


def test_event_is_the_same_after_it_was_sent() -> None:
    assert event_of(EVENT.body()) == EVENT


def test_missing_optional_members_have_defaults() -> None:
    said = {"id": "1", "asset": "a", "version": "v", "at": "2026-10-01T00:00:00Z"}
    event = event_of(json.dumps(said))
    assert (event.partition, event.extras, event.source) == (None, {}, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found no JSON"),
        ("[" * 100_000, "found no JSON"),
        ("[]", "found a JSON list"),
        (
            '{"cid": 1, "fileCount": 2}',
            "id: expected a text, found None; the message has these members: cid, fileCount",
        ),
        (body(id=7), "id: expected a text, found 7"),
        (body(asset=""), "asset: expected a text"),
        (body(version=None), "version: expected a text"),
        (body(partition=3), "partition: expected a text"),
        (body(at="yesterday"), "at: expected a time such as"),
        (body(at="2026-10-01T00:00:00"), "at: expected a time with a zone"),
        (body(at=-5), "at: expected a time after 1970"),
        (body(at=1e300), "at: expected a time such as"),
        (body(extras=[1]), "extras: expected a JSON object, found list"),
        (body(extras={"x": "y" * LONGEST_EXTRAS}), "extras: expected at most"),
        (body(asset="x" * 2_000), "asset: expected at most 1000 characters"),
    ],
)
def test_message_of_another_form_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        event_of(text)


@pytest.mark.parametrize("extras", [{"x": float("nan")}, {"x": {1, 2}}, {"x": "y" * LONGEST_EXTRAS}])
def test_extras_that_no_message_can_carry_are_refused_by_the_sender(extras: dict[str, object]) -> None:
    with pytest.raises(InvalidEvent, match="extras"):
        AssetEvent("1", "a", None, "v", 0, extras).body()
