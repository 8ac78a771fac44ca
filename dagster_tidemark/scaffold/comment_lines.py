"""Finds comments in a sample: lines that begin with `#`, and the names of columns in `#Fields:` of web servers' logs.

Does not belong here: separators, headers and quotes (`sniffing`).
"""

from collections.abc import Mapping
from typing import Any

from dagster_tidemark.lakehouse.parsing.csv_dialect import BEGINS_OF_NAMES, NAMES_OF_LOG, Dialect, names_in_log
from dagster_tidemark.lakehouse.parsing.records import records_of
from dagster_tidemark.lakehouse.readers.text import charset_of
from dagster_tidemark.sources.text_formats import Csv

MARK = "#"
_SHOWN = 60  # maximum number of characters of a line in the evidence


def comments_found(text: bytes, encoding: str, format: Csv, width: int, *, ahead: int, multiline: bool) -> list[str]:
    """Return the evidence that lines which begin with `#` are comments; empty if they are not.

    If such a line has as many values as a row, `#` is no mark of comments: a load would skip that row.

    Args:
        format: The marks of the file.
        width: Number of values of a row, including an empty one after a trailing separator.
        ahead: Number of such lines above the header, which a load skips anyway.
    """
    if MARK not in text.decode(charset_of(encoding, text), errors="replace"):
        return []
    dialect = Dialect(format)
    records = records_of(text, encoding=encoding, multiline=multiline, json=False, dialect=dialect)
    lines = [record.text for record in records if record.text.startswith(MARK)]
    if len(lines) <= ahead or any(len(dialect.fields_of(line)) == width for line in lines):
        return []
    count = f"{len(lines)} line{'s begin' if len(lines) > 1 else ' begins'} with it"
    return [f"comment {MARK!r}: {count} and no row does, the first {lines[0][:_SHOWN]!r}; a load skips each such line"]


def log_found(text: bytes, encoding: str, given: Mapping[str, Any]) -> tuple[Csv, list[str]] | None:
    """Return the options and evidence of a W3C extended log, whose line `#Fields:` names the columns; otherwise None.

    Args:
        given: The user's options.

    Raises:
        ValueError: the file has several such lines, with different names, or the user gave another number of names.
    """
    whole = text.decode(charset_of(encoding, text), errors="replace")
    if not any(begin in whole for begin in BEGINS_OF_NAMES):
        return None
    lines = [each.text for each in records_of(text, encoding=encoding, multiline=False, json=False)]
    named = list(dict.fromkeys(tuple(found) for found in map(names_in_log, lines) if found))
    rows = [line for line in lines if not line.startswith(MARK)]
    if not named or not rows or given.get("header") or given.get("comment", MARK) != MARK:
        return None
    if len(named) > 1:
        raise ValueError(f"it has {len(named)} lines {NAMES_OF_LOG} with different names; cut it into a file for each")
    names = named[0]
    separator = given.get("separator") or ("\t" if all("\t" in line for line in rows) else " ")
    dialect = Dialect(Csv(separator=separator))
    if len(names) < 2 or 2 * sum(len(dialect.fields_of(line)) == len(names) for line in rows) <= len(rows):
        return None
    if len(given.get("fields", names)) != len(names):
        raise ValueError(f"its line {NAMES_OF_LOG} has {len(names)} names, and --names {len(given['fields'])}")
    form = Csv(separator=separator, header=False, fields=names, comment=MARK)
    shown = f"{NAMES_OF_LOG} {' '.join(names)}"[:_SHOWN]
    return form, [
        f"separator {separator!r}: most lines have {len(names)} values by it, as many as there are names",
        f"comment {MARK!r}: a load skips each line that begins with it",
        f"header=False, fields: the names are those in {shown!r}; each later file is read by its own",
    ]
