"""Records and branches of expired previews, and their deletion. It needs no Spark.

An expired preview can no longer be published. Until its branches are dropped, they keep files of their tables. Belongs
here: previews whose record is in the state folder. Does not belong here: a branch without a record, which the
maintenance of tables expires, and `tidemark plan --discard` (`preview.preview_runs.discard`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.lakehouse.table import BRANCH_DAYS
from dagster_tidemark.preview.manifest import NoPreview, PreviewInUse, PreviewManifest, Store

_SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True)
class ExpiredPreviews:
    """Previews to drop, and the reasons why other records stay."""

    stores: tuple[Store, ...]
    kept: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(store.path.stat().st_size for store in self.stores if store.path.exists())


def find(folder: Path, before: float) -> ExpiredPreviews:
    """Return the recorded previews that expired before a time.

    A half published preview stays: only its completion starts the stopped sensor again.

    Args:
        folder: The state folder.
        before: Unix seconds.
    """
    stores, kept = list[Store](), list[str]()
    for name in Store.names(folder):
        store = Store(folder, name)
        try:
            manifest = store.read()
        except NoPreview as error:
            kept.append(str(error))
            continue
        if manifest is None or not _is_expired(manifest, before):
            continue
        if manifest.is_half_published:
            kept.append(f"preview {name} is half published: `tidemark plan --publish {name}` completes it")
        else:
            stores.append(store)
    return ExpiredPreviews(tuple(stores), tuple(kept))


def drop(lake: Catalog | None, found: ExpiredPreviews, before: float) -> tuple[int, tuple[str, ...]]:
    """Drop the branches of expired previews, then delete their records.

    Args:
        lake: The catalog; None if it has no table.

    Returns:
        The number of dropped previews, and a line for each preview that is in use by now.
    """
    dropped, in_use = 0, list[str]()
    for store in found.stores:
        try:
            with store.used_for("being dropped, because it expired"):
                manifest = store.read()
                if manifest is None or manifest.is_half_published or not _is_expired(manifest, before):
                    continue  # another process has dropped it, or previewed again
                if lake is not None:
                    for table in _tables(manifest):
                        _drop_branch(lake, table, manifest.branch)
                store.delete()
                dropped += 1
        except PreviewInUse as error:
            in_use.append(str(error))
    return dropped, tuple(in_use)


def _is_expired(manifest: PreviewManifest, before: float) -> bool:
    return manifest.is_too_old and manifest.created + BRANCH_DAYS * _SECONDS_A_DAY < before


def _tables(manifest: PreviewManifest) -> Iterator[str]:
    yield from (own.table for own in manifest.tables)
    yield QUARANTINE.name


def _drop_branch(lake: Catalog, table: str, branch: str) -> None:
    try:
        found = lake.load_table(table)
    except NoSuchTableError:
        return
    if branch in found.refs():
        found.manage_snapshots().remove_branch(branch).commit()
