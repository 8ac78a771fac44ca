"""A queue on SQS, through boto3."""

from typing import TYPE_CHECKING

from pipelines.sources.messages import Message

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_BATCH = 10  # what one SQS call takes or gives at most


class DeleteRefused(Exception):
    """SQS kept messages it was asked to delete. They come back, and are then found unchanged: harmless."""


class SqsQueue:
    """A queue by its name."""

    def __init__(self, client: "SQSClient", name: str) -> None:
        self._client = client
        self._url = client.get_queue_url(QueueName=name)["QueueUrl"]

    def receive(self, wait_seconds: int) -> list[Message]:
        """Up to ten messages; a long poll that waits for the first one at most 20 s."""
        answer = self._client.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=min(wait_seconds, 20)
        )
        return [Message(m["Body"], m["ReceiptHandle"]) for m in answer.get("Messages", ())]

    def delete(self, messages: list[Message]) -> None:
        """Acknowledge.

        Raises:
            DeleteRefused: some were not deleted, with the first reason.
        """
        failed = []
        for start in range(0, len(messages), _BATCH):
            entries = [
                {"Id": str(i), "ReceiptHandle": m.receipt} for i, m in enumerate(messages[start : start + _BATCH])
            ]
            answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)  # type: ignore[arg-type]
            failed += answer.get("Failed", ())
        if failed:
            raise DeleteRefused(f"{len(failed)} of {len(messages)} messages were not deleted: {failed[0]}")
