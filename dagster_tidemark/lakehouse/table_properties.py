"""Properties that every table of the lake is created with, by Spark (`catalog`) or by pyiceberg (`append`)."""

from collections.abc import Mapping

from dagster_tidemark.lakehouse.table import Table

# Writers of disjoint partitions never conflict but have to take turns at the catalog.
PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "50",
    # One join instead of two: a file of 20 rows merged in 0.7 s instead of 1.0 s.
    "write.merge.mode": "merge-on-read",
    # Each commit writes a metadata.json that names all snapshots, 1.4 KB each: kept forever, these files would be 70 GB
    # after 10,000 commits. A reader that holds one of the last five still finds it.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "5",
    "write.metadata.compression-codec": "gzip",
    # Java's default, not pyiceberg's. The target size stays at 8 MB: manifests are packed by size, mostly headers, and
    # with a smaller limit they would be near it and be written again more often.
    "commit.manifest-merge.enabled": "true",
    # One task for 128 small files instead of 32: saves a tenth of the time for hours that arrive in many files.
    "read.split.open-file-cost": "1048576",
}

ROW_KEY = "tidemark.row-key"
"""The row key that a table was last written with, joined by commas; `tidemark plan` compares the declared one."""

WIDENED = "tidemark.widened-by-preview"
"""Columns that previews have widened: `n bigint;d decimal(9,2)`. Iceberg cannot undo it, so narrower declarations stay
valid until the wider ones are deployed."""

GENERATION = "tidemark.generation"
"""Generation of a table. A table without this property is of the first."""


def widened_columns(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that previews have widened, with their present types."""
    entries = filter(None, properties.get(WIDENED, "").split(";"))
    return {name: kind for name, _, kind in (entry.rpartition(" ") for entry in entries)}


def as_widened(columns: Mapping[str, str]) -> str:
    """Return the value of the property `WIDENED` for some columns."""
    return ";".join(f"{name} {kind}" for name, kind in columns.items())


def properties_of(table: Table) -> dict[str, str]:
    """Return the properties that a table should have."""
    return PROPERTIES | {ROW_KEY: ",".join(table.row_key)}


def created_with(table: Table) -> dict[str, str]:
    """Return the properties that a table is created with."""
    return properties_of(table) | {GENERATION: str(table.generation)}


def location_of(table: Table) -> str:
    """Return the folder of a table's files in the warehouse: Spark's default; a separate one per later generation."""
    name = table.name if table.generation == 1 else table.name_of_generation(table.generation)
    return name.replace(".", "/")


def generation_of(properties: Mapping[str, str]) -> int:
    """Return the generation of a table with these properties."""
    return int(properties.get(GENERATION, "1"))
