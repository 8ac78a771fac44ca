"""The sender of the sample messages.

Belongs here: sending due messages to their queues. Does not belong here: their content (`pipelines.demo.messages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from dagster_tidemark import Settings

from pipelines.demo.messages import deliveries_between, readings_between, request_at
from pipelines.streams.deliveries import DELIVERED_ORDERS
from pipelines.streams.readings import READINGS
from pipelines.streams.scoring import SCORING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

_BEFORE = timedelta(hours=2)
"""Age of the readings sent at the start of a feed: long enough for an open fridge and its alert."""
_BATCH = 10


@dataclass
class Post:
    """Sender of the feed's messages.

    Args:
        settings: Settings with the endpoint of the queues.
        seed: The world's seed.
        readings: True to send fridge readings.
        requests: True to send requests for scores.
        deliveries: True to send a partner's deliveries.
    """

    settings: Settings
    seed: int
    readings: bool = True
    requests: bool = True
    deliveries: bool = True

    def __post_init__(self) -> None:
        config = Config(connect_timeout=5, retries={"max_attempts": 3})
        self._client: SQSClient = boto3.client("sqs", config=config, **self.settings.aws_options())
        self._bucket: S3Client = boto3.client("s3", config=config, **self.settings.aws_options())
        self._urls: dict[str, str] = {}
        self._sent_until: datetime | None = None

    def send_due(self, now: datetime) -> int:
        """Send the messages due since the last success, and return their number.

        The first call sends two hours of readings.

        Raises:
            BotoCoreError, ClientError: the queues do not answer, or refuse. The next call sends all messages again.
        """
        sent, since = 0, self._sent_until
        if self.readings:
            bodies = list(readings_between(since or now - _BEFORE, now, self.seed))
            sent += self._send(READINGS.queue, bodies)
        if self.requests and since is not None:
            sent += self._send(SCORING.queue, [request_at(now, self.seed)])
        if self.deliveries and since is not None:
            for dropped in deliveries_between(since, now, self.seed):
                for key, body in dropped.files.items():
                    self._bucket.put_object(Bucket=self.settings.landing_bucket, Key=key, Body=body)
                sent += self._send(DELIVERED_ORDERS.queue, [dropped.manifest])
        self._sent_until = now
        return sent

    def _send(self, queue: str | None, bodies: Sequence[str]) -> int:
        assert queue is not None  # each stream used here has a queue
        if queue not in self._urls:
            self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
        for start in range(0, len(bodies), _BATCH):
            some = bodies[start : start + _BATCH]
            entries: list[Any] = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(some)]
            self._client.send_message_batch(QueueUrl=self._urls[queue], Entries=entries)
        return len(bodies)
