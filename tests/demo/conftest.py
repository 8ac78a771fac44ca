"""A landing bucket in this process."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from dagster_tidemark.settings import Settings


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Settings whose landing bucket exists and is empty."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="landing")
        settings = Settings(aws_region="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
        # The mock stands in for AWS itself, which is where no endpoint leads.
        yield settings.model_copy(update={"aws_endpoint_url": None, "landing_bucket": "landing"})
