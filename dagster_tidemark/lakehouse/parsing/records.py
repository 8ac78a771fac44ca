"""Records of a text in memory, such as a sample or the first bytes of a file.

Does not belong here: records of files that are read in blocks (`csv_rows`, `json_documents`).
"""

from __future__ import annotations

from dagster_tidemark.lakehouse.parsing.csv_dialect import Dialect
from dagster_tidemark.lakehouse.parsing.csv_rows import OpenRecord
from dagster_tidemark.lakehouse.parsing.json_documents import documents
from dagster_tidemark.lakehouse.readers.text import BLANKS, NOT_CLOSED, TextRecord, charset_of, lines_of


def records_of(
    text: bytes, *, encoding: str, multiline: bool, json: bool, dialect: Dialect | None = None
) -> list[TextRecord]:
    """Return the records of a text in order, without blank records. The first record of a CSV text is the header.

    Args:
        encoding: Encoding that the feed declares.
        multiline: True if a record may have several lines. Otherwise each line is a record.
        dialect: The marks of a CSV text.

    Returns:
        The records; an empty list if the header of a CSV text is not found.
    """
    dialect = dialect or Dialect()
    records = lines_of(text, charset_of(encoding, text))
    if not json:
        begin = dialect.begin_of_table(records)
        records = [] if begin is None else records[begin:]
    if not records:
        return []
    if multiline and json:
        records = [record for some, _ in documents([records]) for record in some]
    elif multiline:
        is_last_empty = records[-1] == TextRecord("")  # the empty text after the last line end
        joined = OpenRecord(dialect)
        records = [*joined.closed_in(records[:-1] if is_last_empty else records), *joined.never_closed()]
    elif not json:
        records = [
            TextRecord(text, fault or (None if dialect.is_terminated(text) else NOT_CLOSED)) for text, fault in records
        ]
        records = [record for record in records if dialect.is_record(record.text)]
    return [record for record in records if record.text.strip(BLANKS if json else dialect.blanks)]
