"""Queues and topics: redrive policies, rights to receive, extend and delete messages; leaders of partitions.

A check takes no message away. If the queue looks empty, it receives without waiting. If not, it receives one message,
gives it back at once, and so counts one receive. Deletion is tried with a receipt that belongs to no message.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from dagster_tidemark.doctor.bucket import client
from dagster_tidemark.doctor.checks import Check, CheckFailed, is_denied, missing, needing
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.sqs import MAX_RECEIVES, is_missing_queue

_NO_RECEIPT = "tidemark-doctor"
_GIVE_BACK_SECONDS = 10
"""How long a message is hidden if the check is killed before it gives the message back."""


def checks(settings: Settings, received: Iterable[str], sent: Iterable[str]) -> Iterator[Check]:
    """Yield a check for each queue.

    Args:
        received: Names of the queues that Tidemark receives from, except the queue of notifications.
        sent: Names of the queues that Tidemark only sends to.
    """
    names = list(dict.fromkeys([settings.events_queue, *received]))
    for name in names:
        remedy = f"create the queue {name} in the region {settings.aws_region} (docs/runbook.md)"
        yield Check(f"queue {name}", partial(_opened, receiving, settings, name), remedy)
    for name in sent:
        if name not in names:
            remedy = f"create the queue {name} in the region {settings.aws_region} (docs/runbook.md)"
            yield Check(f"queue {name}", partial(_opened, sending, settings, name), remedy)


def _opened(ask: Any, settings: Settings, name: str) -> str:
    return str(ask(client("sqs", settings), name))


def receiving(sqs: Any, name: str) -> str:
    """Check a queue that Tidemark receives from.

    Raises:
        CheckFailed: the queue or a permission is missing, or messages are never given up.
    """
    url = _url(sqs, name)
    with needing("sqs:GetQueueAttributes", name):
        asked = ["ApproximateNumberOfMessages", "RedrivePolicy"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked).get("Attributes", {})
    waiting = int(attributes.get("ApproximateNumberOfMessages", 0))
    with needing("sqs:ReceiveMessage", name):
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1, VisibilityTimeout=_GIVE_BACK_SECONDS)
    for message in answer.get("Messages", ()):
        with needing("sqs:ChangeMessageVisibility", name):
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    if not answer.get("Messages"):
        _try(sqs.change_message_visibility, "sqs:ChangeMessageVisibility", name, QueueUrl=url, VisibilityTimeout=0)
    _try(sqs.delete_message, "sqs:DeleteMessage", name, QueueUrl=url)
    if "RedrivePolicy" not in attributes:
        raise CheckFailed(
            f"{name} has no dead-letter queue, so a message that cannot be read is received forever",
            f"give it a redrive policy with maxReceiveCount {MAX_RECEIVES} (docs/runbook.md)",
        )
    return f"receive, change visibility and delete are permitted; about {waiting} messages wait"


def sending(sqs: Any, name: str) -> str:
    """Check that a queue exists that Tidemark only sends to. Nothing is sent, so `sqs:SendMessage` is not checked.

    Raises:
        CheckFailed: the queue or a permission is missing.
    """
    _url(sqs, name)
    return "exists; sending was not tried"


def _url(sqs: Any, name: str) -> str:
    try:
        with needing("sqs:GetQueueUrl", name):
            return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    except ClientError as error:
        if is_missing_queue(error):
            raise CheckFailed(f"there is no queue {name}", f"create it, with a dead-letter queue {name}-dlq") from error
        raise


def _try(call: Any, permission: str, name: str, **arguments: Any) -> None:
    """Call with a receipt of no message. SQS refuses the receipt only if the call is permitted."""
    try:
        call(ReceiptHandle=_NO_RECEIPT, **arguments)
    except ClientError as error:
        if is_denied(error):
            raise missing(permission, name) from error
        if "Receipt" not in str(error) and "InvalidParameterValue" not in str(error):
            raise


def topic_checks(settings: Settings, topics: Iterable[str]) -> Iterator[Check]:
    """Yield a check for each topic; none if Kafka is off."""
    for topic in topics:
        remedy = (
            f"create the topic {topic}, or correct TIDEMARK_KAFKA_BOOTSTRAP_SERVERS={settings.kafka_bootstrap_servers}"
        )
        yield Check(f"topic {topic}", partial(described, settings, topic), remedy)


def described(settings: Settings, topic: str) -> str:
    """Describe a topic.

    Raises:
        CheckFailed: partitions have no leader.
        KafkaUnavailable, TopicUnknown, KafkaRefused: the topic cannot be described.
    """
    from dagster_tidemark.sources.kafka_client import KafkaClient

    with closing(KafkaClient(settings.kafka_options(), topic)) as client:
        found = client.look()
    if found.leaderless:
        raise CheckFailed(f"{len(found.leaderless)} partitions have no leader", "start the brokers that hold them")
    return f"{len(found.partitions)} partitions"
