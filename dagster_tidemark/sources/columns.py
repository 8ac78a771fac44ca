"""Declared columns: the names and types that a feed or a table may have.

A declaration is checked when the code location loads. Types are written as Spark prints them, because a table's columns
are compared with its declaration in this form. Does not belong here: conversion of texts to values
(`lakehouse.loading.validation`), and anything that needs Spark.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

SIMPLE = ("string", "boolean", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "binary")
"""Types without parameters that Iceberg tables have and Spark prints under the same name."""

_OTHER_NAMES = {
    "str": "string",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "bool": "boolean",
    "integer": "int",
    "smallint": "int",
    "short": "int",
    "tinyint": "int",
    "byte": "int",
    "long": "bigint",
    "int64": "bigint",
    "real": "float",
    "numeric": "decimal(18,4)",
    "number": "decimal(18,4)",
    "datetime": "timestamp",
    "timestamp_ltz": "timestamp",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)
_MOST_DIGITS = 38


def require_columns(owner: str, columns: Mapping[str, str], *, nested: bool) -> None:
    """Check the names and types of declared columns.

    Args:
        owner: The declaration in an error, such as `feed orders`.
        nested: True if arrays, maps and structs are allowed.

    Raises:
        ValueError: a name or type cannot be used. The message names the owner, the column and the remedy.
    """
    seen: dict[str, str] = {}
    for name, kind in columns.items():
        if why := name_fault(name):
            raise ValueError(f"{owner}: {why}")
        if other := seen.get(name.lower()):
            raise ValueError(
                f"{owner}: columns {other!r} and {name!r} differ only in case, which Spark ignores; keep one of them, "
                "or rename one in the files and in the declaration"
            )
        seen[name.lower()] = name
        if why := type_fault(kind, nested=nested):
            raise ValueError(f"{owner}: column {name!r}: {why}")


def require_names(owner: str, setting: str, names: object) -> None:
    """Check a setting that lists columns or endings.

    Raises:
        ValueError: the setting is one string, whose letters would be read as names, or a value is not a string.
    """
    if isinstance(names, str):
        raise ValueError(f"{owner}: expected {setting} as a tuple, found {names!r}; write ({names!r},)")
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{owner}: expected {setting} as a tuple of strings, found {names!r}")


def name_fault(name: object) -> str:
    """Return the reason why a column cannot have this name; empty if it can."""
    if not isinstance(name, str):
        return f"expected a string as the name of a column, found {name!r}; put it in quotes"
    if not name.strip():
        return (
            f"the column name {name!r} is blank; name the column in the files and in the declaration, or leave it out"
        )
    if name != name.strip():
        return f"the column name {name!r} begins or ends with a blank; write {name.strip()!r}"
    if "." in name or "`" in name:
        return f"the column name {name} contains '.' or '`'; rename the column in the files and in the declaration"
    if not name.isprintable():
        return f"the column name {name!r} contains a line break or another invisible character; rename the column"
    return ""


def type_fault(kind: object, *, nested: bool) -> str:
    """Return the reason why a type cannot be declared, with the remedy; empty if it can.

    Args:
        nested: True if arrays, maps and structs are allowed.
    """
    if not isinstance(kind, str):
        return f"expected a type as a string such as 'bigint', found {kind!r}"
    if kind in SIMPLE:
        return ""
    if found := _DECIMAL.fullmatch(kind):
        digits, places = map(int, found.groups())
        if 1 <= digits <= _MOST_DIGITS and places <= digits:
            return ""
        return f"type {kind!r}: expected 1 to {_MOST_DIGITS} digits, and no more decimal places than digits"
    if kind.startswith(("array<", "map<", "struct<")):
        if not nested:
            return f"type {kind!r}: values of files cannot be nested; declare string, which keeps the JSON text"
        return "" if _is_nested_type(kind) else f"type {kind!r} is not in Spark's notation; {_NESTED}"
    return f"unknown type {kind!r}; {_suggestion(kind)}"


_NESTED = "write array<TYPE>, map<TYPE,TYPE> or struct<name:TYPE,...> without blanks"


def _suggestion(kind: str) -> str:
    bare = re.sub(r"\s+", "", kind).lower()
    if bare in SIMPLE or _DECIMAL.fullmatch(bare):
        return f"write {bare!r}"
    base = bare.partition("(")[0]
    if base in ("decimal", "dec"):
        return "write decimal(18,4), with the digits and places you need"
    if base in _OTHER_NAMES:
        return f"write {_OTHER_NAMES[base]!r}"
    if likely := get_close_matches(base, SIMPLE, n=1):
        return f"write {likely[0]!r}"
    return f"expected {', '.join(SIMPLE)} or decimal(digits,places)"


def _is_nested_type(kind: str) -> bool:
    name, bracket, inner = kind.partition("<")
    if not bracket:
        return not type_fault(kind, nested=True)
    if not inner.endswith(">"):
        return False
    parts = _split(inner[:-1])
    if name == "struct":
        fields = [part.partition(":") for part in parts]
        return all(field and colon and _is_nested_type(of) for field, colon, of in fields)
    return len(parts) == {"array": 1, "map": 2}.get(name) and all(map(_is_nested_type, parts))


def _split(inner: str) -> list[str]:
    """Split a text at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in inner:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
