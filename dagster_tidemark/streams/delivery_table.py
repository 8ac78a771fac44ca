"""The table of deliveries: what stands there of one, of which manifest. Its rows are the truth about what was loaded.

Belongs here: looking, without Spark. Does not belong here: writing (`lakehouse.loading.all_or_none`).
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
class Standing:
    """What the table holds of a delivery.

    Args:
        manifest: The digest of the manifest that was loaded.
        posted_at: When the message with it was sent.
        replaces: The digest of the manifest whose rows it took the place of.
        rows: For each file, by its key, how many of its rows there are.
    """

    manifest: str
    posted_at: datetime
    replaces: str | None
    rows: Mapping[str, int]

    def is_later_than(self, posted_at: datetime, manifest: str) -> bool:
        """Whether its message was sent after another one; of two in one millisecond the digest decides."""
        return (self.posted_at, self.manifest) > (posted_at, manifest)


class DeliveryTable:
    """The table, as one run sees it. Made if it is not there."""

    def __init__(self, lake: Catalog, table: Table) -> None:
        self._table = Appendable(lake, table)
        self._known: dict[str, Standing | None] = {}

    @property
    def head(self) -> int | None:
        """The snapshot that was looked at last."""
        return self._table.head

    def look(self, delivery_id: str) -> Standing | None:
        """What stands there now; None if nothing does."""
        if self._table.refresh():
            self._known.clear()
        if delivery_id not in self._known:
            self._known[delivery_id] = self._look(delivery_id)
        return self._known[delivery_id]

    def _look(self, delivery_id: str) -> Standing | None:
        columns = ("manifest", "posted_at", "replaces", "source_file")
        counts = self._table.counts(equal("delivery_id", delivery_id), columns)
        # A partition is replaced as a whole; a person who wrote into it by hand is not listened to.
        newest = max(((at, manifest, by or "") for manifest, at, by, _ in counts), default=None)
        if newest is None:
            return None
        posted_at, manifest, replaces = newest
        rows = Counter[str]()
        for (_, _, _, key), count in counts.items():
            rows[key] += count
        return Standing(manifest, posted_at, replaces or None, rows)
