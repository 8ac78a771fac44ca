"""The landing bucket on S3, through boto3."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

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

logger = logging.getLogger(__name__)


_Objects = list[LandedObject]  # by a name, where a class has a method `list`


class S3Bucket:
    """A bucket, listed through an S3 client, which is made when first needed: that takes a tenth of a second."""

    def __init__(self, connect: "Callable[[], S3Client]", name: str) -> None:
        self._connect = connect
        self.name = name
        self._is_versioned: bool | None = None  # not known yet

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

    def list(self, prefix: str) -> Listing:
        """The objects below a prefix, in key order.

        Several pages carry the first page's time: what lands while the pages are read is then younger
        than the listing, and the next listing does not take it for known.
        """
        found: list[LandedObject] = []
        for page in self.pages(prefix):
            found += page.objects
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

    def _pages(self, prefix: str, **options: Any) -> Iterator[Any]:
        with _named(self.name):
            # Only the list of versions tells the version of an object; it costs as many calls as there are versions.
            is_versioned = self._asked_whether_versioned() if self._is_versioned is None else self._is_versioned
            call: Any = "list_object_versions" if is_versioned else "list_objects_v2"
            for page in self._client.get_paginator(call).paginate(Bucket=self.name, Prefix=prefix, **options):
                # Kept once the bucket is listed: credentials that are refused everything say nothing of it.
                self._is_versioned = is_versioned
                yield page

    def _asked_whether_versioned(self) -> bool:
        try:
            return "Status" in self._client.get_bucket_versioning(Bucket=self.name)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _OF_THE_OBJECT:
                raise
            logger.warning("whether bucket %s keeps versions is not to be known: %s", self.name, error)
            return False

    def read(self, of: ObjectVersion) -> bytes:
        """The content of an object as it was listed.

        Raises:
            ObjectChanged: it is another one by now, or gone.
            ObjectUnavailable: this object is not given, though it is there.
            BucketUnavailable: the bucket does not answer, or refuses everything.
        """
        return self._get(of)

    def part(self, of: ObjectVersion, begin: int, length: int) -> bytes:
        """Bytes from the middle of an object; raises what `read` raises."""
        return self._get(of, Range=f"bytes={begin}-{begin + length - 1}") if length else b""

    def put(self, key: str, body: bytes) -> None:
        """Put an object."""
        with _named(self.name):
            self._client.put_object(Bucket=self.name, Key=key, Body=body)

    def check(self, of: ObjectVersion) -> None:
        """Ask whether an object is as it was listed; raises what `read` raises."""
        with self._about(of):
            # Of the version that is there: an older one is given for ever to whoever names it.
            there = self._client.head_object(Bucket=self.name, Key=of.key)
        is_same = there.get("VersionId") == of.version_id if of.version_id else there["ETag"].strip('"') == of.etag
        if not is_same and (of.version_id or of.etag):
            raise ObjectChanged(of.key, "it was written again")

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
                self.probe()  # the bucket answers: so it is about this object (a customer's own key, lost bytes)
                fault = ObjectUnavailable(of.key, str(error))
            raise fault from error
        except BotoCoreError as error:
            raise BucketUnavailable(f"{of.key} cannot be read: {error}") from error


def _exactly(of: ObjectVersion) -> dict[str, Any]:
    return {"VersionId": of.version_id} if of.version_id else {"IfMatch": f'"{of.etag}"'} if of.etag else {}


_REFUSALS = (400, 401, 403, 405, 409, 500)
"""What may be about one object where the bucket answers. Not 503: that is said of too many requests, for whatever."""
_ARCHIVED = "InvalidObjectState"
_OF_THE_OBJECT = (_ARCHIVED, "AccessDenied", "AllAccessDisabled", "Forbidden", "403")
"""Refusals that may be about one object; an expired or a wrong key has codes of its own."""


def _fault_of(of: ObjectVersion, error: ClientError) -> Exception:
    """What an error of a call about one object means, by its code: a HEAD has but a status."""
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
            version = None if o["VersionId"] == "null" else o["VersionId"]  # written before versions were kept
            yield LandedObject(o["Key"], o["ETag"].strip('"'), o["Size"], o["LastModified"].astimezone(UTC), version)


def _answered_at(headers: dict[str, str]) -> datetime | None:
    return parsedate_to_datetime(headers["date"]).astimezone(UTC) if "date" in headers else None
