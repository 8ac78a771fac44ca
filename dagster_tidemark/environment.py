"""Variables of a code location: `queue=from_env("ACME_PINGS_QUEUE", default="pings")` in a declaration.

Does not belong here: the settings of the library (`settings`).
"""

import os
import re

from dagster_tidemark.errors import Terminal

RESERVED = "TIDEMARK_"
"""The prefix of the library's settings."""
_MAY_BE_DECLARED = re.compile(r"TIDEMARK_\w+_(QUEUE|TOPIC)")
_read: dict[str, str] = {}


class VariableRefused(Terminal):
    """A declaration names a reserved variable."""


def from_env(variable: str, default: str) -> str:
    """Return the value of an environment variable; the default if it is unset or empty.

    A declaration reads the variable when its module is imported. So all processes of a deployment need the same value:
    code servers, the daemon and runs. The laptop platform passes it to its processes, and `tidemark env` prints it. The
    value does not change an asset's fingerprint, because `tidemark lock` reads only the text of the declaration.

    Args:
        variable: Any name. With the prefix `TIDEMARK_`, which the library uses, it must end in `_QUEUE` or `_TOPIC`.
        default: The value if the variable is unset, as on a laptop.

    Raises:
        VariableRefused: the name is reserved.
    """
    if variable.startswith(RESERVED) and not may_be_declared(variable):
        raise VariableRefused(
            f"from_env({variable!r}): names with {RESERVED} are reserved, except {RESERVED}..._QUEUE and "
            f"{RESERVED}..._TOPIC; give the variable another prefix"
        )
    _read[variable] = os.environ.get(variable) or default
    return _read[variable]


def may_be_declared(variable: str) -> bool:
    """Return True if a declaration may name this variable, although it has the library's prefix."""
    return _MAY_BE_DECLARED.fullmatch(variable) is not None


def declared_variables() -> dict[str, str]:
    """Return each variable that a declaration of this process has read, with its value."""
    return dict(_read)
