"""Steps of a load, decided as plain data before any file is read.

A file version counts as loaded if the table has rows of it, or if ops/quarantine has an entry about the whole file.
Entries about single rows are not enough, because they are written before the table, and the process may have died in
between. Does not belong here: any query (`provenance`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from dagster_tidemark.lakehouse.readers.files import SourceFile
from dagster_tidemark.sources.feed import Feed, Partition
from dagster_tidemark.sources.partition_listing import is_data
from dagster_tidemark.sources.removals import RemovedFiles

Version = tuple[Partition, str, str]
"""Version of a file: its partition, key and version."""


class Where(StrEnum):
    """Place where a load has recorded a file version."""

    TABLE = "table"
    REJECTED_ROWS = "rejected rows"
    WHOLE_FILE = "whole file"


FEW_FILES = 50
"""If a partition has fewer unchanged files, reading them again is as fast as comparing new rows with their rows in the
table. In a partition with 250 files of 30 rows, reading one file takes 5 s, and all files 13 s (two busy cores)."""

AGAIN = ""
"""Code version of a record whose file must be read again: an operator sent it back, or it was unavailable."""


class KnownFile(NamedTuple):
    """Record of a file version in the table or the quarantine, with the code version that wrote it."""

    key: str
    version: str
    loaded_by: str
    where: Where


@dataclass(frozen=True)
class LoadStep:
    """Work of a load in one partition.

    Args:
        read: The files to read.
        replaces: True if the rows of these files replace all rows of the partition; False if they are added.
        outdated: File versions whose rows are removed although the partition is not replaced.
        corrects: True if only the changed files are read. This is correct only if the new versions have every key whose
            row they take away, because rows of other files may have lost to such a row.
        forgotten: Keys whose quarantine entries are removed.
        left: Keys whose quarantine entries stay.
    """

    read: tuple[SourceFile, ...]
    replaces: bool
    outdated: frozenset[tuple[str, str]] = frozenset()
    corrects: bool = False
    forgotten: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()


def held_keys(feed: Feed, known: Mapping[Partition, Collection[KnownFile]]) -> dict[Partition, set[str]]:
    """Return, for each partition, the keys of the known data files.

    A file with rows in the table always counts, even if it is not a data file of the feed as declared now: the feed's
    prefix or endings may have changed.
    """
    return {
        p: {k.key for k in files if k.where is Where.TABLE or is_data(feed, p, k.key)} for p, files in known.items()
    }


def steps(
    listed: Mapping[Partition, Sequence[SourceFile]],
    known: Mapping[Partition, Collection[KnownFile]],
    fates: Mapping[Partition, RemovedFiles],
    code_version: str,
    read_again: Collection[Partition] = (),
) -> dict[Partition, LoadStep]:
    """Return a step for each listed partition that needs work.

    If files were only added, the step reads the added files. If files have changed beside many others, it reads the
    changed files. If there are few others, a file has vanished, or a file was loaded by other code, it reads the whole
    partition again, unless the partition keeps rows of files that cannot be read.

    Args:
        read_again: Partitions that are read again, too, because a person asked for it.
    """
    found = {
        partition: _step(
            files,
            known.get(partition, ()),
            fates.get(partition, RemovedFiles()),
            code_version,
            asked=partition in read_again,
        )
        for partition, files in listed.items()
    }
    return {partition: step for partition, step in found.items() if step}


def _step(
    listed: Sequence[SourceFile],
    known: Collection[KnownFile],
    fate: RemovedFiles,
    code_version: str,
    *,
    asked: bool,
) -> LoadStep | None:
    versions = {f.key: f.version for f in listed}
    again = {(k.key, k.version) for k in known if k.loaded_by == AGAIN}
    complete = {(k.key, k.version) for k in known if k.where is not Where.REJECTED_ROWS} - again
    added = [f for f in listed if (f.key, f.version) not in complete]
    outdated = {(k.key, k.version) for k in known if versions.get(k.key, k.version) != k.version}
    # Add rows that an earlier load could not update, because the file was unavailable.
    outdated |= {(k.key, k.version) for k in known if k.where is Where.TABLE and (k.key, k.version) in again}
    by_other_code = any(k.loaded_by != code_version for k in known if versions.get(k.key) == k.version)
    filled = {k.key for k in known if k.where is Where.TABLE}
    is_most = len(listed) - len(added) < max(FEW_FILES, len(added))
    if fate.expired or fate.held or fate.withheld & filled:
        # If a file has changed, rows that the old version superseded may count again. So all listed files are read.
        outdated = {(k, v) for k, v in outdated if k in versions}
        outdated |= {(k.key, k.version) for k in known if k.key in fate.gone}
        read = listed if outdated else added
        step = LoadStep(tuple(read), replaces=False, outdated=frozenset(outdated)) if read or outdated else None
    elif fate.gone or by_other_code or (asked and (listed or known)) or (outdated and is_most):
        step = LoadStep(tuple(listed), replaces=True)
    elif outdated:
        step = LoadStep(tuple(added), replaces=False, outdated=frozenset(outdated), corrects=True)
    elif added:
        step = LoadStep(tuple(added), replaces=not filled)
    elif any(k.where is not Where.TABLE and k.key not in versions and k.key not in fate.kept for k in known):
        step = LoadStep((), replaces=False)  # a misplaced file is gone, so its entry must be removed
    else:
        step = None
    return step and _with_entries(step, versions, known, fate)


def _with_entries(
    step: LoadStep, versions: Mapping[str, str], known: Collection[KnownFile], fate: RemovedFiles
) -> LoadStep:
    read = {f.key for f in step.read}
    entered = {k.key for k in known if k.where is not Where.TABLE}
    left = {key for key in entered - read if key in versions or key in fate.kept}
    return replace(step, forgotten=frozenset(entered - left), left=frozenset(left))
