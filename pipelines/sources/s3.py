"""The landing bucket on S3, through boto3."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from pipelines.sources.listing import LandedObject, Listing

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Bucket:
    """A bucket, listed through an S3 client."""

    def __init__(self, client: "S3Client", name: str) -> None:
        self._client = client
        self.name = name

    def list(self, prefix: str) -> Listing:
        """The objects below a prefix, in key order.

        Several pages carry the first page's time: what lands while the pages are read is then younger
        than the listing, and the next listing does not take it for known.
        """
        found: list[LandedObject] = []
        listed_at = None
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix):
            listed_at = listed_at or _answered_at(page["ResponseMetadata"]["HTTPHeaders"])
            found += (
                LandedObject(o["Key"], o["ETag"].strip('"'), o["Size"], o["LastModified"].astimezone(UTC))
                for o in page.get("Contents", ())
            )
        return Listing(tuple(found), listed_at or datetime.now(UTC))

    def read(self, key: str, first: int | None = None) -> bytes:
        """The content of an object, or its first bytes."""
        try:
            if first is None:
                return self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
            return self._client.get_object(Bucket=self.name, Key=key, Range=f"bytes=0-{first - 1}")["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidRange":  # no range of an empty object is satisfiable
                return b""
            raise


def _answered_at(headers: dict[str, str]) -> datetime | None:
    return parsedate_to_datetime(headers["date"]).astimezone(UTC) if "date" in headers else None
