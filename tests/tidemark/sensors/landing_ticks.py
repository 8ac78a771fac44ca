"""Ticks of a landing sensor on the real cloud, with a bucket and a queue of their own that notify nobody."""

import json
import uuid
from collections.abc import Sequence
from datetime import date
from typing import Any

import boto3
import dagster as dg

from dagster_tidemark import Feed
from dagster_tidemark.resources.aws import ImpatientS3, LandingResource, QueueResource
from dagster_tidemark.sensors.landing import landing_sensor
from dagster_tidemark.settings import NO_PACKAGE, Settings
from tests.toys.definitions import defs


class LandingTicks:
    """A landing sensor, and what its ticks read.

    Args:
        start: First day with partitions.
    """

    def __init__(self, instance: dg.DagsterInstance, cloud: Settings, feeds: Sequence[Feed], start: date) -> None:
        options = cloud.aws_options()
        self.instance, self.location, self.bucket = instance, NO_PACKAGE, f"t{uuid.uuid4().hex[:8]}"
        self._s3, self._sqs = boto3.client("s3", **options), boto3.client("sqs", **options)
        self._s3.create_bucket(Bucket=self.bucket)
        self._url = self._sqs.create_queue(QueueName=self.bucket)["QueueUrl"]
        self._sensor: Any = landing_sensor(feeds, start)
        self.queue: Any = QueueResource(queue=self.bucket, **options)
        self.landing: Any = LandingResource(s3=ImpatientS3(**options), bucket=self.bucket, start_date=str(start))

    def put(self, key: str, body: bytes = b"x") -> None:
        """Put a file into the bucket, without a notification."""
        self._s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    def notify(self, key: str) -> None:
        """Send the notification of a file."""
        said = {"bucket": {"name": self.bucket}, "object": {"key": key}}
        self._sqs.send_message(QueueUrl=self._url, MessageBody=json.dumps({"Records": [{"s3": said}]}))

    def waiting(self) -> int:
        """Return the number of messages in the queue, hidden ones included."""
        names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))

    def __call__(self) -> Any:
        """Tick."""
        resources = {"tidemark_landing": self.landing, "tidemark_events_queue": self.queue}
        repository = defs.get_repository_def()
        with dg.build_sensor_context(self.instance, resources=resources, repository_def=repository) as context:
            return self._sensor(context)
