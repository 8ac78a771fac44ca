"""The table of what was turned away: ops/quarantine."""

from collections.abc import Collection

from pipelines.lakehouse.tables import LINEAGE, Table

QUARANTINE = Table(
    name="ops.quarantine",
    columns={"asset": "string", "partition": "string"}
    | LINEAGE
    | {
        "row_number": "bigint",
        "content": "string",
        "reason": "string",
        "message": "string",
        "quarantined_at": "timestamp",
    },
    row_key=("asset", "partition", "source_file", "row_number"),
    comment="A rejected row or file, with the reason",
    # Replaced per asset and partition, which a row-level overwrite can only do along file borders.
    stored_by=("asset", "partition"),
)


def entries_of(asset: str, partitions: Collection[str | None]) -> str:
    """A SQL condition that is true for the entries of these partitions of an asset."""
    if None in partitions:
        return f"asset = '{asset}' AND partition IS NULL"
    return f"asset = '{asset}' AND partition IN ({', '.join(repr(p) for p in sorted(map(str, partitions)))})"
