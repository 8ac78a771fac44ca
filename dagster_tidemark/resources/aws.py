"""The landing bucket and the queue of its notifications.

Either is opened once in a process and kept: boto3 takes a tenth of a second to make a client, which many threads may
use, and a sensor opens both every five seconds.
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

_Opened = TypeVar("_Opened")
_opened: dict[Hashable, object] = {}


class ImpatientS3(S3Resource):
    """S3, whose calls end within the minute that a sensor's tick has: boto3 by itself waits for several."""

    max_attempts: int = Field(default=3, description="How often a call is tried, the first time included.")

    def get_client(self) -> "S3Client":
        """A client."""
        client: S3Client = _client("s3", self, connect_timeout=3, read_timeout=10)
        return client


class LandingResource(dg.ConfigurableResource[None]):
    """The landing bucket: where feeds put their files.

    Args:
        start_date: The first day of which there are partitions, as `YYYY-MM-DD`; what lies before is not looked at.
    """

    s3: dg.ResourceDependency[S3Resource]
    bucket: str
    start_date: str = date.min.isoformat()

    @property
    def start(self) -> date:
        """The first day of which there are partitions."""
        return date.fromisoformat(self.start_date)

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
        return SqsQueue(_client("sqs", self), self.queue)


def _client(service: str, of: S3Resource | ResourceWithBoto3Configuration, **config: Any) -> Any:
    """A client as a resource is configured."""
    if isinstance(of, S3Resource) and of.use_unsigned_session:
        config["signature_version"] = UNSIGNED
    session: Any = boto3.Session(profile_name=of.profile_name)  # whose stubs want the service as a literal
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
