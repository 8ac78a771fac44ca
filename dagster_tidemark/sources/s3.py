"""The landing bucket on S3, through boto3."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from dagster_tidemark.sources.listing import (
    BucketUnavailable,
    LandedObject,
    Listing,
    ObjectChanged,
    ObjectUnavailable,
    ObjectVersion,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from dagster_tidemark.settings import Settings

logger = logging.getLogger(__name__)


_Objects = list[LandedObject]  # an alias, because the class has a method `list`


class S3Bucket:
    """A bucket on S3. Its client is created at the first use, because that takes a tenth of a second."""

    def __init__(self, connect: "Callable[[], S3Client]", name: str) -> None:
        self._connect = connect
        self.name = name
        self._is_versioned: bool | None = None  # None: not known yet

    @cached_property
    def _client(self) -> "S3Client":
        return self._connect()

    def probe(self) -> None:
        """Check that the bucket answers.

        Raises:
            BucketUnavailable: the bucket does not answer, or refuses access.
        """
        with _named(self.name):
            self._client.head_bucket(Bucket=self.name)

    def list(self, prefix: str) -> Listing:
        """Return the objects below a prefix, in key order.

        The listing has the time of its first page. Objects that land while the pages are read are then younger than
        the listing, so the next listing treats them as new.
        """
        found: list[LandedObject] = []
        for page in self.pages(prefix):
            found += page.objects
        return Listing(tuple(found), page.listed_at)

    def pages(self, prefix: str) -> Iterator[Listing]:
        """Yield the same listing page by page."""
        listed_at = None
        for page in self._pages(prefix):
            listed_at = listed_at or _answered_at(page["ResponseMetadata"]["HTTPHeaders"]) or datetime.now(UTC)
            yield Listing(tuple(_landed(page)), listed_at)

    def list_folder(self, prefix: str) -> _Objects:
        """Return the objects directly in a folder, a prefix that ends in "/"."""
        return [landed for page in self._pages(prefix, Delimiter="/") for landed in _landed(page)]

    def _pages(self, prefix: str, **options: Any) -> Iterator[Any]:
        with _named(self.name):
            # Only the list of versions has the version of each object. Its cost grows with the number of versions.
            is_versioned = self._asked_whether_versioned() if self._is_versioned is None else self._is_versioned
            call: Any = "list_object_versions" if is_versioned else "list_objects_v2"
            for page in self._client.get_paginator(call).paginate(Bucket=self.name, Prefix=prefix, **options):
                # Stored only after a successful LIST: credentials without any access cannot read the versioning.
                self._is_versioned = is_versioned
                yield page

    def _asked_whether_versioned(self) -> bool:
        try:
            return "Status" in self._client.get_bucket_versioning(Bucket=self.name)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _OF_THE_OBJECT:
                raise
            logger.warning(
                "bucket %s is treated as unversioned, because its versioning cannot be read: %s", self.name, error
            )
            return False

    def read(self, of: ObjectVersion) -> bytes:
        """Return the content of an object as it was listed.

        Raises:
            ObjectChanged: the object was replaced or deleted.
            ObjectUnavailable: the object exists but cannot be read.
            BucketUnavailable: the bucket does not answer, or refuses every request.
        """
        return self._get(of)

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        """Return a range of an object's bytes. Raises the errors of `read`."""
        return self._get(of, Range=f"bytes={begin}-{begin + length - 1}") if length else b""

    def put(self, key: str, body: bytes) -> None:
        """Put an object."""
        with _named(self.name):
            self._client.put_object(Bucket=self.name, Key=key, Body=body)

    def check(self, of: ObjectVersion) -> None:
        """Check that an object is unchanged since it was listed. Raises the errors of `read`."""
        with self._about(of):
            # Ask for the current version: an older version can always be read by its id.
            there = self._client.head_object(Bucket=self.name, Key=of.key)
        is_same = there.get("VersionId") == of.version_id if of.version_id else there["ETag"].strip('"') == of.etag
        if not is_same and (of.version_id or of.etag):
            raise ObjectChanged(of.key, "it was overwritten")

    def _get(self, of: ObjectVersion, **options: Any) -> bytes:
        with self._about(of):
            return self._client.get_object(Bucket=self.name, Key=of.key, **_exactly(of), **options)["Body"].read()

    @contextmanager
    def _about(self, of: ObjectVersion) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            fault = _fault_of(of, error)
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
            if isinstance(fault, BucketUnavailable) and status in _REFUSALS:
                self.probe()  # if the bucket answers, the fault is the object's (a customer-managed key, lost bytes)
                fault = ObjectUnavailable(of.key, str(error))
            raise fault from error
        except BotoCoreError as error:
            raise BucketUnavailable(f"{of.key} cannot be read: {error}") from error


def _exactly(of: ObjectVersion) -> dict[str, Any]:
    return {"VersionId": of.version_id} if of.version_id else {"IfMatch": f'"{of.etag}"'} if of.etag else {}


_REFUSALS = (400, 401, 403, 405, 409, 500)
"""Statuses that may concern a single object while the bucket answers. Not 503, which means too many requests."""
_ARCHIVED = "InvalidObjectState"
_OF_THE_OBJECT = (_ARCHIVED, "AccessDenied", "AllAccessDisabled", "Forbidden", "403")
"""Refusals that may concern a single object. Expired or wrong credentials have other codes."""


def _fault_of(of: ObjectVersion, error: ClientError) -> Exception:
    """Return the fault for an error of a call about one object, by its code. A HEAD has only a status as its code."""
    code = str(error.response["Error"]["Code"])
    if code in ("NoSuchKey", "NoSuchVersion", "PreconditionFailed", "404", "412"):
        return ObjectChanged(of.key, str(error))
    if code in _OF_THE_OBJECT or code.startswith("KMS"):
        return ObjectUnavailable(of.key, str(error), archived=code == _ARCHIVED)
    return BucketUnavailable(f"{of.key} cannot be read: {error}")


@contextmanager
def _named(bucket: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise BucketUnavailable(f"bucket {bucket} cannot be listed: {error}") from error


def _landed(page: Any) -> Iterator[LandedObject]:
    for o in page.get("Contents", ()):
        yield LandedObject(o["Key"], o["ETag"].strip('"'), o["Size"], o["LastModified"].astimezone(UTC))
    for o in page.get("Versions", ()):
        if o["IsLatest"]:
            version = None if o["VersionId"] == "null" else o["VersionId"]  # written before versioning was enabled
            yield LandedObject(o["Key"], o["ETag"].strip('"'), o["Size"], o["LastModified"].astimezone(UTC), version)


def _answered_at(headers: dict[str, str]) -> datetime | None:
    return parsedate_to_datetime(headers["date"]).astimezone(UTC) if "date" in headers else None


def landing_bucket(settings: "Settings") -> S3Bucket:
    """Return the landing bucket of a deployment."""
    return S3Bucket(lambda: boto3.client("s3", **settings.aws_options()), settings.landing_bucket)
