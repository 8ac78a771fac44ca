"""Text of a code location's files, as a deploy stores it. Does not belong here: parsing or comparing the code."""

from pathlib import Path

KEPT = (".py", ".sql", ".yaml", ".yml")
"""Endings of the files that are kept: code, queries and declarations of components."""
_MOST_CHARACTERS = 20_000_000


def code_texts(root: Path, package: str) -> dict[str, str]:
    """Return the text of a package's modules, queries and components by path; empty if all together are too large."""
    found: dict[str, str] = {}
    size = 0
    for path in sorted(root.joinpath(*package.split(".")).rglob("*")):
        if path.suffix not in KEPT or not path.is_file():
            continue
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue  # the import of this module reports the error
        size += len(text)
        if size > _MOST_CHARACTERS:
            return {}
        found[path.relative_to(root).as_posix()] = text
    return found
