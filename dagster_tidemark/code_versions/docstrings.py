"""Finds code that reads docstrings or function names as values, such as a query kept in a docstring.

Only then do docstrings and names count in a fingerprint.
"""

import ast
from collections.abc import Iterable, Sequence

from dagster_tidemark.code_versions.modules import FUNCTIONS, Module

_DOCS = {"__doc__", "getdoc", "getsource"}
_NAMES = {"__name__", "__qualname__"}


def docstrings(statements: Sequence[ast.stmt], module: Module) -> str:
    """Return the docstrings in some statements, in order.

    The module's docstring is added if the statements use the name `__doc__`.
    """
    nodes = [node for statement in statements for node in ast.walk(statement)]
    found = [ast.get_docstring(node) for node in nodes if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    if any(isinstance(node, ast.Name) and node.id == "__doc__" for node in nodes):
        found.append(ast.get_docstring(module.tree))
    return "\n".join(filter(None, found))


def reads_docstrings(statements: Iterable[ast.stmt]) -> bool:
    """Return True if statements read any docstring. The syntax does not show which object's docstring is read."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _DOCS) or (isinstance(node, ast.Name) and node.id in _DOCS)
        for node in nodes
    )


def reads_names(statements: Iterable[ast.stmt]) -> bool:
    """Return True if statements read the name of a function."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in _NAMES
        for statement in statements
        for node in ast.walk(statement)
    )
