"""Which names are a function's, lambda's, comprehension's or class's own, and so lead nowhere else."""

import ast
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pipelines.tidemark.code_versions.modules import Module, bound_by, own_nodes


@dataclass
class Scope:
    """The names that something binds.

    Args:
        variables: Names that stand for themselves.
        imports: Names that imports bind, with what they name.
        is_class: Functions in it do not see its names.
        has_fields: It is a class whose annotations something may read.
    """

    variables: set[str]
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    is_class: bool = False
    has_fields: bool = False


def scope_of(body: Iterable[ast.AST], module: Module, parameters: Collection[ast.arg] = ()) -> Scope:
    """The names that a body binds, parameters included."""
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
    return Scope(variables - of_module - imports.keys(), imports)


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter of a function."""
    single = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *single]
