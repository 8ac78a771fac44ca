"""The landing bucket and the queue of its notifications."""

import boto3
import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_aws.utils import ResourceWithBoto3Configuration

from pipelines.sources.s3 import S3Bucket
from pipelines.sources.sqs import SqsQueue


class LandingResource(dg.ConfigurableResource[None]):
    """The landing bucket: where feeds put their files."""

    s3: dg.ResourceDependency[S3Resource]
    bucket: str

    def open(self) -> S3Bucket:
        """The bucket, through a client of the caller's thread."""
        return S3Bucket(self.s3.get_client(), self.bucket)


class QueueResource(ResourceWithBoto3Configuration):
    """An SQS queue, by its name."""

    queue: str

    def open(self) -> SqsQueue:
        """The queue, through a client of the caller's thread."""
        client = boto3.Session(
            profile_name=self.profile_name,
            region_name=self.region_name,
            aws_access_key_id=self.aws_access_key_id,
            aws_secret_access_key=self.aws_secret_access_key,
            aws_session_token=self.aws_session_token,
        ).client("sqs", endpoint_url=self.endpoint_url, use_ssl=self.use_ssl, verify=self.verify)
        return SqsQueue(client, self.queue)
