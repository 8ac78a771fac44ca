"""The landing bucket and the queue of its notifications.

Either is opened once in a process and kept: boto3 takes a tenth of a second to make a client, which many threads may
use, and a sensor opens both every five seconds.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

import boto3
import dagster as dg
from botocore.config import Config
from dagster_aws.s3 import S3Resource
from dagster_aws.utils import ResourceWithBoto3Configuration

from pipelines.sources.s3 import S3Bucket
from pipelines.sources.sqs import SqsQueue

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_Opened = TypeVar("_Opened")
_opened: dict[Hashable, object] = {}


class ImpatientS3(S3Resource):
    """S3, whose calls end within the minute that a sensor's tick has: boto3 by itself waits for several."""

    def get_client(self) -> "S3Client":
        """A client."""
        return boto3.Session(profile_name=self.profile_name).client(
            "s3",
            region_name=self.region_name,
            endpoint_url=self.endpoint_url,
            use_ssl=self.use_ssl,
            verify=self.verify,
            aws_access_key_id=self.aws_access_key_id,
            aws_secret_access_key=self.aws_secret_access_key,
            aws_session_token=self.aws_session_token,
            config=Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 3}),
        )


class LandingResource(dg.ConfigurableResource[None]):
    """The landing bucket: where feeds put their files."""

    s3: dg.ResourceDependency[S3Resource]
    bucket: str

    def open(self) -> S3Bucket:
        """The bucket."""
        return _once((self.bucket, self.s3.model_dump_json()), lambda: S3Bucket(self.s3.get_client, self.bucket))


class QueueResource(ResourceWithBoto3Configuration):
    """An SQS queue, by its name."""

    queue: str

    def open(self) -> SqsQueue:
        """The queue."""
        return _once(self.model_dump_json(), self._connect)

    def _connect(self) -> SqsQueue:
        client = boto3.Session(
            profile_name=self.profile_name,
            region_name=self.region_name,
            aws_access_key_id=self.aws_access_key_id,
            aws_secret_access_key=self.aws_secret_access_key,
            aws_session_token=self.aws_session_token,
        ).client("sqs", endpoint_url=self.endpoint_url, use_ssl=self.use_ssl, verify=self.verify)
        return SqsQueue(client, self.queue)


def _once(of: Hashable, make: Callable[[], _Opened]) -> _Opened:
    if of not in _opened:
        _opened[of] = make()
    return _opened[of]  # type: ignore[return-value]
