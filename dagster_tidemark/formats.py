"""The parts of a user-defined file format: see docs/feeds.md."""

from dagster_tidemark.lakehouse.parsing.rows import Declared, Part, Rows, Source
from dagster_tidemark.lakehouse.parsing.sources import RandomAccess
from dagster_tidemark.lakehouse.parsing.typed_rows import rows_of_table
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, Written
from dagster_tidemark.lakehouse.readers.files import Unusable, arrow_faults
from dagster_tidemark.lakehouse.readers.format_registry import register_format

__all__ = [
    "Declared",
    "FileFormat",
    "Part",
    "RandomAccess",
    "Rows",
    "Shape",
    "Source",
    "Unusable",
    "Written",
    "arrow_faults",
    "register_format",
    "rows_of_table",
]
