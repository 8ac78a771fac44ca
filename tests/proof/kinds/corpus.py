"""All kinds of files, and the table of them in the docs."""

from collections import Counter

from tests.checkout import CHECKOUT
from tests.proof.kinds import avro_kinds, fixed_width_kinds, json_kinds, orc_kinds, parquet_kinds, text_kinds
from tests.proof.kinds.kind import Kind

GROUPS: dict[str, list[Kind]] = {
    "CSV and similar text": text_kinds.KINDS,
    "JSON": json_kinds.KINDS,
    "Parquet": parquet_kinds.KINDS,
    "ORC": orc_kinds.KINDS,
    "Avro": avro_kinds.KINDS,
    "Text of fixed width": fixed_width_kinds.KINDS,
}
KINDS = {f"{group}: {kind.name}": kind for group, kinds in GROUPS.items() for kind in kinds}
"""Kinds by a name that no other kind has."""


def table() -> str:
    """Return the table of all kinds in Markdown."""
    lines = []
    for group, kinds in GROUPS.items():
        assert not [name for name, count in Counter(kind.name for kind in kinds).items() if count > 1]
        lines += [f"### {group}", "", "| file | outcome |", "|---|---|"]
        lines += [f"| {_cell(kind.name)} | {_cell(kind.outcome)} |" for kind in kinds]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    for mark in "\\|<>[]*_{}":
        text = text.replace(mark, f"&#{ord(mark)};")
    return text.strip()


if __name__ == "__main__":  # python -m tests.proof.kinds.corpus: write the table into the docs
    page = CHECKOUT / "docs" / "kinds-of-files.md"
    page.write_text(page.read_text().partition("### ")[0] + table())
