"""Which variables and options hold a secret, by their names and values."""

import json
import re
from urllib.parse import unquote, unquote_plus

_NAMES = re.compile(
    r"(password|passphrase|secret|token|credential|authorization|cookie|(access|account|private|secret|api)[-_.]?key"
    r"|connection[-_.]string)(_value)?$"
    r"|(\bheader[.-]|__HEADER__)(?!X.Iceberg.Access.Delegation$)|sas[-_.]token",
    re.IGNORECASE,
)
"""Names of secrets. A header of HTTP may hold any login, and Azure's SAS tokens have the account after their name."""
_IN_VALUES = re.compile(
    r"(://[^/@\s:]*:|[?&;][\w.-]*(password|token|secret)=)(?P<secret>(?<=:)[^/@\s]+(?=@)|(?<==)[^&;\s]+)", re.IGNORECASE
)


def is_secret(name: str, value: str) -> bool:
    """Return True if a variable or an option holds a password, a token or a key.

    Args:
        value: A text. In a JSON object each member counts.
    """
    if _NAMES.search(name) or _IN_VALUES.search(value):
        return True
    return any(is_secret(inner, given) for inner, given in _members(value))


def secrets_in(name: str, value: str) -> set[str]:
    """Return each password, token and key in a variable or an option, as written and without its escapes (%XX)."""
    members = _members(value)
    if members:
        return {each for inner, given in members for each in secrets_in(inner, given)}
    found = {value} if _NAMES.search(name) else {each["secret"] for each in _IN_VALUES.finditer(value)}
    return {form for each in found for form in (each, unquote(each), unquote_plus(each))}


def _members(value: str) -> list[tuple[str, str]]:
    """Return the members of a JSON object; none if the text is no object."""
    if not value.startswith("{"):
        return []
    try:
        members = json.loads(value)
    except ValueError:
        return []
    return [(name, json.dumps(given) if isinstance(given, dict) else str(given)) for name, given in members.items()]
