"""Records of a text in memory, such as the beginning of a file or a sample.

Does not belong here: records of a file that is read in blocks (`csv_rows`, `json_documents`).
"""

from __future__ import annotations

from dagster_tidemark.lakehouse.parsing.csv_rows import OpenRecord
from dagster_tidemark.lakehouse.parsing.json_documents import documents
from dagster_tidemark.lakehouse.readers.text import BLANKS, NOT_CLOSED, Record, charset_of, is_terminated, lines_of


def records_of(text: bytes, *, encoding: str, multiline: bool, json: bool) -> list[Record]:
    """Return the records of a text in their order, with the header of a CSV text and without blank records.

    Args:
        encoding: Encoding that the feed declares.
        multiline: True if a record may have several lines. Otherwise each line is a record.
    """
    records = lines_of(text, charset_of(encoding, text))
    if multiline and json:
        records = [record for some, _ in documents([records]) for record in some]
    elif multiline:
        is_last_empty = records[-1] == Record("")  # after the last line end
        joined = OpenRecord()
        records = [*joined.closed_in(records[:-1] if is_last_empty else records), *joined.never_closed()]
    elif not json:
        records = [
            Record(text, fault or (NOT_CLOSED if '"' in text and not is_terminated(text) else None))
            for text, fault in records
        ]
    return [record for record in records if record.text.strip(BLANKS)]
