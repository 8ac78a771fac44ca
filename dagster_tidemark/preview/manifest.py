"""The record of each preview's progress: a file in the state folder, named after the preview.

The record is written before each step. If a process is killed, the branches can therefore still be dropped, and a
publish can be completed. Does not belong here: building and publishing (`preview.preview_runs`, `preview.publish`).
"""

import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_tidemark.errors import Terminal, Transient
from dagster_tidemark.lakehouse.table import BRANCH_DAYS
from dagster_tidemark.sources.feed import Partition

DEFAULT = "default"
"""The name of a preview if the user gives no name."""

_FOLDER = "previews"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_FORM = 2
_FORMS = (1, _FORM)
"""Versions of the record that can be read. Version 1, of release 0.1.0, lacks some fields, which have defaults."""
_ONLY = "preview.json"
"""File name in release 0.1.0, which had only one preview, without a name."""
_SECONDS_A_DAY = 86_400


class NoPreview(Terminal):
    """No preview of the given name is recorded, or the record cannot be read."""


class PreviewInUse(Transient):
    """Another process builds, publishes or drops the preview."""


@dataclass
class TablePreview:
    """A table's part of a preview.

    Args:
        base: The snapshot of the main branch where the preview's branch began; None if the table had no snapshot.
        head: The latest snapshot of the preview's branch.
        is_new: True if the preview created the table.
        is_loaded: True if the table is loaded from files.
        planned: Number of partitions that `plan` lists.
        partitions: Partitions built on the branch, in the order of `contents` and `reads`.
        contents: The content version of each partition.
        reads: For each partition, a digest of the content versions that it read from outside the preview.
        decided: The partitions to publish; None until the publish has chosen them.
        standing: Checks that failed on the branch, but no worse than at the table's last load.
        turned_away: For each reason of rejection, the numbers of quarantine entries before and after.
    """

    asset: str
    base: int | None = None
    head: int | None = None
    is_new: bool = False
    is_loaded: bool = False
    planned: int = 0
    partitions: list[Partition] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    decided: list[Partition] | None = None
    standing: list[str] = field(default_factory=list)
    turned_away: dict[str, list[int]] = field(default_factory=dict)

    @property
    def differs_in_quarantine(self) -> bool:
        """True if the preview changed the number of quarantine entries, for any reason of rejection."""
        return any(before != after for before, after in self.turned_away.values())

    @property
    def table(self) -> str:
        """The table's name."""
        return self.asset.replace("/", ".")

    def content(self) -> dict[Partition, str]:
        """Return the content version of each partition on the branch."""
        return dict(zip(self.partitions, self.contents, strict=True))

    def read(self) -> dict[Partition, str]:
        """Return the digest of each partition's inputs; see `reads`."""
        return dict(zip(self.partitions, self.reads, strict=True))


@dataclass
class RunPreview:
    """A run of the preview with its Dagster events, each serialized as text.

    Args:
        materializations: The materialization of each asset and partition.
        checks: The check evaluations.
    """

    assets: list[str]
    partitions: list[Partition]
    materializations: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)


@dataclass
class PreviewManifest:
    """The record of one preview.

    Args:
        code: Code version and fingerprint of each previewed asset.
        is_built: True if every part was built. Until then the preview can only be dropped.
        sensors_off: Records of the sensors that publishing stopped and has to restore (`running_sensors`).
        left_out: Assets that a deploy would run and the preview does not build, with the reason.
        quarantine_base: The snapshot of ops.quarantine where the preview's branch began; None if it had no snapshot.
        quarantine_head: The snapshot of that branch; None if the preview has loaded no files.
    """

    id: str
    created: float
    code: dict[str, str]
    tables: list[TablePreview] = field(default_factory=list)
    runs: list[RunPreview] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    sensors_off: list[dict[str, str]] = field(default_factory=list)
    is_built: bool = False
    quarantine_base: int | None = None
    quarantine_head: int | None = None
    form: int = _FORM

    @classmethod
    def begun(cls, code: Mapping[str, str], left_out: Mapping[str, str]) -> "PreviewManifest":
        """Return the record of a new preview without any built partitions."""
        return cls(uuid.uuid4().hex[:8], time.time(), dict(code), left_out=dict(left_out))

    @property
    def branch(self) -> str:
        """The name of the preview's branches."""
        return f"preview_{self.id}"

    @property
    def is_half_published(self) -> bool:
        """True if a publish has begun and not ended: tables may be published already, and a sensor may be stopped."""
        return bool(self.sensors_off) or any(own.decided is not None for own in self.tables)

    @property
    def is_too_old(self) -> bool:
        """True if the preview's branches may have expired by now."""
        return time.time() - self.created > BRANCH_DAYS * _SECONDS_A_DAY

    def fails_because_of_it(self, check: Any) -> bool:
        """Return True if a check evaluation is a failure caused by the previewed code."""
        if check.passed or check.severity is not dg.AssetCheckSeverity.ERROR:
            return False
        return check.check_name not in self.of(check.asset_key.to_user_string()).standing

    def of(self, asset: str) -> TablePreview:
        """Return the part of the preview for an asset."""
        return next(table for table in self.tables if table.asset == asset)


@dataclass(frozen=True)
class Store:
    """The file that records a preview."""

    folder: Path
    name: str = DEFAULT

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise NoPreview(f"invalid preview name {self.name!r}: use up to 40 letters, digits, `-` and `_`")

    @classmethod
    def names(cls, folder: Path) -> list[str]:
        """Return the names of the recorded previews, in order."""
        found = {path.stem for path in (folder / _FOLDER).glob("*.json") if _NAME.fullmatch(path.stem)}
        return sorted(found | ({DEFAULT} if (folder / _ONLY).exists() else set()))

    @property
    def path(self) -> Path:
        """The path of the file."""
        # Use the record of release 0.1.0 if there is one: the branches of that preview may exist, and a sensor be off.
        if self.name == DEFAULT and (only := self.folder / _ONLY).exists():
            return only
        return self.folder / _FOLDER / f"{self.name}.json"

    def write(self, manifest: PreviewManifest) -> None:
        """Write the record atomically."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(asdict(manifest), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def read(self) -> PreviewManifest | None:
        """Return the recorded preview; None if the file does not exist.

        Raises:
            NoPreview: the record cannot be read.
        """
        try:
            found: dict[str, Any] = json.loads(self.path.read_text())
            if found.pop("form", None) not in _FORMS:
                raise NoPreview(f"{self.path} was written by another version; drop its branches and delete the file")
            found["tables"] = [TablePreview(**table) for table in found["tables"]]
            found["runs"] = [RunPreview(**run) for run in found["runs"]]
            return PreviewManifest(**found)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise NoPreview(f"{self.path} contains no preview: {error}") from error

    def delete(self) -> None:
        """Delete the record."""
        self.path.unlink(missing_ok=True)

    def used_for(self, what: str) -> AbstractContextManager[None]:
        """Lock this preview for the duration of a block, so that no other process works on it.

        Args:
            what: Description of the work, for the error message of other processes.

        Raises:
            PreviewInUse: another process works on this preview.
        """
        return _locked(self._lock, what, f"preview {self.name}")

    def used_by(self) -> str:
        """Return a description of the process that works on this preview, with its id; "" if there is none."""
        try:
            with self._lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return _said_in(self._lock)
        except FileNotFoundError:
            pass
        return ""

    @property
    def _lock(self) -> Path:
        return self.folder / _FOLDER / f"{self.name}.lock"


def publishing(folder: Path, name: str) -> AbstractContextManager[None]:
    """Lock publishing for the duration of a block, because each publish stops a sensor and starts it again.

    Raises:
        PreviewInUse: another process publishes a preview.
    """
    return _locked(folder / _FOLDER / "publishing.lock", f"preview {name} is being published", "another preview")


@contextmanager
def _locked(path: Path, what: str, of: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PreviewInUse(f"{of} is in use: {_said_in(path)}; wait until it is done") from None
        file.truncate(0)
        file.write(f"{what} by process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}")
        file.flush()
        yield  # closing the file releases the lock, however this process ends


def _said_in(path: Path) -> str:
    return path.read_text().strip() or "by a process that has just started"


def state_of(store: Store, manifest: PreviewManifest) -> str:
    """Return a preview's state in words, with the possible commands."""
    if used := store.used_by():
        return used
    if manifest.is_half_published:
        return f"half published: `tidemark plan --publish {store.name}` completes it"
    if not manifest.is_built:
        return f"not completely built: preview again, or `tidemark plan --discard {store.name}`"
    if manifest.is_too_old:
        return f"expired: preview again, or `tidemark plan --discard {store.name}`"
    return f"ready: `tidemark plan --publish {store.name}`"


def half_published(folder: Path) -> list[str]:
    """Return a message for each preview whose publish has begun and not ended."""
    found = []
    for name in Store.names(folder):
        store = Store(folder, name)
        try:
            manifest = store.read()
        except NoPreview as error:
            found.append(str(error))
            continue
        if manifest is not None and manifest.is_half_published:
            found.append(f"preview {name} is {state_of(store, manifest).removeprefix('is ')}")
    return found
