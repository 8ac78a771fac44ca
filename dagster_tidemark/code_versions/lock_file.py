"""Reads, writes and compares the lock file: each asset's code version, and the hash of the code at that version.

Belongs here: comparing the lock file with the present code, and messages about differences. Does not belong here:
computing the hashes (`fingerprint`).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dagster_tidemark.code_versions.fingerprint import Fingerprint
from dagster_tidemark.code_versions.normal_form import FORMAT
from dagster_tidemark.errors import Terminal

NAME = "code-versions.lock"
_FORMAT = "format"
_UPDATE = "run `tidemark lock update`"
_NAMED = 4  # maximum number of definitions named in one message


class LockFileUnreadable(Terminal):
    """The lock file cannot be parsed. The message names the error and the remedy."""


@dataclass(frozen=True)
class Asset:
    """Code version of an asset, and the fingerprint of its code."""

    code_version: str | None
    fingerprint: Fingerprint

    @property
    def is_versioned_by_code(self) -> bool:
        """True if the asset's version is the fingerprint of its code, so that it never needs a manual update."""
        return self.code_version == self.fingerprint.digest


class Difference(StrEnum):
    """Kind of difference between the code and the lock file."""

    FORGOTTEN = "forgotten"  # the code changed, the version did not
    RAISED = "raised"  # the version changed
    NEW = "new"
    GONE = "gone"
    OUTDATED = "outdated"  # the lock file has hashes of another format, which cannot be compared


@dataclass(frozen=True)
class LockFinding:
    """A difference between the code of one asset and the lock file.

    Args:
        message: Description of the difference, with the command that resolves it.
        definitions: Labels of the changed definitions.
    """

    asset: str
    difference: Difference
    message: str
    definitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    """Content of a lock file.

    Args:
        format: Version of the normal form behind the hashes. Hashes of different versions cannot be compared.
    """

    assets: Mapping[str, Asset] = field(default_factory=dict)
    format: int = FORMAT


def read(path: Path) -> Lock:
    """Read the lock file. Return an empty lock if the file does not exist.

    Raises:
        LockFileUnreadable: the file was not written by `write`.
    """
    try:
        held = json.loads(path.read_text())
        said = {name: entry for name, entry in held.items() if name != _FORMAT}
        return Lock({name: _asset(entry) for name, entry in said.items()}, int(held[_FORMAT]))
    except FileNotFoundError:
        return Lock()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "resolve the merge conflict, or delete the file, and run `tidemark lock update`"
        raise LockFileUnreadable(f"{path.name}: {type(error).__name__}: {error}; {remedy}") from error


def write(path: Path, lock: Lock) -> None:
    """Write a lock file with one line per asset, in the order of keys."""
    entries = [f"{json.dumps(_FORMAT)}: {lock.format}"]
    entries += [f"{json.dumps(name)}: {json.dumps(_entry(asset))}" for name, asset in sorted(lock.assets.items())]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")


def _asset(entry: Mapping[str, object]) -> Asset:
    version, definitions = entry["code_version"], entry["definitions"]
    if not isinstance(definitions, dict) or not isinstance(version, str | None):
        raise TypeError("expected code_version, fingerprint and definitions in each entry")
    return Asset(version, Fingerprint(str(entry["fingerprint"]), definitions))


def _entry(asset: Asset) -> dict[str, object]:
    return {
        "code_version": asset.code_version,
        "fingerprint": asset.fingerprint.digest,
        "definitions": dict(sorted(asset.fingerprint.definitions.items())),
    }


def differences(lock: Lock, assets: Mapping[str, Asset]) -> list[LockFinding]:
    """Return the findings of `tidemark lock check`, in the order of keys; empty if the lock file is up to date."""
    locked = {name: asset for name, asset in assets.items() if not asset.is_versioned_by_code}
    found = []
    for name in sorted(lock.assets.keys() | locked.keys()):
        before, now = lock.assets.get(name), locked.get(name)
        finding = _difference(name, before, now, name in assets)
        if finding and finding.difference is Difference.FORGOTTEN and lock.format != FORMAT:
            message = f"{name}: {NAME} was written by another version of Tidemark; {_UPDATE}"
            finding = LockFinding(name, Difference.OUTDATED, message)
        found += [finding] if finding else []
    return found


def unversioned(lock: Lock, assets: Mapping[str, Asset], changed: Collection[str] = ()) -> list[LockFinding]:
    """Return the findings about assets whose code changed under the same version.

    Args:
        changed: Assets whose code differs from the deployed code, which has the same version. The lock file decides
            about the assets that it has, because their change may be recorded as harmless.
    """
    found = []
    for finding in differences(lock, assets):
        if finding.difference is Difference.NEW and finding.asset in changed:
            still = _still(assets[finding.asset], f"{_UPDATE} if the change is harmless")
            message = f"{finding.asset}: its code differs from the deployed code and {still}"
            finding = LockFinding(finding.asset, Difference.FORGOTTEN, message)
        found += [finding] if finding.difference is Difference.FORGOTTEN else []
    return found


def undecided(assets: Mapping[str, Asset]) -> list[str]:
    """Return a line for each place in the code that reads a file outside of the project, or with an unknown path."""
    where: dict[str, list[str]] = {}
    for name, asset in assets.items():
        for line in asset.fingerprint.undecided:
            where.setdefault(line, []).append(name)
    why = "reads a file whose path cannot be determined, so changes of the file are not detected"
    return [f"{line}: {why} ({', '.join(names)})" for line, names in where.items()]


def _difference(name: str, before: Asset | None, now: Asset | None, is_there: bool) -> LockFinding | None:
    if now is None:
        why = "is versioned by its code now" if is_there else "no longer exists"
        return LockFinding(name, Difference.GONE, f"{name}: {why}, but is still in {NAME}; {_UPDATE}")
    if before is None:
        return LockFinding(name, Difference.NEW, f"{name}: is not in {NAME}; {_UPDATE}")
    if before.code_version != now.code_version:
        raised = f"code_version is {_said(now)}, but {_said(before)} in {NAME}"
        return LockFinding(name, Difference.RAISED, f"{name}: {raised}; {_UPDATE}")
    if before.fingerprint.digest == now.fingerprint.digest:
        return None
    changed = changed_definitions(before.fingerprint.definitions, now.fingerprint.definitions)
    still = _still(now, f"run `tidemark lock mark-current {name}` if the change is harmless")
    more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    named = ", ".join(changed[:_NAMED]) or "code that it refers to"
    return LockFinding(name, Difference.FORGOTTEN, f"{name}: {named}{more} changed and {still}", tuple(changed))


def _still(asset: Asset, remedy: str) -> str:
    if asset.code_version is None:
        return f"the asset has no code_version, so nothing is rebuilt; give it one, or {remedy}"
    return f'code_version is still "{asset.code_version}"; raise it, or {remedy}'


def _said(asset: Asset) -> str:
    return "none" if asset.code_version is None else f'"{asset.code_version}"'


def changed_definitions(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the labels of changed definitions. Definitions that only moved to another module do not count.

    If no definition changed, return the added definitions, or else the removed definitions.
    """
    hashes = set(before.values())
    changed = {label for label, of in now.items() if label in before and before[label] != of}
    came = {label for label, of in now.items() if label not in before and of not in hashes}
    gone = {label for label, of in before.items() if label not in now and of not in set(now.values())}
    moved = {label for label in came if _name(label) in {_name(other) for other in gone}}  # moved and also changed
    return sorted(changed | moved) or sorted(came) or sorted(gone)


def _name(label: str) -> str:
    return label.rpartition(": ")[2]


def updated(lock: Lock, assets: Mapping[str, Asset]) -> tuple[Lock, list[LockFinding]]:
    """Return the lock after recording raised versions and new assets, and removing deleted assets.

    Returns:
        The new lock, and the findings about code that changed without a new version. Entries of such assets are kept.
    """
    findings = differences(lock, assets)
    forgotten = [finding for finding in findings if finding.difference is Difference.FORGOTTEN]
    keep = {finding.asset for finding in forgotten}
    return _taken(lock, assets, [name for name in assets if name not in keep]), forgotten


def marked(lock: Lock, assets: Mapping[str, Asset], names: Collection[str]) -> Lock:
    """Return the lock after recording each asset's present code under its present version."""
    return Lock({**lock.assets, **{n: a for n, a in assets.items() if n in names}}, lock.format)


def _taken(lock: Lock, assets: Mapping[str, Asset], names: Collection[str]) -> Lock:
    found = {n: a if n in names else lock.assets[n] for n, a in assets.items() if not a.is_versioned_by_code}
    return Lock(found)
