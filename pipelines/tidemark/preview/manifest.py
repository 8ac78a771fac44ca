"""What a preview has done so far, kept in a file of the state folder: one preview a working tree.

It is written before anything is made, so that whatever a kill leaves behind can be dropped, and what was begun can be
ended. Belongs here: the record. Does not belong here: what is done with it (`preview.build`, `preview.publish`).
"""

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.lakehouse.branches import DAYS, PREFIX
from pipelines.tidemark.sources.feed import Partition

_NAME = "preview.json"
_FORM = 1
_SECONDS_A_DAY = 86_400


class NoPreview(Terminal):
    """There is none, or it cannot be read."""


@dataclass
class TablePreview:
    """A table's part.

    Args:
        base: The snapshot of main that the branch began from; None where there was none.
        head: The branch's snapshot.
        is_new: The preview made the table.
        partitions: What was built on the branch, in the order of `contents` and `reads`.
        contents: The content versions.
        reads: Of each partition a digest of the content versions of what it read outside of the preview.
        decided: The partitions that are published; None before that is decided.
    """

    asset: str
    base: int | None = None
    head: int | None = None
    is_new: bool = False
    partitions: list[Partition] = field(default_factory=list)
    contents: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    decided: list[Partition] | None = None

    @property
    def table(self) -> str:
        """The table's name."""
        return self.asset.replace("/", ".")

    def content(self) -> dict[Partition, str]:
        """From a partition to its content version on the branch."""
        return dict(zip(self.partitions, self.contents, strict=True))

    def read(self) -> dict[Partition, str]:
        """From a partition to the digest of what it read."""
        return dict(zip(self.partitions, self.reads, strict=True))


@dataclass
class RunPreview:
    """A run of the preview: what Dagster's events said of it, as text.

    Args:
        materializations: Of each asset and partition the event.
        checks: The check evaluations.
    """

    assets: list[str]
    partitions: list[Partition]
    materializations: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)


@dataclass
class Manifest:
    """A preview.

    Args:
        code: Of each previewed asset its code version and fingerprint.
        is_built: Whether all of it was built. Until then it can only be dropped.
        sensors_off: Sensors that publishing switched off, as selectors, to be switched on again.
        left_out: Assets that would run and are not in it, with the reason.
    """

    id: str
    created: float
    code: dict[str, str]
    tables: list[TablePreview] = field(default_factory=list)
    runs: list[RunPreview] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    sensors_off: list[dict[str, str]] = field(default_factory=list)
    is_built: bool = False
    form: int = _FORM

    @classmethod
    def begun(cls, code: Mapping[str, str], left_out: Mapping[str, str]) -> "Manifest":
        """A preview that has built nothing yet."""
        return cls(uuid.uuid4().hex[:8], time.time(), dict(code), left_out=dict(left_out))

    @property
    def branch(self) -> str:
        """The name of its branches."""
        return f"{PREFIX}{self.id}"

    @property
    def is_too_old(self) -> bool:
        """Whether its branches may have expired by now."""
        return time.time() - self.created > DAYS * _SECONDS_A_DAY

    def of(self, asset: str) -> TablePreview:
        """An asset's part."""
        return next(table for table in self.tables if table.asset == asset)


@dataclass(frozen=True)
class Store:
    """Where a working tree's preview is recorded."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / _NAME

    def write(self, manifest: Manifest) -> None:
        """Keep it, all at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(asdict(manifest), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def read(self) -> Manifest | None:
        """What is recorded; None where nothing is.

        Raises:
            NoPreview: it cannot be read.
        """
        try:
            found: dict[str, Any] = json.loads(self.path.read_text())
            if found.get("form") != _FORM:
                raise NoPreview(f"{self.path} is of another version of this code; drop its branches and delete it")
            found["tables"] = [TablePreview(**table) for table in found["tables"]]
            found["runs"] = [RunPreview(**run) for run in found["runs"]]
            return Manifest(**found)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise NoPreview(f"{self.path} holds no preview: {error}") from error

    def delete(self) -> None:
        """Forget it."""
        self.path.unlink(missing_ok=True)
