"""Finds names of columns that code mentions or creates, in its constants, attributes and SQL.

The code is not type-checked: a mentioned name may be a column of another table. All names are in lower case, because
SQL does not distinguish cases.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

_MAKES = {"alias", "name", "toDF", "withColumn", "withColumnRenamed", "withColumns", "withColumnsRenamed"}
_AS = re.compile(r"\bas\s+`?(\w+)`?", re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """Words in a piece of code that may be names of columns, in lower case.

    Args:
        mentioned: All such words.
        made: Names that the code gives to columns that it computes from other columns.
    """

    mentioned: frozenset[str]
    made: frozenset[str]


def names_in(nodes: Iterable[ast.AST]) -> Names:
    """Return the names in a piece of code, except in docstrings."""
    mentioned: set[str] = set()
    made: set[str] = set()
    for top in nodes:
        prose = {id(n.value) for n in ast.walk(top) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
        for node in ast.walk(top):
            match node:
                case ast.Constant(value=str(text)) if id(node) not in prose:
                    mentioned |= set(re.findall(r"\w+", text))
                    made |= set(_AS.findall(text))
                case ast.Attribute(attr=name):
                    mentioned.add(name)
                case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _MAKES:
                    # F.sum("n").alias("n") needs an existing column n.
                    needs = _texts([value] if method in ("alias", "name") else node.args[1:])
                    made |= _given(node) - needs
                case ast.keyword(arg=str(name)):
                    mentioned.add(name)
    return Names(_lower(mentioned), _lower(made))


def names_in_text(text: str) -> Names:
    """Return the names in a text, such as SQL or YAML, with its comments."""
    return Names(_lower(re.findall(r"\w+", text)), _lower(_AS.findall(text)))


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _texts(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in (inner for top in nodes for inner in ast.walk(top)):
        match node:
            case ast.Constant(value=str(text)):
                found |= set(re.findall(r"\w+", text))
            case ast.Attribute(attr=name):
                found.add(name)
    return found


def _given(call: ast.Call) -> set[str]:
    """Return the constant texts among the arguments of a call, including keys and values of dictionaries."""
    found = set()
    for argument in call.args:
        parts = [*filter(None, argument.keys), *argument.values] if isinstance(argument, ast.Dict) else [argument]
        found |= {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return found
