"""Quarantine entries (`ops/quarantine`) for rejected messages and for lost messages, written without Spark.

The table also holds entries for files. In an entry for a message, `source_file` is the source, `source_version`
the id of the topic or the message, and `row_number` the offset. Does not belong here: the reasons to refuse a message
(`decode`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And

from dagster_tidemark.event_log.observations import LOST
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, equal, one_of, rows_of
from dagster_tidemark.lakehouse.commits import until_committed
from dagster_tidemark.lakehouse.loading.quarantine_table import QUARANTINE
from dagster_tidemark.streams.decode import Fault

_MANY = 200
_SAME = ("source_file", "source_version", "row_number", "reason")


def enter(lake: Catalog, asset: str, faults: Sequence[Fault], lost: Sequence[tuple[str, str]], by: str) -> int:
    """Add entries for faults and lost messages, each once. Return the number of new entries.

    Args:
        asset: The asset whose table lacks the messages.
        lost: Pairs of a source, and a sentence about the messages that this source has lost.
        by: The version of the code that read the messages.
    """
    return enter_all(lake, asset, [*map(_of_fault, faults), *(_of_loss(source, said) for source, said in lost)], by)


def enter_all(lake: Catalog, asset: str, wanted: Sequence[Mapping[str, Any]], by: str) -> int:
    """Add entries, each once. Return the number of new entries.

    Args:
        wanted: The entries, without the columns that this function fills in.
    """
    if not wanted:
        return 0
    table, now = Appendable(lake, QUARANTINE), datetime.now(UTC)

    def _entered() -> int:
        versions = sorted({str(entry["source_version"]) for entry in wanted})
        # With more than 200 ids all entries of the asset are read: this is faster than a filter with many ids.
        of_asset = equal("asset", asset)
        of_these = of_asset if len(versions) > _MANY else And(of_asset, one_of("source_version", versions))
        there = {tuple(row[c] for c in _SAME) for row in table.rows(of_these, _SAME).to_pylist()}
        new = [entry for entry in wanted if tuple(entry[c] for c in _SAME) not in there]
        if not new:
            return 0
        rows = [{**entry, "asset": asset, "loaded_by": by, "quarantined_at": now} for entry in new]
        table.commit(TableCommit(rows_of(table.schema, rows)))
        return len(new)

    return until_committed(_entered, QUARANTINE.name, look_again=table.refresh)


def counted(lake: Catalog, asset: str) -> dict[str, int]:
    """Return the number of an asset's entries by reason."""
    rows = Appendable(lake, QUARANTINE).rows(equal("asset", asset), ("reason",))
    return dict(sorted(Counter(rows["reason"].to_pylist()).items()))


def message_ids(lake: Catalog, asset: str, reason: str) -> list[str]:
    """Return the ids of an asset's messages that are in the quarantine for a reason."""
    columns = ("source_file", "source_version", "row_number")
    rows = Appendable(lake, QUARANTINE).rows(And(equal("asset", asset), equal("reason", reason)), columns)
    return sorted(
        row["source_version"]
        if row["row_number"] is None
        else f"{row['source_version']}/{row['source_file'].rpartition('/')[2]}/{row['row_number']:020d}"
        for row in rows.to_pylist()
    )


def forget(lake: Catalog, asset: str, partition: str) -> int:
    """Delete the entries about a partition that is correct now. Return the number of deleted entries."""
    table, about = Appendable(lake, QUARANTINE), And(equal("asset", asset), equal("partition", partition))

    def _forgotten() -> int:
        there: int = table.rows(about, ("asset",)).num_rows
        if not there:
            return 0
        table.commit(TableCommit(instead_of=about))
        return there

    return until_committed(_forgotten, QUARANTINE.name, look_again=table.refresh)


def _of_fault(fault: Fault) -> Mapping[str, Any]:
    record = fault.record
    return {
        "source_file": record.source,
        "source_version": record.topic_id or record.message_id,
        "arrived_at": record.sent_at,
        "row_number": record.offset,
        "content": fault.content,
        "reason": fault.reason,
        "message": fault.message,
    }


def _of_loss(source: str, said: str) -> Mapping[str, Any]:
    return {"source_file": source, "source_version": said[:200], "row_number": None, "reason": LOST, "message": said}
