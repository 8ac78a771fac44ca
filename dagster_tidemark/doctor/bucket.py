"""The landing bucket: listing, and reading a listed version, as the landing sensor and loads do."""

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from dagster_tidemark.doctor.checks import Check, CheckFailed, is_denied, missing, needing, same_clock
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.listing import LandedObject, ObjectUnavailable
from dagster_tidemark.sources.s3 import S3Bucket

IMPATIENT = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
_TRIED = 5
_NO_SUCH_KEY = "tidemark-doctor-reads-an-object-that-does-not-exist"


def client(service: str, settings: Settings) -> Any:
    """Return an AWS client with a separate session: threads cannot safely create clients from one session."""
    session: Any = boto3.Session()
    return session.client(service, config=IMPATIENT, **settings.aws_options())


def check(settings: Settings) -> Check:
    """Return the check."""
    names = "TIDEMARK_LANDING_BUCKET, AWS_REGION or AWS_ENDPOINT_URL"
    remedy = f"create the bucket {settings.landing_bucket}, or correct {names}"
    return Check("landing bucket", lambda: bucket(settings, client("s3", settings)), remedy)


def bucket(settings: Settings, s3: Any) -> str:
    """List the first page, and read a byte of a listed version.

    Raises:
        CheckFailed: a permission is missing, or the clocks differ.
        BucketUnavailable: the bucket does not exist, or does not answer.
    """
    name = settings.landing_bucket
    with needing("s3:GetBucketVersioning", name):
        versioned = s3.get_bucket_versioning(Bucket=name).get("Status", "") != ""
    opened = S3Bucket(lambda: s3, name)
    with needing("s3:ListBucketVersions" if versioned else "s3:ListBucket", name), same_clock("S3") as compared:
        page = next(opened.pages(""))
        clock = compared(page.listed_at)
    kind = "versioned" if versioned else "unversioned"
    read = _read(opened, list(page.objects))
    if read is None:
        _read_nothing(s3, name)
        read = "no object to read yet, reading is permitted"
    return f"{name} ({kind}): listed, {read}; {clock}"


def _read(opened: S3Bucket, objects: list[LandedObject]) -> str | None:
    """Read a byte of the first object that can be read; None if there is none to read."""
    fault: ObjectUnavailable | None = None
    for landed in [each for each in objects if each.size][:_TRIED]:
        try:
            with needing("s3:GetObjectVersion" if landed.version_id else "s3:GetObject", f"{opened.name}/*"):
                opened.part(landed, 0, 1)
        except ObjectUnavailable as error:  # such as an archived object
            fault = error
            continue
        return f"read {landed.key}{' by its version' if landed.version_id else ''}"
    if fault is not None:
        raise CheckFailed(
            str(fault),
            "allow reading objects of the bucket (the page Production has the policy), or restore archived objects",
        )
    return None


def _read_nothing(s3: Any, name: str) -> None:
    """Read an object that does not exist: S3 answers 404 only to a role that may read and list."""
    try:
        s3.get_object(Bucket=name, Key=_NO_SUCH_KEY)
    except ClientError as error:
        if is_denied(error):
            raise missing("s3:GetObject", f"{name}/*") from error
        if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
            raise
