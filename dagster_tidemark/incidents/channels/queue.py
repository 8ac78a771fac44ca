"""An SQS queue that gets each message in the format of the webhook."""

import json
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.incidents.channels.channel import (
    TIMEOUT_SECONDS,
    Channel,
    ChannelUnavailable,
    Delivery,
    MessageRefused,
)
from dagster_tidemark.incidents.channels.webhook import document

_OF_THE_MESSAGE = ("InvalidMessageContents", "InvalidParameterValue")
"""Codes of SQS for a message that is too long, or has characters that SQS does not allow."""
_IMPATIENT = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"total_max_attempts": 1})


@dataclass(frozen=True, kw_only=True)
class ContractQueue(Channel):
    """An SQS queue. Each message is one JSON document, equal to the body of `Webhook`.

    The attribute `message_id` holds the id of the message. A queue whose name ends in `.fifo` drops repeats itself.

    Args:
        queue: Name of the queue, in the account and region of the settings.
    """

    queue: str = "contract-alerts"

    @property
    def kind(self) -> str:
        return f"sqs {self.queue}"

    def send(self, delivery: Delivery) -> str:
        message = delivery.message
        fifo = {"MessageGroupId": message.incident.id, "MessageDeduplicationId": message.id}
        try:
            client: Any = boto3.Session().client("sqs", config=_IMPATIENT, **delivery.settings.aws_options())
            client.send_message(
                QueueUrl=client.get_queue_url(QueueName=self.queue)["QueueUrl"],
                MessageBody=json.dumps(document(delivery)),
                MessageAttributes={"message_id": {"DataType": "String", "StringValue": message.id}},
                **(fifo if self.queue.endswith(".fifo") else {}),
            )
        except (BotoCoreError, ClientError) as error:
            code = str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))
            if code.endswith(_OF_THE_MESSAGE):
                raise MessageRefused(f"queue {self.queue}: {error}") from error
            raise ChannelUnavailable(f"queue {self.queue}: {error}") from error
        return message.incident.id
