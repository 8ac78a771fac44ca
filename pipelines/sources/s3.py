"""The landing bucket on S3, through boto3."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from pipelines.sources.listing import BucketUnavailable, LandedObject, Listing

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef


_Objects = list[LandedObject]  # by a name, where a class has a method `list`


class S3Bucket:
    """A bucket, listed through an S3 client, which is made when first needed: that takes a tenth of a second."""

    def __init__(self, connect: "Callable[[], S3Client]", name: str) -> None:
        self._connect = connect
        self.name = name

    @cached_property
    def _client(self) -> "S3Client":
        return self._connect()

    def probe(self) -> None:
        """Ask for nothing but an answer.

        Raises:
            BucketUnavailable: there is none, or a refusal.
        """
        with _named(self.name):
            self._client.head_bucket(Bucket=self.name)

    def list(self, prefix: str, *, most: int | None = None) -> Listing:
        """The objects below a prefix, in key order; of `most` up to a page more.

        Several pages carry the first page's time: what lands while the pages are read is then younger
        than the listing, and the next listing does not take it for known.
        """
        found: list[LandedObject] = []
        for page in self.pages(prefix):
            found += page.objects
            if most is not None and len(found) >= most:
                break
        return Listing(tuple(found), page.listed_at)

    def pages(self, prefix: str) -> Iterator[Listing]:
        """The same, page by page."""
        listed_at = None
        for page in self._pages(prefix):
            listed_at = listed_at or _answered_at(page["ResponseMetadata"]["HTTPHeaders"]) or datetime.now(UTC)
            yield Listing(tuple(_landed(page)), listed_at)

    def list_folder(self, prefix: str) -> _Objects:
        """The objects directly in a folder, a prefix that ends in "/"."""
        return [landed for page in self._pages(prefix, Delimiter="/") for landed in _landed(page)]

    def _pages(self, prefix: str, **options: Any) -> "Iterator[ListObjectsV2OutputTypeDef]":
        with _named(self.name):
            paginator = self._client.get_paginator("list_objects_v2")
            yield from paginator.paginate(Bucket=self.name, Prefix=prefix, **options)

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


@contextmanager
def _named(bucket: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise BucketUnavailable(f"bucket {bucket} cannot be listed: {error}") from error


def _landed(page: "ListObjectsV2OutputTypeDef") -> Iterator[LandedObject]:
    for o in page.get("Contents", ()):
        yield LandedObject(o["Key"], o["ETag"].strip('"'), o["Size"], o["LastModified"].astimezone(UTC))


def _answered_at(headers: dict[str, str]) -> datetime | None:
    return parsedate_to_datetime(headers["date"]).astimezone(UTC) if "date" in headers else None
