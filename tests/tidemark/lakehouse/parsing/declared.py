"""Reading of files in memory as a load reads them: the shape, then each part."""

from collections.abc import Mapping
from typing import Any

from dagster_tidemark.lakehouse.parsing.part_of_file import PartOfFile, PartReport, read_part
from dagster_tidemark.lakehouse.parsing.rows import WHOLE
from dagster_tidemark.lakehouse.parsing.sources import MemoryFile
from dagster_tidemark.lakehouse.readers.batch import declared_by, unrecognized
from dagster_tidemark.lakehouse.readers.files import Unusable
from dagster_tidemark.lakehouse.readers.format_registry import format_named
from dagster_tidemark.lakehouse.readers.probe import _shape_of
from dagster_tidemark.sources.feed import Feed, Grain

Row = tuple[Any, ...]


def rows_of(
    body: bytes,
    columns: Mapping[str, str],
    *,
    key: str = "f.csv",
    about: int | None = None,
    recognized: bool = False,
    **options: Any,
) -> list[Row]:
    """Return the rows of a file: the values of each column, then the fault of the row, and its texts if it is odd.

    Args:
        about: Bytes of a part; None to read the file as a whole.
        recognized: True to refuse a file whose rows have no declared column, as a load does after all parts.

    Raises:
        Unusable: the file cannot be loaded.
    """
    feed = Feed("feed", "feed/", Grain.DAY, dict(columns), **options)
    source = MemoryFile(key, body)
    shape = _shape_of(feed, source)
    read_as = format_named(shape.format)
    found: list[Row] = []
    reports: list[PartReport] = []
    for part in [WHOLE] if about is None else read_as.parts(shape, key, len(body), about):
        of_file = PartOfFile(0, key, len(body), "", shape, read_as.rows_of, part)
        for rows, report in read_part(declared_by(feed), of_file, source):
            if rows is None:
                if report.fault:
                    raise Unusable(*report.fault)
                reports.append(report)
                continue
            for row in rows.to_pylist():
                found.append((*(row[c] for c in columns), row["_why"], row["_texts"]))
    if recognized and not read_as.has_header and (refused := unrecognized(feed, reports, shape)):
        raise refused
    return found


def good_rows_of(body: bytes, columns: Mapping[str, str], **options: Any) -> list[Row]:
    """Return the values of all rows. Each must be sound and in plain form. In parts they are the same."""
    found = rows_of(body, columns, **options)
    assert all(row[len(columns) :] == (None, None) for row in found), found
    for about in (1, 40):
        assert rows_of(body, columns, about=about, **options) == found
    return [row[: len(columns)] for row in found]
