"""The local cloud: S3 and SQS in one process, moto's server with objects that survive a restart.

Every object is one file in a folder, written whole or not at all, before its notification and reply. Only the current
version of an object is kept, and no tags. Messages in queues are not kept: each start lists every prefix anyway.

Does not belong here: the queues of streams (`streams.transport`).
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from moto import backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3 import notifications
from moto.s3.models import FakeBucket, FakeKey, S3Backend, s3_backends
from moto.sqs.models import Queue, sqs_backends
from werkzeug.serving import BaseWSGIServer, make_server

from dagster_tidemark.local.cloud.backlogged_queues import use_backlogged_queues
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.sources.sqs import MAX_RECEIVES

_send_event = notifications.send_event
_TEMPORARY = ".part"


@dataclass(frozen=True)
class StoredObject:
    """An object and its S3 attributes. `last_modified` is ISO 8601, UTC, without offset."""

    key: str
    body: bytes
    etag: str
    last_modified: str
    metadata: dict[str, str] = field(default_factory=dict)
    storage_class: str = "STANDARD"
    checksum: dict[str, str | int | None] = field(default_factory=dict)


class ObjectFolder:
    """Buckets as sub-folders of `root`. An object is one file: a line of JSON, then its body.

    The file's name is a hash of the key: keys may be longer than a file name, differ only in case, or
    be the folder of another key. It is one file so that one rename makes body and attributes appear together.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def buckets(self) -> list[str]:
        """Return the names of the buckets."""
        if not self._root.is_dir():
            return []
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir())

    def add_bucket(self, bucket: str) -> None:
        """Create the folder of a bucket, if it does not exist."""
        (self._root / bucket).mkdir(parents=True, exist_ok=True)

    def remove_bucket(self, bucket: str) -> None:
        """Remove the folder of an empty bucket."""
        (self._root / bucket).rmdir()

    def write(self, bucket: str, stored: StoredObject) -> None:
        """Write an object. It replaces an older one with the same key."""
        path = self._path(bucket, stored.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        attributes = asdict(stored)
        body = attributes.pop("body")
        temporary = path.with_suffix(_TEMPORARY)
        temporary.write_bytes(json.dumps(attributes).encode() + b"\n" + body)
        temporary.replace(path)

    def remove(self, bucket: str, key: str) -> None:
        """Remove an object, if it exists."""
        self._path(bucket, key).unlink(missing_ok=True)

    def read(self, bucket: str) -> Iterator[StoredObject]:
        """Read all objects of a bucket."""
        for path in sorted((self._root / bucket).iterdir()):
            if path.suffix == _TEMPORARY:
                path.unlink()  # left by a killed write, which never replied
                continue
            attributes, _, body = path.read_bytes().partition(b"\n")
            yield StoredObject(body=body, **json.loads(attributes))

    def _path(self, bucket: str, key: str) -> Path:
        return self._root / bucket / hashlib.sha256(key.encode()).hexdigest()


class _Request(threading.local):
    """The objects that this thread's request touched, and the notifications it caused."""

    def __init__(self) -> None:
        self.touched: list[tuple[str, str]] = []
        self.notifications: list[tuple[Any, ...]] = []


_request = _Request()


class WrittenThroughS3(S3Backend):
    """moto's S3, noting the objects that a request touches. Every change of an object ends in one of two methods."""

    folder: ObjectFolder

    def put_object(self, bucket_name: str, key_name: str, *args: Any, **kwargs: Any) -> FakeKey:
        """Note and write an object: by PUT, POST, a copy or the completion of a multipart upload."""
        _request.touched.append((bucket_name, key_name))
        return super().put_object(bucket_name, key_name, *args, **kwargs)

    def delete_object(self, bucket_name: str, key_name: str, *args: Any, **kwargs: Any) -> tuple[bool, dict[str, Any]]:
        """Note and delete an object: by a single deletion, or as part of a request for many."""
        _request.touched.append((bucket_name, key_name))
        return super().delete_object(bucket_name, key_name, *args, **kwargs)

    def create_bucket(self, bucket_name: str, *args: Any, **kwargs: Any) -> FakeBucket:
        """Create a bucket, and its empty folder."""
        bucket = super().create_bucket(bucket_name, *args, **kwargs)
        self.folder.add_bucket(bucket_name)
        return bucket

    def delete_bucket(self, bucket_name: str) -> FakeBucket | None:
        """Delete a bucket, and its folder if the bucket was empty and is gone."""
        bucket = super().delete_bucket(bucket_name)
        if bucket is not None:
            self.folder.remove_bucket(bucket_name)
        return bucket


class Cloud:
    """The WSGI application. It writes objects to the disk, then sends the notifications, then replies to the client."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = ObjectFolder(settings.state_dir / "objects")
        self._writing = threading.Lock()
        self._application = DomainDispatcherApplication(create_backend_app)
        WrittenThroughS3.folder = self._folder
        s3_backends.backend = WrittenThroughS3
        use_backlogged_queues()
        # moto reads this for every request, behind a lock and from the file system, which takes two milliseconds.
        modules = backends.list_of_moto_modules
        backends.list_of_moto_modules = cache(lambda: frozenset(modules()))
        notifications.send_event = lambda *event: _request.notifications.append(event)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request."""
        _request.touched, _request.notifications = [], []
        reply: Iterable[bytes] = self._application(environ, start_response)
        for bucket, key in _request.touched:
            self._keep(bucket, key)
        for event in _request.notifications:
            _send_event(*event)
        return reply

    def restore(self) -> int:
        """Load the objects of the folder without notifications. Return their number."""
        count = 0
        for bucket in self._folder.buckets():
            self._s3.create_bucket(bucket, self._settings.aws_region)
            for stored in self._folder.read(bucket):
                self._load(bucket, stored)
                count += 1
        return count

    def set_up_landing_zone(self) -> None:
        """Create the landing bucket and its notification queue. `streams.transport` creates the queues of streams."""
        region, bucket = self._settings.aws_region, self._settings.landing_bucket
        events = self._queue(self._settings.events_queue)
        if bucket not in self._s3.buckets:
            self._s3.create_bucket(bucket, region)
        changes = {"Id": "landing", "Queue": events.queue_arn, "Event": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        self._s3.put_bucket_notification_configuration(bucket, {"QueueConfiguration": [changes]})

    def _queue(self, name: str) -> Queue:
        """Create a queue that moves a message to its dead-letter queue after five receives."""
        sqs = sqs_backends[DEFAULT_ACCOUNT_ID][self._settings.aws_region]
        dead_letters = sqs.create_queue(f"{name}-dlq")
        redrive = {"deadLetterTargetArn": dead_letters.queue_arn, "maxReceiveCount": MAX_RECEIVES}
        return sqs.create_queue(name, RedrivePolicy=json.dumps(redrive))

    @property
    def _s3(self) -> S3Backend:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def _keep(self, bucket_name: str, key_name: str) -> None:
        # The current object is written, under one lock: after two requests for one key the file holds the later one.
        with self._writing:
            bucket = self._s3.buckets.get(bucket_name)
            key = bucket.keys.get(key_name) if bucket else None
            if isinstance(key, FakeKey):
                self._folder.write(bucket_name, _stored(key))
            elif bucket:
                self._folder.remove(bucket_name, key_name)

    def _load(self, bucket: str, stored: StoredObject) -> None:
        key = S3Backend.put_object(
            self._s3,
            bucket,
            stored.key,
            stored.body,
            storage=stored.storage_class,
            etag=stored.etag,
            disable_notification=True,
        )
        key.last_modified = datetime.fromisoformat(stored.last_modified)
        key.set_metadata(dict(stored.metadata))
        for name, value in stored.checksum.items():
            setattr(key, name, value)


def _stored(key: FakeKey) -> StoredObject:
    return StoredObject(
        key=key.name,
        body=key.value,
        etag=key.etag.strip('"'),
        last_modified=key.last_modified.replace(tzinfo=None).isoformat(),
        metadata=dict(key.metadata),
        storage_class=key.storage_class or "STANDARD",
        checksum={
            "checksum_algorithm": key.checksum_algorithm,
            "checksum_value": key.checksum_value,
            "checksum_type": key.checksum_type,
            "checksum_parts": key.checksum_parts,
        },
    )


class _QuietRequests(MotoRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: a poll a second and every read of a run would hide the important lines."""


def make_cloud(settings: Settings) -> BaseWSGIServer:
    """Return a server with the restored objects. It listens from now on, and answers during `serve_forever`."""
    cloud = Cloud(settings)
    count = cloud.restore()
    cloud.set_up_landing_zone()
    server = make_server("127.0.0.1", settings.port_cloud, cloud, threaded=True, request_handler=_QuietRequests)
    print(f"local cloud on 127.0.0.1:{settings.port_cloud}, {count} objects restored", flush=True)
    return server


def main() -> None:
    """Serve until a signal ends the process. No shutdown is needed: every change is on disk before its reply."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    make_cloud(load_settings()).serve_forever()


if __name__ == "__main__":
    main()
