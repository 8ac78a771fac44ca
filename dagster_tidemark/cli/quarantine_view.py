"""Formats the entries of `tidemark quarantine` for a terminal of 80 columns.

Does not belong here: selecting entries (`lakehouse.loading.quarantine_actions`), and actions on entries
(`cli.quarantine_work`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_CONTENT = 300  # maximum characters shown of a rejected row


def entries_shown(counts: Sequence[Mapping[str, Any]], some: Sequence[Mapping[str, Any]]) -> Group:
    """Return a table of the entries per reason, and for some entries the file, the error and the content."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    table.pad_edge = False
    for column in ("asset", "reason", "rows", "files", "waived", "since"):
        table.add_column(column, justify="right" if column in ("rows", "files") else "left", overflow="fold")
    for row in counts:
        table.add_row(
            row["asset"],
            row["reason"],
            str(row["rows"]),
            str(row["files"]),
            "yes" if row["waived"] else "",
            f"{row['since']:%Y-%m-%d}",
        )
    return Group(table, *(part for entry in some for part in _entry(entry)))


def _entry(entry: Mapping[str, Any]) -> list[Text | Padding]:
    at = "" if entry["row_number"] is None else f" row {entry['row_number']}"
    lines = [f"{entry['reason']}: {entry['message']}"]
    if entry["content"]:
        cut = "..." if len(entry["content"]) > _CONTENT else ""
        lines.append(entry["content"][:_CONTENT] + cut)
    if entry["because"]:
        lines.append(f"waived: {entry['because']}")
    # As `Text`, so that Rich does not interpret the content of files as markup.
    return [
        Text(f"{entry['asset']}: {entry['source_file']}{at}"),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in lines),
    ]
