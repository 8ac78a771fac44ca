"""The parts of a user-defined file format: see docs/feeds.md."""

from dagster_tidemark.lakehouse.parsing.rows import DeclaredContent, FileBytes, Part, Rows
from dagster_tidemark.lakehouse.parsing.sources import RandomAccess
from dagster_tidemark.lakehouse.parsing.typed_rows import rows_of_table
from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, UntypedText
from dagster_tidemark.lakehouse.readers.files import Unusable, arrow_faults
from dagster_tidemark.lakehouse.readers.format_registry import register_format

__all__ = [
    "DeclaredContent",
    "FileBytes",
    "FileFormat",
    "Part",
    "RandomAccess",
    "Rows",
    "Shape",
    "UntypedText",
    "Unusable",
    "arrow_faults",
    "register_format",
    "rows_of_table",
]
