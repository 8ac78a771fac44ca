"""A partner's message "delivery complete", which lists the files of a delivery with their checksums.

Belongs here: parsing such a message. Does not belong here: checking the files (`streams.deliveries.files`), and queues
(`sources.notification_queue`).
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster_tidemark.errors import Terminal

ALGORITHMS = {"sha256": 64, "md5": 32}
"""The checksums that a manifest may give, with their length in hexadecimal digits."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN = 200  # characters of a value in an error
_UNREADABLE = (ValueError, RecursionError)


class NoManifest(Terminal):
    """A message that is not a manifest. A retry does not help.

    Args:
        delivery_id: The id of its delivery, if the message has one.
    """

    def __init__(self, message: str, delivery_id: str | None = None) -> None:
        super().__init__(message)
        self.delivery_id = delivery_id


@dataclass(frozen=True)
class ListedFile:
    """A file as listed in a manifest.

    Args:
        path: The path below the delivery's folder.
        checksums: Algorithm to the digest in lower case; at least one.
        size: The size in bytes; None if the manifest does not contain it.
        outside: The reason why the path is outside the delivery's folder; empty if it is inside.
    """

    path: str
    checksums: Mapping[str, str]
    size: int | None = None
    outside: str = ""


@dataclass(frozen=True)
class DeliveryManifest:
    """The manifest of a delivery.

    Args:
        folder: The prefix of the delivery's files.
        files: The files in the order of the message.
    """

    delivery_id: str
    folder: str
    files: tuple[ListedFile, ...]

    @property
    def digest(self) -> str:
        """Digest of the listed files, independent of their order."""
        said = sorted([file.path, file.size, sorted(file.checksums.items())] for file in self.files)
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    def key_of(self, file: ListedFile) -> str:
        """Return the key of a file in the bucket."""
        return self.folder + file.path


def read_manifest(body: str, prefix: str) -> DeliveryManifest:
    """Return the manifest in the body of a message.

    Keys are relative to the delivery's folder, or absolute if they begin with `prefix`. A key outside the folder does
    not affect other files: its `ListedFile.outside` gives the reason.

    Args:
        prefix: The prefix below which each delivery has a folder.

    Raises:
        NoManifest: the message is not a manifest. The error gives the reason.
    """
    try:
        said = json.loads(body, parse_constant=_refuse_constant)
    except _UNREADABLE as error:
        raise NoManifest(f"the message is not JSON: {type(error).__name__}: {error}") from error
    if not isinstance(said, dict):
        raise NoManifest("the message is not a JSON object with delivery_id and files")
    delivery_id = said.get("delivery_id")
    if not isinstance(delivery_id, str) or not _ID.fullmatch(delivery_id):
        raise NoManifest(
            "delivery_id: expected a folder name of at most 128 letters, digits and . _ -, beginning with a letter or "
            f"digit; found {_shown(delivery_id)}"
        )
    listed = said.get("files")
    if not isinstance(listed, list) or not listed:
        raise NoManifest("files: expected a list of at least one file, each with key and sha256", delivery_id)
    folder = f"{prefix}{delivery_id}/"
    try:
        files = tuple(_file(each, prefix, folder) for each in listed)
        "".join(file.path for file in files).encode()  # refuse unpaired surrogates, which no key has
    except _UNREADABLE as error:
        raise NoManifest(str(error), delivery_id) from error
    path, times = Counter(file.path for file in files).most_common(1)[0]
    if times > 1:
        raise NoManifest(f"files lists {_shown(path)} {times} times", delivery_id)
    return DeliveryManifest(delivery_id, folder, files)


def _file(said: Any, prefix: str, folder: str) -> ListedFile:
    if not isinstance(said, dict):
        raise ValueError(f"files: expected an object with key and sha256, found {_shown(said)}")
    key, size = said.get("key"), said.get("size")
    if not isinstance(key, str) or not key:
        raise ValueError(f"files: expected the key as a string, found {_shown(key)}")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise ValueError(f"{_shown(key)}: expected size as a number of bytes, found {_shown(size)}")
    checksums = {name: said[name] for name in ALGORITHMS if said.get(name) is not None}
    if not checksums:
        raise ValueError(f"{_shown(key)}: no checksum; add sha256 (or md5)")
    for name, digest in checksums.items():
        if not isinstance(digest, str) or not re.fullmatch(f"[0-9a-fA-F]{{{ALGORITHMS[name]}}}", digest):
            raise ValueError(
                f"{_shown(key)}: expected {name} as {ALGORITHMS[name]} hexadecimal digits, found {_shown(digest)}"
            )
    path = key.removeprefix(folder)
    lowered = {name: digest.lower() for name, digest in checksums.items()}
    return ListedFile(path, lowered, size, _outside(path, prefix))


def _outside(path: str, prefix: str) -> str:
    """Return the reason why a path leads out of its folder; empty if it does not."""
    if path.startswith(prefix):
        return "it is in the folder of another delivery"
    if any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path:
        return "its path leads out of the folder of its delivery"
    return "its path contains control characters" if any(ord(c) < 32 or ord(c) == 127 for c in path) else ""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _shown(value: object) -> str:
    said = repr(value)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
