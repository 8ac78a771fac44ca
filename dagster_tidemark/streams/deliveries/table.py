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
    """A loaded delivery, as recorded in the table's rows.

    Args:
        manifest: The digest of the loaded manifest.
        posted_at: The time when the delivery's message was sent.
        replaces: The digest of the earlier manifest whose rows were replaced.
        rows: The number of rows of each file, by the file's key.
    """

    manifest: str
    posted_at: datetime
    replaces: str | None
    rows: Mapping[str, int]

    def is_later_than(self, posted_at: datetime, manifest: str) -> bool:
        """Return True if its message was sent after the given one. If both times are equal, the digests decide."""
        return (self.posted_at, self.manifest) > (posted_at, manifest)


class DeliveryTable:
    """The table of deliveries, as last read by one run. Creates the table if it is missing."""

    def __init__(self, lake: Catalog, table: Table) -> None:
        self._table = Appendable(lake, table)
        self._known: dict[str, LoadedDelivery | None] = {}

    @property
    def head(self) -> int | None:
        """The snapshot of the last read."""
        return self._table.head

    def look(self, delivery_id: str) -> LoadedDelivery | None:
        """Read a loaded delivery from the current table; return None if the delivery is not loaded."""
        if self._table.refresh():
            self._known.clear()
        if delivery_id not in self._known:
            self._known[delivery_id] = self._look(delivery_id)
        return self._known[delivery_id]

    def _look(self, delivery_id: str) -> LoadedDelivery | None:
        columns = ("manifest", "posted_at", "replaces", "source_file")
        counts = self._table.counts(equal("delivery_id", delivery_id), columns)
        # Loads replace whole partitions, so all rows are of one message. After a manual write, the newest one counts.
        newest = max(((at, manifest, by or "") for manifest, at, by, _ in counts), default=None)
        if newest is None:
            return None
        posted_at, manifest, replaces = newest
        rows = Counter[str]()
        for (_, _, _, key), count in counts.items():
            rows[key] += count
        return LoadedDelivery(manifest, posted_at, replaces or None, rows)
