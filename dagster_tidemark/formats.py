"""The parts of a user-defined file format: see docs/feeds.md."""

from dagster_tidemark.lakehouse.readers.file_format import FileFormat, Shape, Written
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.format_registry import register_format
from dagster_tidemark.lakehouse.readers.remote_file import RemoteFile, arrow_faults
from dagster_tidemark.lakehouse.readers.typed_rows import rows_of_arrow, rows_of_spark

__all__ = [
    "FileFormat",
    "RemoteFile",
    "Shape",
    "Unusable",
    "Written",
    "arrow_faults",
    "register_format",
    "rows_of_arrow",
    "rows_of_spark",
]
