"""Which variables and options hold a secret, by their names and values."""

import json
import re

_NAMES = re.compile(
    r"(password|secret|token|credential|authorization|(access|account|private|secret)[-_.]key)(_value)?$", re.IGNORECASE
)
_IN_VALUES = re.compile(r"://[^/@\s:]*:[^/@\s]+@|[?&;](password|token|secret)=[^&;\s]", re.IGNORECASE)


def is_secret(name: str, value: str) -> bool:
    """Return True if a variable or an option holds a password, a token or a key.

    Args:
        value: A text. In a JSON object each member counts.
    """
    if _NAMES.search(name) or _IN_VALUES.search(value):
        return True
    if value.startswith("{"):
        try:
            members = json.loads(value)
        except ValueError:
            return False
        return any(is_secret(str(inner), str(given)) for inner, given in members.items())
    return False
