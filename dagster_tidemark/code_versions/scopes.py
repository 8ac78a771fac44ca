"""Finds local names of functions, lambdas, comprehensions and classes, which do not refer to definitions."""

import ast
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from dagster_tidemark.code_versions.modules import Module, bound_by, own_nodes


@dataclass
class NameScope:
    """Names bound by a function, lambda, comprehension or class.

    Args:
        variables: Names of local variables.
        imports: Names bound by imports, each with its module and attribute.
        is_class: True for a class. Functions in the class cannot use its names directly.
        has_fields: True for a class with annotations that code may read.
        numbered: Variables that can be renamed without effect. The normal form writes numbers instead of their names.
    """

    variables: set[str]
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    is_class: bool = False
    has_fields: bool = False
    numbered: Collection[str] = ()
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Return the number of a variable: variables are numbered in the order of their first appearance."""
        return self._numbers.setdefault(name, len(self._numbers))


def scope_of(body: Iterable[ast.AST], module: Module, parameters: Collection[ast.arg] = ()) -> NameScope:
    """Return the names that a body binds, including parameters."""
    variables = {parameter.arg for parameter in parameters}
    imports: dict[str, tuple[str, str | None]] = {}
    of_module: set[str] = set()
    for node in (node for part in body for node in own_nodes(part)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= dict(module.imports_of(node))
        elif isinstance(node, ast.Global):
            of_module |= set(node.names)
        else:
            variables |= set(bound_by(node))
    return NameScope(variables - of_module - imports.keys(), imports)


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function."""
    single = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *single]


def function_scope(node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> NameScope:
    """Return the scope of a function. Local variables get numbers; parameters keep their names, which callers use.

    A variable keeps its name if a text in the function contains the name (`duckdb.sql("FROM frame")`,
    `query("a > @limit")`), or if the function may look variables up by name.
    """
    scope = scope_of(node.body, module, arguments_of(node.args))
    scope.numbered = _numbered(node.body) - {argument.arg for argument in arguments_of(node.args)}
    return scope


def comprehension_scope(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, module: Module
) -> NameScope:
    """Return the scope of a comprehension."""
    targets = [generator.target for generator in node.generators]
    scope = scope_of(targets, module)
    scope.numbered = _numbered(targets) - _words([node])
    return scope


def _numbered(body: Iterable[ast.AST]) -> set[str]:
    body = list(body)
    everything = [node for part in body for node in ast.walk(part)]
    if any(isinstance(node, ast.Name) and node.id in _LOOK_UP for node in everything):
        return set()
    own = [node for part in body for node in own_nodes(part)]
    plain = {node.id for node in own if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)}
    otherwise = {name for node in own if not isinstance(node, ast.Name) for name in bound_by(node)}
    outer = {name for node in everything if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return plain - otherwise - outer - _words(body)


def _words(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the words in all texts, except in docstrings and annotations."""
    found: set[str] = set()
    waiting = list(nodes)
    while waiting:
        match waiting.pop():
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Constant(value=str(text)):
                found |= set(re.findall(r"\w+", text))
            case node:
                parts = (part for name, part in ast.iter_fields(node) if name not in ("annotation", "returns"))
                each = (p for part in parts for p in (part if isinstance(part, list) else [part]))
                waiting += [part for part in each if isinstance(part, ast.AST)]
    return found


_LOOK_UP = {"locals", "vars", "eval", "exec", "dir", "inspect", "sys"}
