"""A queue on SQS, through boto3."""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.sources.notification_queue import HOLD_SECONDS, DeleteRefused, Message, QueueUnavailable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MAX_RECEIVES = 5
"""Number of receives after which a queue that the platform created gives up a message."""
_LONGEST_REASON = 500
_BATCH = 10  # the maximum number of messages in one SQS call
_MOST_BYTES = 262_144  # of all bodies in one call; some servers and older queues accept no more
_NOT_ALLOWED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in a message of SQS
_AT_ONCE = 4  # concurrent calls; boto3 keeps ten connections, and calls to AWS mostly wait


def open_queue(name: str, **options: Any) -> "SqsQueue":
    """Open a queue by its name, with a separate client whose calls end within half a minute."""
    config = Config(connect_timeout=3, read_timeout=25, retries={"mode": "standard", "total_max_attempts": 3})
    return SqsQueue(boto3.client("sqs", config=config, **options), name)


def create_queue(name: str, **options: Any) -> None:
    """Create a queue that gives up a message after five receives, and its dead-letter queue."""
    client = boto3.client("sqs", **options)
    dead_letters = client.create_queue(QueueName=f"{name}-dlq")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead_letters, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES})
    client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})


def is_missing_queue(error: ClientError) -> bool:
    """Return True if an error means that the queue does not exist."""
    return str(error.response.get("Error", {}).get("Code", "")).endswith(("NonExistentQueue", "QueueDoesNotExist"))


class SqsQueue:
    """An SQS queue, opened by its name."""

    def __init__(self, client: "SQSClient", name: str) -> None:
        self._client = client
        self._url = client.get_queue_url(QueueName=name)["QueueUrl"]

    def receive(self, wait_seconds: int) -> list[Message]:
        """Receive up to ten messages, with a long poll of up to 20 s for the first."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=min(wait_seconds, 20),
            VisibilityTimeout=HOLD_SECONDS,
            AttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
        )
        return [_message(found) for found in answer.get("Messages", ())]

    def send(self, bodies: Sequence[str]) -> None:
        """Send messages.

        Raises:
            QueueUnavailable: some messages may not have been sent.
        """
        for some in _sendable(bodies):
            entries: list[Any] = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(some)]
            try:
                failed = self._client.send_message_batch(QueueUrl=self._url, Entries=entries).get("Failed", ())
            except (BotoCoreError, ClientError) as error:
                raise QueueUnavailable(f"messages cannot be sent to the queue {self._url}: {error}") from error
            if failed:
                raise QueueUnavailable(
                    f"{len(failed)} of {len(some)} messages were not accepted by the queue {self._url}: {failed[0]}"
                )

    def extend(self, messages: Sequence[Message], seconds: int = HOLD_SECONDS) -> None:
        """Hide messages for `seconds` from now."""

        def _extend(entries: list[Any]) -> None:
            timed = [entry | {"VisibilityTimeout": seconds} for entry in entries]
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=timed)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(_extend, _batches(messages)))

    def delete(self, messages: Sequence[Message]) -> None:
        """Delete messages.

        Raises:
            DeleteRefused: some messages were not deleted. The error gives the first reason.
        """

        def _delete(entries: list[Any]) -> list[Any]:
            return list(self._client.delete_message_batch(QueueUrl=self._url, Entries=entries).get("Failed", ()))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            failed = [fault for faults in pool.map(_delete, _batches(messages)) for fault in faults]
        if failed:
            raise DeleteRefused(f"{len(failed)} of {len(messages)} messages were not deleted: {failed[0]}")

    def most_receives(self) -> int | None:
        """Return the number of receives after which a message goes to the dead-letter queue; None without such a queue.

        Raises:
            QueueUnavailable: the queue does not answer, or its attributes may not be read.
        """
        try:
            policy = self._redrive_policy()
        except (BotoCoreError, ClientError) as error:
            raise QueueUnavailable(f"the redrive policy of the queue {self._url} cannot be read: {error}") from error
        return int(policy["maxReceiveCount"]) if "maxReceiveCount" in policy else None

    def depth(self) -> int:
        """Return the approximate number of waiting messages.

        Raises:
            QueueUnavailable: the queue does not answer, or its attributes may not be read.
        """
        try:
            names: list[Any] = ["ApproximateNumberOfMessages"]
            found = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)["Attributes"]
        except (BotoCoreError, ClientError) as error:
            raise QueueUnavailable(f"the queue {self._url} does not answer: {error}") from error
        return int(found["ApproximateNumberOfMessages"])

    def dead_letters(self) -> int | None:
        """Return the approximate number of messages that this queue has given up; None if it never gives any up.

        Raises:
            QueueUnavailable: the queue does not answer, or its attributes may not be read.
        """
        names: list[Any] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        try:
            url = self._dead_letter_url()
            if url is None:
                return None
            counts = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        except (BotoCoreError, ClientError) as error:
            raise QueueUnavailable(f"the dead-letter queue of {self._url} does not answer: {error}") from error
        return sum(int(count) for count in counts.values())

    def dead_letter(self, message: Message, reason: str) -> bool:
        """Move a message to the dead-letter queue, with the reason as the attribute `reason`.

        It is deleted here only after it was sent there, so a crash in between sends it twice.

        Returns:
            False if there is no dead-letter queue, or it may not be written. The message then stays here.
        """
        said = _NOT_ALLOWED.sub("?", reason)[:_LONGEST_REASON] or "?"
        attributes: Any = {"reason": {"DataType": "String", "StringValue": said}}
        try:
            url = self._dead_letter_url()
            if url is None:
                return False
            self._client.send_message(QueueUrl=url, MessageBody=message.body, MessageAttributes=attributes)
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=message.receipt)
        except (BotoCoreError, ClientError):
            return False
        return True

    def redrive(self, most: int) -> Iterator[int]:
        """Send messages from the dead-letter queue to this queue again, with a fresh count of receives.

        A message is deleted only after it was sent. A crash in between sends it twice, which is harmless.

        Args:
            most: The number of messages to send; up to nine more may be sent.

        Returns:
            The number sent, batch by batch.
        """
        url, sent = self._dead_letter_url(), 0
        while url is not None and sent < most:
            answer = self._client.receive_message(QueueUrl=url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=1)
            messages = answer.get("Messages", ())
            if not messages:
                return
            not_sent, first = set[int](), 0
            for some in _sendable([m["Body"] for m in messages]):
                entries: list[Any] = [{"Id": str(first + i), "MessageBody": body} for i, body in enumerate(some)]
                failed = self._client.send_message_batch(QueueUrl=self._url, Entries=entries).get("Failed", ())
                not_sent |= {int(fault["Id"]) for fault in failed}
                first += len(some)
            done: list[Any] = [
                {"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages) if i not in not_sent
            ]
            if not done:
                return
            self._client.delete_message_batch(QueueUrl=url, Entries=done)
            sent += len(done)
            yield len(done)

    def _redrive_policy(self) -> dict[str, Any]:
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["RedrivePolicy"])
        found: dict[str, Any] = json.loads(answer.get("Attributes", {}).get("RedrivePolicy", "{}"))
        return found

    def _dead_letter_url(self) -> str | None:
        policy = self._redrive_policy()
        if not policy:
            return None
        _, _, _, _, account, name = policy["deadLetterTargetArn"].split(":")
        try:
            return self._client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
        except self._client.exceptions.QueueDoesNotExist:
            return None


def _message(found: Any) -> Message:
    said = found.get("Attributes", {})
    return Message(
        found["Body"],
        found["ReceiptHandle"],
        int(said.get("ApproximateReceiveCount", 1)),
        found["MessageId"],
        int(said.get("SentTimestamp", 0)) / 1000,
    )


def _sendable(bodies: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the bodies in batches that SQS accepts, in order: by number, and by the bytes of a whole call."""
    some, size = list[str](), 0
    for body in bodies:
        length = len(body.encode(errors="replace"))
        if some and (len(some) == _BATCH or size + length > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(body)
        size += length
    if some:
        yield some


def _batches(messages: Sequence[Message]) -> Iterator[list[Any]]:
    for start in range(0, len(messages), _BATCH):
        yield [{"Id": str(i), "ReceiptHandle": m.receipt} for i, m in enumerate(messages[start : start + _BATCH])]
