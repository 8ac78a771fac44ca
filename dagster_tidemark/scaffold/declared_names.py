"""Names of columns to declare for names in files that no column can have, such as `Sepal.Length` or a blank.

The feed's `names` keeps both. Does not belong here: finding the columns of a sample (`sample`).
"""

import re
from collections.abc import Iterable, Sequence

from dagster_tidemark.sources.columns import name_fault
from dagster_tidemark.sources.feed import RESERVED


def declared_names(names: Sequence[str]) -> dict[str, str]:
    """Return the name to declare for each name of a file that cannot be declared: `Sepal_Length` for `Sepal.Length`.

    Of two names that differ only in case, the first one stays.
    """
    taken: dict[str, str] = {}
    others = []
    for name in names:
        if name_fault(name) or name.startswith("_") or name.lower() in RESERVED or name.lower() in taken:
            others.append(name)
        else:
            taken[name.lower()] = name
    found = {}
    for name in others:
        plain = re.sub(r"\W+", "_", name).strip("_") or f"column_{names.index(name) + 1}"
        found[name] = _free(plain, {*taken, *RESERVED})
        taken[found[name].lower()] = name
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name that differs from all others by more than case."""
    number, found = 2, name
    while found.lower() in taken:
        found, number = f"{name}_{number}", number + 1
    return found
