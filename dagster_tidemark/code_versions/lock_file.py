"""The lock file: of each asset the code version, and a hash of the code that it was given for.

Belongs here: comparing what is recorded with what there is, in words. Does not belong here: the hashes (`fingerprint`).
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
_NAMED = 4  # definitions that a line names


class LockFileUnreadable(Terminal):
    """The lock file is no lock file. The message says where, and how to write it anew."""


@dataclass(frozen=True)
class Asset:
    """The code of an asset, and the version that it goes by."""

    code_version: str | None
    fingerprint: Fingerprint

    @property
    def is_versioned_by_code(self) -> bool:
        """Whether its version is its fingerprint, so that nobody can forget to raise it."""
        return self.code_version == self.fingerprint.digest


class Difference(StrEnum):
    """How the code differs from the lock file."""

    FORGOTTEN = "forgotten"  # the code changed, the version did not
    RAISED = "raised"  # the version changed
    NEW = "new"
    GONE = "gone"
    OUTDATED = "outdated"  # hashed in another way, so nobody can tell


@dataclass(frozen=True)
class Finding:
    """A difference, of one asset.

    Args:
        message: What differs, and the command that settles it.
        definitions: The labels of what changed.
    """

    asset: str
    difference: Difference
    message: str
    definitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    """What a lock file says.

    Args:
        format: The normal form it was written with; another one makes every hash another.
    """

    assets: Mapping[str, Asset] = field(default_factory=dict)
    format: int = FORMAT


def read(path: Path) -> Lock:
    """The lock file; an empty lock where there is none.

    Raises:
        LockFileUnreadable: it is not what `write` writes.
    """
    try:
        held = json.loads(path.read_text())
        said = {name: entry for name, entry in held.items() if name != _FORMAT}
        return Lock({name: _asset(entry) for name, entry in said.items()}, int(held[_FORMAT]))
    except FileNotFoundError:
        return Lock()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "take one side of a merge, or delete it, and run `tidemark lock update`"
        raise LockFileUnreadable(f"{path.name}: {type(error).__name__}: {error}; {remedy}") from error


def write(path: Path, lock: Lock) -> None:
    """One line for each asset, in the order of keys."""
    entries = [f"{json.dumps(_FORMAT)}: {lock.format}"]
    entries += [f"{json.dumps(name)}: {json.dumps(_entry(asset))}" for name, asset in sorted(lock.assets.items())]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")


def _asset(entry: Mapping[str, object]) -> Asset:
    version, definitions = entry["code_version"], entry["definitions"]
    if not isinstance(definitions, dict) or not isinstance(version, str | None):
        raise TypeError("an entry has code_version, fingerprint and definitions")
    return Asset(version, Fingerprint(str(entry["fingerprint"]), definitions))


def _entry(asset: Asset) -> dict[str, object]:
    return {
        "code_version": asset.code_version,
        "fingerprint": asset.fingerprint.digest,
        "definitions": dict(sorted(asset.fingerprint.definitions.items())),
    }


def differences(lock: Lock, assets: Mapping[str, Asset]) -> list[Finding]:
    """What `tidemark lock check` has to say, in the order of keys; nothing where all is recorded."""
    locked = {name: asset for name, asset in assets.items() if not asset.is_versioned_by_code}
    found = []
    for name in sorted(lock.assets.keys() | locked.keys()):
        before, now = lock.assets.get(name), locked.get(name)
        finding = _difference(name, before, now, name in assets)
        if finding and finding.difference is Difference.FORGOTTEN and lock.format != FORMAT:
            message = f"{name}: {NAME} was written by another version of Tidemark; {_UPDATE}"
            finding = Finding(name, Difference.OUTDATED, message)
        found += [finding] if finding else []
    return found


def undecided(assets: Mapping[str, Asset]) -> list[str]:
    """List places where code reads a file whose path is only known at run time, or is outside of the project."""
    where: dict[str, list[str]] = {}
    for name, asset in assets.items():
        for line in asset.fingerprint.undecided:
            where.setdefault(line, []).append(name)
    why = "reads a file whose path cannot be worked out, so its changes are not seen"
    return [f"{line}: {why} ({', '.join(names)})" for line, names in where.items()]


def _difference(name: str, before: Asset | None, now: Asset | None, is_there: bool) -> Finding | None:
    if now is None:
        why = "goes by its code now" if is_there else "is gone"
        return Finding(name, Difference.GONE, f"{name}: {why} and still in {NAME}; {_UPDATE}")
    if before is None:
        return Finding(name, Difference.NEW, f"{name}: is not in {NAME}; {_UPDATE}")
    if before.code_version != now.code_version:
        raised = f"code_version is {_said(now)}, and {_said(before)} in {NAME}"
        return Finding(name, Difference.RAISED, f"{name}: {raised}; {_UPDATE}")
    if before.fingerprint.digest == now.fingerprint.digest:
        return None
    changed = changed_definitions(before.fingerprint.definitions, now.fingerprint.definitions)
    remedy = f"run `tidemark lock mark-current {name}` where the change is harmless"
    still = (
        f'code_version is still "{now.code_version}"; raise it, or {remedy}'
        if now.code_version is not None
        else f"the asset has no code_version, so nothing is rebuilt; give it one, or {remedy}"
    )
    more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    named = ", ".join(changed[:_NAMED]) or "what it refers to"
    return Finding(name, Difference.FORGOTTEN, f"{name}: {named}{more} changed and {still}", tuple(changed))


def _said(asset: Asset) -> str:
    return "none" if asset.code_version is None else f'"{asset.code_version}"'


def changed_definitions(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The labels of what changed; of what was only moved none. Where nothing changed, what came or went."""
    hashes = set(before.values())
    changed = {label for label, of in now.items() if label in before and before[label] != of}
    came = {label for label, of in now.items() if label not in before and of not in hashes}
    gone = {label for label, of in before.items() if label not in now and of not in set(now.values())}
    moved = {label for label in came if _name(label) in {_name(other) for other in gone}}  # and changed
    return sorted(changed | moved) or sorted(came) or sorted(gone)


def _name(label: str) -> str:
    return label.rpartition(": ")[2]


def updated(lock: Lock, assets: Mapping[str, Asset]) -> tuple[Lock, list[Finding]]:
    """The lock with every version that was raised, asset that is new, and without those that are gone.

    Returns:
        The new lock, and what it leaves as it was: code that changed under the same version.
    """
    findings = differences(lock, assets)
    forgotten = [finding for finding in findings if finding.difference is Difference.FORGOTTEN]
    keep = {finding.asset for finding in forgotten}
    return _taken(lock, assets, [name for name in assets if name not in keep]), forgotten


def marked(lock: Lock, assets: Mapping[str, Asset], names: Collection[str]) -> Lock:
    """The lock in which the code of these assets, as it is, goes by the version they have."""
    return Lock({**lock.assets, **{n: a for n, a in assets.items() if n in names}}, lock.format)


def _taken(lock: Lock, assets: Mapping[str, Asset], names: Collection[str]) -> Lock:
    found = {n: a if n in names else lock.assets[n] for n, a in assets.items() if not a.is_versioned_by_code}
    return Lock(found)
