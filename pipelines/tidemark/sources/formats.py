"""Which formats files have, told by the endings of their names.

To add one: its ending here, then what it looks like (`lakehouse.readers.probe`), how it weighs (`weight`), its reader
for small files (`in_memory`) and for large ones (`spark_scan`), and how damage is told (`verdict`). Each of these asks
`format_of`, and nothing else knows an ending.
"""

from enum import StrEnum


class Format(StrEnum):
    """How a file's bytes are rows."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


GZIP = ".gz"
"""The ending of a compressed text."""

_ENDINGS = {
    ".csv": Format.CSV,
    f".csv{GZIP}": Format.CSV,
    ".jsonl": Format.JSON,
    f".jsonl{GZIP}": Format.JSON,
    ".json": Format.JSON,
    f".json{GZIP}": Format.JSON,
    ".parquet": Format.PARQUET,
}
ENDINGS = tuple(_ENDINGS)
"""Every ending that is known."""


def format_of(key: str) -> Format:
    """The format that a key's name says; of a name with another ending that of plain text, CSV."""
    return next((format_ for ending, format_ in _ENDINGS.items() if key.endswith(ending)), Format.CSV)
