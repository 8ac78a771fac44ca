"""Python text: building blocks of the generated modules for feeds and tables."""

import json
import re
from collections.abc import Sequence

from dagster_tidemark.errors import Terminal

_LINE = 120


class NoModule(Terminal):
    """The module of a feed or table cannot be written as requested. The message gives the reason."""


def require_name(name: str, of: str) -> None:
    """Raise if a name cannot be used for a module, a table and an asset.

    Args:
        of: Kind of the object with this name, for the message: feed or table.

    Raises:
        NoModule: the name has characters other than a-z, 0-9 and _.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NoModule(
            f"a {of}'s name may have only a-z, 0-9 and _, found {name!r}: it also names a module, a table and an asset"
        )


def literal(text: str) -> str:
    """Return a text in quotes."""
    return json.dumps(text, ensure_ascii=False)


def fitted(begin: str, items: Sequence[str], end: str, *, indent: int = 4, call: bool = False) -> list[str]:
    """Return items between brackets as one line, or as one line per item if that is too long, like `ruff format`.

    Args:
        call: True for the brackets of a call, False for a tuple, which needs a comma after a single item.
    """
    margin = " " * indent
    line = (
        f"{margin}{begin}{', '.join(items)}{',' if begin.endswith('(') and len(items) == 1 and not call else ''}{end}"
    )
    if len(line) <= _LINE:
        return [line]
    return [f"{margin}{begin}", *(f"{margin}    {item}," for item in items), f"{margin}{end}"]
