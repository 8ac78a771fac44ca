"""The objects of the local cloud as files in a folder.

Belongs here: one file per object, written whole or not at all. Does not belong here: S3 itself
(`dagster_tidemark.local.cloud.server`). Only the current version of an object is kept, and no tags.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

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
