"""What `tidemark quarantine` shows of entries, to be read in 80 columns.

Does not belong here: which entries (`lakehouse.loading.quarantine_actions`), and what is done about them
(`cli.quarantine_work`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_CONTENT = 300  # characters of a rejected row that are shown


def entries_shown(counts: Sequence[Mapping[str, Any]], some: Sequence[Mapping[str, Any]]) -> Group:
    """How many entries there are for each reason, and some of them: where it stands, what is wrong, what it holds."""
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
    # As Text: a file's content is no markup.
    return [
        Text(f"{entry['asset']}: {entry['source_file']}{at}"),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in lines),
    ]
