"""The files of a source's windows, as the landing sensor has observed them, and the rows that loads made of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterInstance

from dagster_tidemark.dagster_internals import event_storage
from dagster_tidemark.event_log.observations import CONTENT, time_in
from dagster_tidemark.incidents.arrivals import ArrivedFiles, ArrivedVersion
from dagster_tidemark.sources import removals
from dagster_tidemark.sources.feed import Partition
from dagster_tidemark.tags import ARRIVED_AT, OUTCOME

ROW_COUNT = "dagster/partition_row_count"
"""Metadata of a materialization: the number of rows of the partition."""


@dataclass
class ContentReader:
    """Reader of the files that the landing sensor observed. A partition is read again if its data version changes."""

    instance: DagsterInstance
    _known: dict[tuple[str, Partition], tuple[str, ArrivedFiles | None]] = field(default_factory=dict)
    _rows: dict[tuple[str, Partition], tuple[int, int | None]] = field(default_factory=dict)
    _versions: dict[tuple[str, Partition], tuple[str, Sequence[ArrivedVersion]]] = field(default_factory=dict)

    def __call__(self, source: str, versions: Mapping[Partition, str]) -> Mapping[Partition, ArrivedFiles]:
        new = {p for p, version in versions.items() if self._known.get((source, p), ("", None))[0] != version}
        if new:
            key = dg.AssetKey.from_user_string(source)
            found = event_storage.latest_observed(self.instance, key, {p for p in new if p is not None})
            for partition in new:
                seen = found.get(partition)
                self._known[source, partition] = (versions[partition], _content(seen) if seen is not None else None)
        contents = {p: self._known[source, p][1] for p in versions}
        return {p: content for p, content in contents.items() if content is not None}

    def rows(self, asset: str, builds: Mapping[Partition, int]) -> Mapping[Partition, int]:
        """Return the number of rows of a table's partitions, as their latest builds reported it.

        Args:
            builds: Storage id of the latest build of each partition. A partition is read again if it changes.
        """
        new = {p for p, build in builds.items() if self._rows.get((asset, p), (None, None))[0] != build}
        if new:
            named = {p for p in new if p is not None}
            key = dg.AssetKey.from_user_string(asset)
            found = event_storage.latest_metadata(self.instance, key, ROW_COUNT, named)
            for partition in new:
                count = found.get(partition)
                self._rows[asset, partition] = (builds[partition], count if isinstance(count, int) else None)
        counts = {p: self._rows[asset, p][1] for p in builds}
        return {p: count for p, count in counts.items() if count is not None}

    def versions(
        self, source: str, tables: Collection[str], versions: Mapping[Partition, str]
    ) -> Mapping[Partition, Sequence[ArrivedVersion]]:
        """Return all known versions of the files of some partitions, oldest first.

        Args:
            tables: The tables that load the source; empty if no rows are needed.
            versions: The present data version of each partition. A partition is read again if it changes.
        """
        new = {p for p, version in versions.items() if self._versions.get((source, p), ("", ()))[0] != version}
        named = {p for p in new if p is not None}
        if named:
            seen = event_storage.all_observed(self.instance, dg.AssetKey.from_user_string(source), named)
            loads: dict[Partition, list[tuple[float, int]]] = {}
            for table in tables:
                key = dg.AssetKey.from_user_string(table)
                for partition, found in event_storage.all_metadata(self.instance, key, ROW_COUNT, named).items():
                    loads.setdefault(partition, []).extend((at, n) for at, n in found if isinstance(n, int))
            for partition in named:
                history = _history(seen.get(partition, ()), loads.get(partition, ()))
                self._versions[source, partition] = (versions[partition], history)
        return {p: self._versions[source, p][1] for p in versions if p is not None}


def _history(
    seen: Sequence[tuple[float, dg.AssetObservation]], loads: Sequence[tuple[float, int]]
) -> list[ArrivedVersion]:
    """Return the versions in a partition's observations, each with the rows of the loads before the next one."""
    known = [(at, tagged, content) for at, tagged in seen if (content := _content(tagged)) is not None]
    ends = [*(at for at, _, _ in known[1:]), float("inf")]
    found = []
    for (at, tagged, content), until in zip(known, ends, strict=False):  # without versions there is one end too many
        rows = max((count for loaded_at, count in loads if at <= loaded_at < until), default=None)
        arrived = time_in(tagged.tags, ARRIVED_AT)
        found.append(ArrivedVersion(at if arrived is None else arrived, content, rows))
    return found


def _content(seen: dg.AssetObservation) -> ArrivedFiles | None:
    files, size, digest = (seen.metadata.get(name) for name in ("files", "bytes", CONTENT))
    if files is None or size is None or not isinstance(files.value, int) or not isinstance(size.value, int):
        return None  # a source of another kind
    is_gone = seen.tags.get(OUTCOME) in (removals.EXPIRED, removals.ACCEPTED)
    return ArrivedFiles(files.value, size.value, str(digest.value) if digest is not None else "", is_gone)
