"""The check of a delivery's files against its manifest: existence, size and checksum.

Belongs here: the listing of the folder, and the reading of files for their checksums. Does not belong here: the format
of a manifest (`sources.manifests`), and the response to findings (`verdict`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dagster_tidemark.lakehouse.loading.load_state import source_file
from dagster_tidemark.lakehouse.loading.spec import Landing
from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.feed import Feed
from dagster_tidemark.sources.listing import LandedObject, ObjectChanged, ObjectUnavailable
from dagster_tidemark.sources.manifests import DeliveryManifest, ListedFile

_AT_ONCE = 8
_PART = 8 << 20  # bytes in memory for each file that is read
_REMEMBERED = 10_000


class FileFinding(StrEnum):
    """Result of the check of a listed file: a stable code."""

    AS_LISTED = "as_listed"
    OUTSIDE = "outside"
    NO_DATA = "no_data"
    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    WRONG_CHECKSUM = "wrong_checksum"
    CHANGING = "changing"
    NOT_GIVEN = "not_given"


_WAITED_FOR = (FileFinding.MISSING, FileFinding.CHANGING, FileFinding.NOT_GIVEN)


@dataclass(frozen=True)
class CheckedFile:
    """A file of a manifest, with the result of its check.

    Args:
        listed: The manifest's entry.
        finding: The result.
        message: The fault as text; empty if there is none.
        file: The file in the bucket; None if it is missing or was not looked up.
    """

    listed: ListedFile
    finding: FileFinding
    message: str = ""
    file: SourceFile | None = None

    @property
    def is_waited_for(self) -> bool:
        """True if the file may become correct without another message."""
        return self.finding in _WAITED_FOR

    @property
    def is_wrong(self) -> bool:
        """True if only the partner can correct the file."""
        return self.finding is not FileFinding.AS_LISTED and not self.is_waited_for


@dataclass(frozen=True)
class Checked:
    """A delivery's files, in the order of the manifest, and the names of unlisted files in its folder."""

    files: tuple[CheckedFile, ...]
    unlisted: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """True if the partner must correct any file."""
        return any(each.is_wrong for each in self.files)

    @property
    def is_incomplete(self) -> bool:
        """True if any file may still arrive or become readable."""
        return any(each.is_waited_for for each in self.files)


@dataclass
class Checker:
    """Checks the files of deliveries. Each version of a file is read only once for its checksums.

    Args:
        landing: The bucket of the files.
        like: The feed that declares their format.
    """

    landing: Landing
    like: Feed
    _digests: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)

    def look(self, manifest: DeliveryManifest) -> Checked:
        """List the folder, and check existence and size of each file.

        Raises:
            BucketUnavailable: the bucket does not answer.
        """
        there = {landed.key: landed for landed in self.landing.list(manifest.folder).objects}
        files = tuple(self._looked_at(manifest, listed, there) for listed in manifest.files)
        keys = {manifest.key_of(listed) for listed in manifest.files}
        unlisted = (key.removeprefix(manifest.folder) for key in there if key not in keys and not key.endswith("/"))
        return Checked(files, tuple(sorted(unlisted)))

    def verify(self, checked: Checked) -> Checked:
        """Check the checksums of the files that have no fault so far.

        Raises:
            BucketUnavailable: the bucket does not answer.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return replace(checked, files=tuple(pool.map(self._verified, checked.files)))

    def with_fault(self, checked: Checked, error: ObjectChanged | ObjectUnavailable) -> Checked:
        """Return the files, with a finding for the file that has changed or become unreadable since the listing."""
        files = (
            self._faulty(each, error) if each.file and each.file.key == error.key else each for each in checked.files
        )
        return replace(checked, files=tuple(files))

    def _faulty(self, checked: CheckedFile, error: ObjectChanged | ObjectUnavailable) -> CheckedFile:
        if isinstance(error, ObjectUnavailable):
            said = f"it exists but cannot be read: {error.reason}"
            return replace(checked, finding=FileFinding.NOT_GIVEN, message=said)
        self._changed.add(error.key)
        return replace(checked, finding=FileFinding.CHANGING, message="it was overwritten while it was read")

    def _changed_meanwhile(self, file: SourceFile) -> str:
        return "; it was overwritten while it was read" if file.key in self._changed else ""

    def _looked_at(
        self, manifest: DeliveryManifest, listed: ListedFile, there: Mapping[str, LandedObject]
    ) -> CheckedFile:
        if listed.outside:
            return CheckedFile(listed, FileFinding.OUTSIDE, listed.outside)
        if any(part[0] in "._" for part in listed.path.split("/")) or not self.like.is_named_like_data(listed.path):
            endings = ", ".join(self.like.endings)
            return CheckedFile(
                listed,
                FileFinding.NO_DATA,
                f"expected a file name that does not begin with . or _, and ends with one of {endings}",
            )
        landed = there.get(manifest.key_of(listed))
        if landed is None:
            return CheckedFile(listed, FileFinding.MISSING, "it is missing")
        file = source_file(landed, manifest.delivery_id)
        if listed.size is not None and listed.size != landed.size:
            said = f"it has {landed.size} bytes, the manifest says {listed.size}"
            return CheckedFile(listed, FileFinding.WRONG_SIZE, said + self._changed_meanwhile(file), file)
        return CheckedFile(listed, FileFinding.AS_LISTED, file=file)

    def _verified(self, checked: CheckedFile) -> CheckedFile:
        listed, file = checked.listed, checked.file
        if checked.finding is not FileFinding.AS_LISTED or file is None:
            return checked
        try:
            found = self._digests_of(file, listed.checksums)
        except (ObjectChanged, ObjectUnavailable) as error:
            return self._faulty(checked, error)
        for algorithm, digest in listed.checksums.items():
            if found[algorithm] != digest:
                said = f"its {algorithm} is {found[algorithm]}, the manifest says {digest}"
                return replace(
                    checked, finding=FileFinding.WRONG_CHECKSUM, message=said + self._changed_meanwhile(file)
                )
        return checked

    def _digests_of(self, file: SourceFile, algorithms: Collection[str]) -> Mapping[str, str]:
        """Return the checksums of this version of a file, computed from the bytes in the bucket."""
        found = {name: digest for name in algorithms if (digest := self._digests.get((file.key, file.version, name)))}
        hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms if name not in found}
        for begin in range(0, file.size if hashes else 0, _PART):
            part = self.landing.part(file, begin, min(_PART, file.size - begin))
            for each in hashes.values():
                each.update(part)
        new = {name: each.hexdigest() for name, each in hashes.items()}
        if len(self._digests) > _REMEMBERED:
            self._digests.clear()
        self._digests |= {(file.key, file.version, name): digest for name, digest in new.items()}
        return found | new
