"""The supported range of Dagster, and the message if Dagster lacks a private name.

Belongs here: messages about failed imports. Does not belong here: the range itself (pyproject.toml), and the use of the
private names (`dagster_internals`).
"""

import re
from importlib.metadata import PackageNotFoundError, requires, version

from dagster_tidemark.errors import Terminal

_DISTRIBUTION = "dagster-tidemark"
_NAME = re.compile(r"cannot import name '(\w+)'")
_OF_DAGSTER = re.compile(r"dagster\s*([<>=!~][^;]*)")


class DagsterUnsupported(Terminal, ImportError):
    """The installed Dagster lacks a private name that the library uses. The message names it and the range."""


def is_private(module: str) -> bool:
    """Return True for modules of Dagster that are not public: `dagster._core`, `dagster_shared`."""
    head, _, rest = module.partition(".")
    return head == "dagster_shared" or (head == "dagster" and rest.startswith("_"))


def supported() -> str:
    """Return the supported range, such as `>=1.13.27,<1.14`; empty if the library is not installed."""
    try:
        found = [match[1].strip() for each in requires(_DISTRIBUTION) or () if (match := _OF_DAGSTER.match(each))]
    except PackageNotFoundError:
        return ""
    return ",".join(sorted(found[0].split(","), reverse=True)) if found else ""


def raise_if_unsupported(error: ImportError) -> None:
    """Raise DagsterUnsupported if an import failed because Dagster lacks a private name."""
    if (said := explained(error)) is not None:
        raise DagsterUnsupported(said) from None


def explained(error: ImportError) -> str | None:
    """Return the line about a failed import of a private name of Dagster; None for other errors."""
    if isinstance(error, DagsterUnsupported):
        return str(error)
    if not error.name or not is_private(error.name):
        return None
    name = _NAME.search(error.msg or "")
    missing = f"{error.name}.{name[1]}" if name else error.name
    return (
        f"dagster {version('dagster')} has no {missing}, which dagster_tidemark needs; supported: {supported()}; "
        "install a supported version"
    )
