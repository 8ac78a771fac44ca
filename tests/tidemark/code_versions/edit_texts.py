"""Reads the edits below `edits/`: small code locations as text, each with the text before and after the edit."""

import re
from dataclasses import dataclass
from pathlib import Path

EDITS = Path(__file__).parent / "edits"
MARK = re.compile(r"\[\[((?:(?!\[\[|\|\|).)*?)\|\|((?:(?!\[\[).)*?)\]\](?!\])", re.DOTALL)


@dataclass(frozen=True)
class Edit:
    """An edit of a location: its text with marks, and the assets whose rows or fingerprints change.

    Edits that another one is much like are proofs.
    """

    text: str
    changes: frozenset[str]
    may_change: frozenset[str]
    runs: bool
    is_proof: bool


def edits_in(path: Path) -> dict[str, Edit]:
    found = {}
    for part in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        name, *options = head.split(" | ")
        of = {key: frozenset(keys.split()) for key, _, keys in (option.partition(": ") for option in options)}
        assert name not in found, f"{path}: {name} is there twice"
        assert MARK.search(text), f"{path}: {name} has no mark"
        changes, may_change = (of.get(key, frozenset()) for key in ("changes", "may change"))
        found[name] = Edit(text, changes, may_change, runs="not run" not in of, is_proof="proof" in of)
    return found


def files_in(text: str) -> dict[str, str]:
    """Return the files of a location by their paths."""
    return dict(part.split("\n", 1) for part in re.split(r"^--- ", text, flags=re.MULTILINE)[1:])


def version(text: str, side: int) -> str:
    """Return the text before (1) or after (2) the edit."""
    return MARK.sub(lambda found: str(found[side]), text)
