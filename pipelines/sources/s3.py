"""The landing bucket on S3, through boto3."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from pipelines.sources.listing import LandedObject, Listing
from pipelines.sources.strays import Folder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef


class S3Bucket:
    """A bucket, listed through an S3 client, which is made when first needed: that takes a tenth of a second."""

    def __init__(self, connect: "Callable[[], S3Client]", name: str) -> None:
        self._connect = connect
        self.name = name

    @cached_property
    def _client(self) -> "S3Client":
        return self._connect()

    def list(self, prefix: str) -> Listing:
        """The objects below a prefix, in key order.

        Several pages carry the first page's time: what lands while the pages are read is then younger
        than the listing, and the next listing does not take it for known.
        """
        found: list[LandedObject] = []
        listed_at = None
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix):
            listed_at = listed_at or _answered_at(page["ResponseMetadata"]["HTTPHeaders"])
            found += _landed(page)
        return Listing(tuple(found), listed_at or datetime.now(UTC))

    def list_folder(self, prefix: str) -> Folder:
        """What lies directly below a prefix that ends in "/"."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix, Delimiter="/")
        listed = list(pages)
        return Folder(
            tuple(landed for page in listed for landed in _landed(page)),
            tuple(folder["Prefix"] for page in listed for folder in page.get("CommonPrefixes", ())),
        )

    def read(self, key: str, first: int | None = None, last: int | None = None) -> bytes:
        """The content of an object, or its first or last bytes."""
        try:
            if first is None and last is None:
                return self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
            part = f"bytes=-{last}" if first is None else f"bytes=0-{first - 1}"
            return self._client.get_object(Bucket=self.name, Key=key, Range=part)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "InvalidRange":  # no range of an empty object is satisfiable
                return b""
            raise


def _landed(page: "ListObjectsV2OutputTypeDef") -> Iterator[LandedObject]:
    for o in page.get("Contents", ()):
        yield LandedObject(o["Key"], o["ETag"].strip('"'), o["Size"], o["LastModified"].astimezone(UTC))


def _answered_at(headers: dict[str, str]) -> datetime | None:
    return parsedate_to_datetime(headers["date"]).astimezone(UTC) if "date" in headers else None
