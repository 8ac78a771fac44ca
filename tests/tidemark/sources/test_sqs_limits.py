"""Limits of SQS, with a client that enforces them as its documentation states: 10 entries and 256 KB in one call."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dagster_tidemark.sources.notification_queue import Message, QueueUnavailable
from dagster_tidemark.sources.sqs import SqsQueue

_MOST = 262_144


def _refuse(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, "Send")


def _is_allowed(text: str) -> bool:
    """Return True if each character is one that SQS allows."""
    allowed = ((0x9, 0xA), (0xD, 0xD), (0x20, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x10FFFF))
    return bool(text) and all(any(low <= ord(each) <= high for low, high in allowed) for each in text)


@dataclass
class Sqs:
    """A queue `work` with the dead-letter queue `dead`."""

    sent: dict[str, list[str]] = field(default_factory=lambda: {"work": [], "dead": []})
    dead: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    calls: int = 0

    def get_queue_url(self, QueueName: str, **_: object) -> dict[str, str]:
        return {"QueueUrl": QueueName}

    def get_queue_attributes(self, **_: object) -> dict[str, Any]:
        policy = {"deadLetterTargetArn": "arn:aws:sqs:eu-central-1:000000000000:dead", "maxReceiveCount": 5}
        return {"Attributes": {"RedrivePolicy": json.dumps(policy)}}

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:
        self.calls += 1
        bodies = [each["MessageBody"] for each in Entries]
        assert 1 <= len(bodies) <= 10 and len({each["Id"] for each in Entries}) == len(bodies)
        if sum(len(body.encode()) for body in bodies) > _MOST:
            raise _refuse("BatchRequestTooLong")
        bad = [each["Id"] for each in Entries if not _is_allowed(each["MessageBody"])]
        self.sent[QueueUrl] += [each["MessageBody"] for each in Entries if each["Id"] not in bad]
        return {"Failed": [{"Id": id_, "Code": "InvalidMessageContents"} for id_ in bad]}

    def send_message(self, QueueUrl: str, MessageBody: str, MessageAttributes: dict[str, dict[str, str]]) -> None:
        reason = MessageAttributes["reason"]["StringValue"]
        if not _is_allowed(reason):
            raise _refuse("InvalidMessageContents")
        self.sent[QueueUrl].append(MessageBody)
        self.reasons.append(reason)

    def receive_message(self, **_: object) -> dict[str, Any]:
        waiting = [body for body in self.dead if body not in self.deleted][:10]
        return {"Messages": [{"Body": body, "ReceiptHandle": body} for body in waiting]}

    def delete_message(self, QueueUrl: str, ReceiptHandle: str) -> None:
        self.deleted.append(ReceiptHandle)

    def delete_message_batch(self, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:
        self.deleted += [each["ReceiptHandle"] for each in Entries]
        return {}


@pytest.fixture
def sqs() -> Iterator[Sqs]:
    yield Sqs()


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([10] * 25, 3),
        ([200_000] * 4, 4),
        ([100_000, 100_000, 100_000, 10, 10], 2),
        ([_MOST, 1], 2),
        ([_MOST], 1),
        ([], 0),
    ],
)
def test_messages_are_sent_in_calls_that_sqs_accepts_and_in_order(sqs: Sqs, sizes: list[int], calls: int) -> None:
    bodies = [f"{n:05}".ljust(size, "x")[:size] if size > 5 else "x" for n, size in enumerate(sizes)]
    SqsQueue(sqs, "work").send(bodies)  # type: ignore[arg-type]
    assert sqs.sent["work"] == bodies and sqs.calls == calls


def test_bytes_count_and_not_characters(sqs: Sqs) -> None:
    bodies = ["ü" * 100_000] * 2
    SqsQueue(sqs, "work").send(bodies)  # type: ignore[arg-type]
    assert sqs.sent["work"] == bodies and sqs.calls == 2


def test_message_that_is_too_long_alone_is_reported(sqs: Sqs) -> None:
    with pytest.raises(QueueUnavailable, match="BatchRequestTooLong"):
        SqsQueue(sqs, "work").send(["small", "x" * (_MOST + 1)])  # type: ignore[arg-type]
    assert sqs.sent["work"] == ["small"]


def test_large_dead_letters_are_redriven(sqs: Sqs) -> None:
    sqs.dead = [f"{n:02}".ljust(120_000, "x") for n in range(13)]
    assert sum(SqsQueue(sqs, "work").redrive(100)) == 13  # type: ignore[arg-type]
    assert sqs.sent["work"] == sqs.dead and sorted(sqs.deleted) == sqs.dead


@pytest.mark.parametrize("reason", ["found '\ud800'", "\x00\x1b[31m", "", "x" * 5_000, "ü𐍈 \ufffe\uffff", "a\nb\tc"])
def test_message_reaches_the_dead_letter_queue_whatever_the_text_of_the_reason(sqs: Sqs, reason: str) -> None:
    assert SqsQueue(sqs, "work").dead_letter(Message("body", "receipt"), reason)  # type: ignore[arg-type]
    assert sqs.sent["dead"] == ["body"] and sqs.deleted == ["receipt"] and len(sqs.reasons[0]) <= 500
