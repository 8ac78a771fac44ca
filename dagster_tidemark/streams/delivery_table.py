"""The table of deliveries, as the record of loaded deliveries and their manifests.

Belongs here: reading, without Spark. Does not belong here: writing (`lakehouse.loading.all_or_none`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.catalog import Catalog

from dagster_tidemark.lakehouse.append import Appendable, equal
from dagster_tidemark.lakehouse.table import Table


@dataclass(frozen=True)
class LoadedDelivery:
    """A loaded delivery, as the table's rows record it.

    Args:
        manifest: The digest of the loaded manifest.
        posted_at: The time when its message was sent.
        replaces: The digest of the manifest whose rows it replaced.
        rows: The number of rows of each file, by its key.
    """

    manifest: str
    posted_at: datetime
    replaces: str | None
    rows: Mapping[str, int]

    def is_later_than(self, posted_at: datetime, manifest: str) -> bool:
        """Return True if its message was sent after another one. At equal milliseconds the digest decides."""
        return (self.posted_at, self.manifest) > (posted_at, manifest)


class DeliveryTable:
    """The table as one run sees it. A missing table is created."""

    def __init__(self, lake: Catalog, table: Table) -> None:
        self._table = Appendable(lake, table)
        self._known: dict[str, LoadedDelivery | None] = {}

    @property
    def head(self) -> int | None:
        """The snapshot of the last read."""
        return self._table.head

    def look(self, delivery_id: str) -> LoadedDelivery | None:
        """Return the loaded delivery as of now; None if none is loaded."""
        if self._table.refresh():
            self._known.clear()
        if delivery_id not in self._known:
            self._known[delivery_id] = self._look(delivery_id)
        return self._known[delivery_id]

    def _look(self, delivery_id: str) -> LoadedDelivery | None:
        columns = ("manifest", "posted_at", "replaces", "source_file")
        counts = self._table.counts(equal("delivery_id", delivery_id), columns)
        # Loads replace whole partitions, so all rows agree. After a manual write the row with the newest message wins.
        newest = max(((at, manifest, by or "") for manifest, at, by, _ in counts), default=None)
        if newest is None:
            return None
        posted_at, manifest, replaces = newest
        rows = Counter[str]()
        for (_, _, _, key), count in counts.items():
            rows[key] += count
        return LoadedDelivery(manifest, posted_at, replaces or None, rows)
