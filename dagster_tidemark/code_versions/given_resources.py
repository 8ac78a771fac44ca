"""Finds the values of resources that a code location passes to `build_definitions` or to Dagster's `Definitions`.

A resource's value affects every asset that needs the resource, although the asset's code does not name the value. Does
not belong here: the resources that an asset needs (`assets`).
"""

import ast
import re
from collections.abc import Iterator

from dagster_tidemark.code_versions.modules import Module
from dagster_tidemark.code_versions.project import MACHINERY, Project

ANY = "*"
"""Name for resources whose own names are only known at run time."""

_OF_TESTS = re.compile(r"(^|\.)(tests?|conftest|test_\w+|\w+_test)(\.|$)")
_BUILD = "build_definitions"
_PARAMETERS = {"settings", "assets", "feeds", "tables", "streams"}


def given_resources(project: Project) -> dict[str, dict[Module, list[ast.expr]]]:
    """Return the expressions that give each resource its value, by module.

    The module that assembles the code location comes first. Other modules of the package, and modules that they import,
    may have definitions that it merges or loads. Tests among them do not count.
    """
    first = project.module(f"{project.package}.definitions") or project.module(project.package)
    others = [each for each in project.modules_in_use() if not _OF_TESTS.search(each.name)]
    found: dict[str, dict[Module, list[ast.expr]]] = {}
    for module in dict.fromkeys([*filter(None, [first]), *others]):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                for name, value in _given(node, module, project):
                    found.setdefault(name, {}).setdefault(module, []).append(value)
    return found


def _given(call: ast.Call, module: Module, project: Project) -> Iterator[tuple[str, ast.expr]]:
    called = project.external_name(module, call.func)
    if called.startswith(f"{MACHINERY}.") and called.endswith(f".{_BUILD}"):
        for keyword in call.keywords:
            if keyword.arg is None:
                yield from _items(keyword.value, module)
            elif keyword.arg not in _PARAMETERS:
                yield keyword.arg, keyword.value
    elif called == "dagster.Definitions":
        for keyword in call.keywords:
            if keyword.arg == "resources":
                yield from _items(keyword.value, module)


def _items(node: ast.expr, module: Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the items of a dictionary if this module spells them out; else one item named `ANY`."""
    statements = module.bindings.get(node.id, []) if isinstance(node, ast.Name) else []
    match node, statements:
        case ast.Name(), [ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value)]:
            yield from _items(value, module)
            return
    match node:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
                elif key is None:
                    yield from _items(value, module)
                else:
                    yield ANY, value
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            for keyword in keywords:
                yield keyword.arg or ANY, keyword.value
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _items(left, module)
            yield from _items(right, module)
        case _:
            yield ANY, node
