"""Resources for the landing bucket, and for the queue with the bucket's notifications.

Each process opens them once and caches the clients: boto3 takes a tenth of a second to create a client, and a sensor
needs both every five seconds. Many threads may use the same client.
"""

from collections.abc import Callable, Hashable
from datetime import date
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import dagster as dg
from botocore import UNSIGNED
from botocore.config import Config
from dagster_aws.s3 import S3Resource
from dagster_aws.utils import ResourceWithBoto3Configuration
from pydantic import Field

from dagster_tidemark.sources.s3 import S3Bucket
from dagster_tidemark.sources.sqs import SqsQueue

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

QUEUE_TIMEOUTS: dict[str, Any] = {"connect_timeout": 3, "read_timeout": 10}
"""Options of a queue's client, in seconds. A receive waits up to four seconds for a message."""

_Opened = TypeVar("_Opened")
_opened: dict[Hashable, object] = {}


class ImpatientS3(S3Resource):
    """S3 with timeouts for sensors, whose ticks may take one minute. By default boto3 waits for several minutes."""

    max_attempts: int = Field(default=3, description="Number of attempts per call, including the first one.")

    def get_client(self) -> "S3Client":
        """Return a client with short timeouts."""
        client: S3Client = _client("s3", self, connect_timeout=3, read_timeout=10)
        return client


class LandingResource(dg.ConfigurableResource[None]):
    """The landing bucket, which receives the files of feeds.

    Args:
        start_date: The first day that has partitions, as `YYYY-MM-DD`. Earlier files are ignored.
    """

    s3: dg.ResourceDependency[S3Resource]
    bucket: str
    start_date: str = date.min.isoformat()

    @property
    def start(self) -> date:
        """The first day that has partitions."""
        return date.fromisoformat(self.start_date)

    def open(self) -> S3Bucket:
        """Return the opened bucket."""
        return _once((self.bucket, self.s3.model_dump_json()), lambda: S3Bucket(self.s3.get_client, self.bucket))


class QueueResource(ResourceWithBoto3Configuration):
    """An SQS queue, by its name, with timeouts for sensors.

    By default boto3 waits up to five minutes for an answer. Dagster has then given up on the tick, and everything that
    the tick requests is lost.
    """

    queue: str
    max_attempts: int = Field(default=3, description="Number of attempts per call, including the first one.")

    def open(self) -> SqsQueue:
        """Return the opened queue."""
        return _once(self.model_dump_json(), self._connect)

    def _connect(self) -> SqsQueue:
        return SqsQueue(_client("sqs", self, **QUEUE_TIMEOUTS), self.queue)


def _client(service: str, of: S3Resource | ResourceWithBoto3Configuration, **config: Any) -> Any:
    """Return a client with a resource's configuration."""
    if isinstance(of, S3Resource) and of.use_unsigned_session:
        config["signature_version"] = UNSIGNED
    session: Any = boto3.Session(profile_name=of.profile_name)  # boto3's type stubs require the service as a literal
    return session.client(
        service,
        region_name=of.region_name,
        endpoint_url=of.endpoint_url,
        use_ssl=of.use_ssl,
        verify=of.verify,
        aws_access_key_id=of.aws_access_key_id,
        aws_secret_access_key=of.aws_secret_access_key,
        aws_session_token=of.aws_session_token,
        config=Config(retries={"mode": "standard", "total_max_attempts": of.max_attempts}, **config),
    )


def _once(of: Hashable, make: Callable[[], _Opened]) -> _Opened:
    if of not in _opened:
        _opened[of] = make()
    return _opened[of]  # type: ignore[return-value]
