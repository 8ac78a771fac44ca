"""A queue on SQS, through boto3."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pipelines.sources.messages import HOLD_SECONDS, DeleteRefused, Message

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_BATCH = 10  # what one SQS call takes or gives at most
_AT_ONCE = 4  # boto3 keeps ten connections; a call to AWS is waiting, not work


class SqsQueue:
    """A queue by its name."""

    def __init__(self, client: "SQSClient", name: str) -> None:
        self._client = client
        self._url = client.get_queue_url(QueueName=name)["QueueUrl"]

    def receive(self, wait_seconds: int) -> list[Message]:
        """Up to ten messages; a long poll that waits for the first one at most 20 s."""
        answer = self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=min(wait_seconds, 20),
            VisibilityTimeout=HOLD_SECONDS,
            AttributeNames=["ApproximateReceiveCount"],
        )
        return [
            Message(m["Body"], m["ReceiptHandle"], int(m.get("Attributes", {}).get("ApproximateReceiveCount", 1)))
            for m in answer.get("Messages", ())
        ]

    def extend(self, messages: Sequence[Message], seconds: int = HOLD_SECONDS) -> None:
        """Hide these for longer, from now on."""

        def _extend(entries: list[Any]) -> None:
            timed = [entry | {"VisibilityTimeout": seconds} for entry in entries]
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=timed)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(_extend, _batches(messages)))

    def delete(self, messages: Sequence[Message]) -> None:
        """Acknowledge.

        Raises:
            DeleteRefused: some were not deleted, with the first reason.
        """

        def _delete(entries: list[Any]) -> list[Any]:
            return list(self._client.delete_message_batch(QueueUrl=self._url, Entries=entries).get("Failed", ()))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            failed = [fault for faults in pool.map(_delete, _batches(messages)) for fault in faults]
        if failed:
            raise DeleteRefused(f"{len(failed)} of {len(messages)} messages were not deleted: {failed[0]}")


def _batches(messages: Sequence[Message]) -> Iterator[list[Any]]:
    for start in range(0, len(messages), _BATCH):
        yield [{"Id": str(i), "ReceiptHandle": m.receipt} for i, m in enumerate(messages[start : start + _BATCH])]
