"""Python as text: what the modules of feeds and tables are put together from."""

import json
import re
from collections.abc import Sequence

from dagster_tidemark.errors import Terminal

_LINE = 120


class NoModule(Terminal):
    """A feed or table that cannot be written as asked. The message says why."""


def require_name(name: str, of: str) -> None:
    """A name can name a module, a table and an asset.

    Args:
        of: What is named: feed, table.

    Raises:
        NoModule: it cannot.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NoModule(f"a {of}'s name is of a-z, 0-9 and _, unlike {name!r}: it names a module, a table and an asset")


def literal(text: str) -> str:
    """A text in quotes."""
    return json.dumps(text, ensure_ascii=False)


def fitted(begin: str, items: Sequence[str], end: str, *, indent: int = 4) -> list[str]:
    """A line with items between brackets; where it is too long a line for each item, as `ruff format` has it."""
    margin = " " * indent
    line = f"{margin}{begin}{', '.join(items)}{',' if begin.endswith('(') and len(items) == 1 else ''}{end}"
    if len(line) <= _LINE:
        return [line]
    return [f"{margin}{begin}", *(f"{margin}    {item}," for item in items), f"{margin}{end}"]
